"""All scenarios: for a release, and in a minute."""

from __future__ import annotations

from typing import Final

from bench.accounting.writer import TRANSACTIONAL
from bench.chaos.scenarios import AT_LEAST_ONCE, Scenario
from bench.chaos.site import GRPC, TCP

_PYTHON: Final = ("driver", "worker", "daemon", "broker")
_WRITER_STEPS: Final = {
    "kill driver": 3,
    "kill worker": 5,
    "kill daemon": 2,
    "kill broker": 3,
    **{f"pause {part}": 1 for part in _PYTHON},
}
_BROKER_KILLS: Final = {"kill broker": 17}
_BROKER_KILL_S: Final = 2.5

FULL: Final = (
    Scenario(
        "reads",
        "a read over both transports through kills of all its processes",
        "read",
        {
            "kill driver": 20,
            "kill worker": 30,
            "kill daemon": 5,
            "kill runner": 3,
            "kill broker": 3,
            "stop driver": 2,
        },
        messages=2_000_000,
    ),
    Scenario(
        "broker-reads",
        "a read while the broker is killed 17 times in a minute",
        "read",
        _BROKER_KILLS,
        messages=100_000,
        every_s=_BROKER_KILL_S,
    ),
    Scenario(
        "broker-writes",
        "an at-least-once write, the same",
        AT_LEAST_ONCE,
        _BROKER_KILLS,
        batch=2_000,
        every_s=_BROKER_KILL_S,
        is_plain=True,
    ),
    Scenario(
        "broker-commits",
        "a transactional write, the same",
        TRANSACTIONAL,
        _BROKER_KILLS,
        transports=(TCP,),
        batch=500,
        every_s=_BROKER_KILL_S,
        is_plain=True,
    ),
    Scenario(
        "pauses",
        "a read whose processes stop for 5 to 20 s",
        "read",
        {f"pause {part}": 1 for part in (*_PYTHON, "runner")},
        messages=100_000,
    ),
    Scenario(
        "writes",
        "an at-least-once write through kills and pauses",
        AT_LEAST_ONCE,
        _WRITER_STEPS,
    ),
    Scenario(
        "commits",
        "a transactional write through kills and pauses",
        TRANSACTIONAL,
        _WRITER_STEPS,
        transports=(TCP,),
        batch=500,
    ),
    Scenario(
        "calls-tcp",
        "each call of a read over TCP meets each fault",
        "read",
        {"search again": 2},
        ("GET_ROUTEINFO_BY_TOPIC", "PULL_MESSAGE", "GET_MAX_OFFSET", "UPDATE_CONSUMER_OFFSET"),
        (TCP,),
        messages=20_000,
    ),
    Scenario(
        "calls-grpc",
        "each call of a read over gRPC, the same",
        "read",
        {"search again": 2},
        ("GetRoute", "PullRecords", "GetOffsets", "CommitOffset"),
        (GRPC,),
        messages=20_000,
    ),
    Scenario(
        "calls-group",
        "the calls of a member of a group",
        "group",
        calls=("HEART_BEAT",),
        transports=(TCP,),
        messages=20_000,
    ),
    Scenario(
        "calls-pop-tcp",
        "the calls of pops over TCP",
        "pop",
        {"kill driver": 2, "kill worker": 2},
        ("POP_MESSAGE", "BATCH_ACK_MESSAGE"),
        (TCP,),
        messages=2_000,
    ),
    Scenario(
        "calls-pop-grpc",
        "the calls of pops over gRPC",
        "pop",
        {"kill driver": 2, "kill worker": 2},
        ("ReceiveMessage", "AckMessage"),
        (GRPC,),
        messages=2_000,
    ),
    Scenario(
        "calls-writes-tcp",
        "the calls of an at-least-once write over TCP",
        AT_LEAST_ONCE,
        {"kill driver": 3},
        ("SEND_BATCH_MESSAGE",),
        (TCP,),
        batch=2_000,
        is_plain=True,
    ),
    Scenario(
        "calls-writes-grpc",
        "the calls of an at-least-once write over gRPC",
        AT_LEAST_ONCE,
        {"kill driver": 3},
        ("SendRecordsStream",),
        (GRPC,),
        batch=2_000,
        is_plain=True,
    ),
    Scenario(
        "calls-commits",
        "the calls of a transactional write",
        TRANSACTIONAL,
        {"kill driver": 3},
        ("SEND_MESSAGE_V2", "END_TRANSACTION", "PULL_MESSAGE", "GET_MAX_OFFSET"),
        (TCP,),
        batch=500,
        is_plain=True,
    ),
)

SHORT: Final = (
    Scenario(
        "reads",
        "a read over both transports through kills of all its processes, and a pause",
        "read",
        {
            "kill driver": 1,
            "kill worker": 1,
            "kill daemon": 1,
            "kill runner": 1,
            "kill broker": 1,
            "stop driver": 1,
            "pause broker": 1,
        },
        messages=50_000,
        batch=2_000,
        pause_s=(1.0, 2.0),
    ),
    Scenario(
        "writes",
        "an at-least-once write over both transports through kills",
        AT_LEAST_ONCE,
        {"kill driver": 4, "kill broker": 1},
        batch=2_000,
        is_plain=True,
    ),
    Scenario(
        "calls-commits",
        "ends of transactions meet each fault",
        TRANSACTIONAL,
        {"kill driver": 1},
        ("END_TRANSACTION",),
        (TCP,),
        batch=200,
        is_plain=True,
    ),
)
