"""Damage in unverified log: waiting messages in it are kept and logged, all others delivered."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from rocketmq_broker.engine.messages.timers import TIMER_TOPIC
from rocketmq_broker.storage.adoption.adopt import adopt_timers
from rocketmq_broker.storage.disk.config_files import Configs
from rocketmq_broker.storage.disk.files import MemoryFiles
from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_broker.storage.queues.consume_queue import DELAYS_MS, SCHEDULE_TOPIC
from rocketmq_broker.storage.settings import FlushMode, StoreConfig
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.groups import Heartbeat
from rocketmq_wire.requests.messages import SendMessage
from rocketmq_wire.requests.topics import CreateTopic
from support.engines import NOW_MS, STORE_HOST, EngineUnderTest, queue_of

ORDERS = queue_of("orders")
CONFIG = StoreConfig(
    FlushMode.SYNC, STORE_HOST, segment_size=1 << 20, checksum_range_size=200, verified_size=300
)
"""A checksum covers one or two messages, and the start compares the last one."""
LEVEL_3_MS, LEVEL_4_MS = DELAYS_MS[2], DELAYS_MS[3]


def opened(files: MemoryFiles) -> EngineUnderTest:
    broker = EngineUnderTest(files, flush="sync", store_config=CONFIG)
    broker.ask(CreateTopic(TopicConfig("orders", 1, 1)))
    broker.ask(Heartbeat("c@1", ("p",)))
    return broker


def send(broker: EngineUnderTest, body: bytes, sys_flag: int = 0, **properties: object) -> None:
    texts = {name: str(value) for name, value in properties.items()}
    request = SendMessage(
        "p", ORDERS, broker.now_ms, body * 100, encode_properties(texts), 0, sys_flag
    )
    broker.ask(request)


def restarted(broker: EngineUnderTest) -> EngineUnderTest:
    """The broker after a stop and a start."""
    assert isinstance(broker.files, MemoryFiles)
    broker.save_files()
    broker.store.close()
    again = opened(broker.files)
    again.now_ms = broker.now_ms
    return again


def flip(broker: EngineUnderTest, position: int) -> None:
    """Change a byte of the log, or change it back."""
    file = broker.files.open("commitlog/" + "0" * 20)
    file.pwrite(bytes([file.pread(1, position)[0] ^ 0x10]), position)


def compare(broker: EngineUnderTest) -> int:
    """Compare the whole log; returns the number of damaged ranges."""
    count, size = 0, 1
    while size:
        try:
            size = broker.store.verify_step()
        except DamagedStoreError:  # noqa: PERF203
            count += 1
    return count


def damaged(broker: EngineUnderTest, body: bytes) -> tuple[EngineUnderTest, int]:
    """The broker after it has found a message damaged, and the position of the damage."""
    # The start compares only the newest log.
    for _ in range(4):
        broker.store_messages(queue_of("later"), b"z" * 300)
    broker = restarted(broker)
    position = broker.files.open("commitlog/" + "0" * 20).pread(1 << 20, 0).index(body * 90)
    flip(broker, position)
    assert compare(broker) == 1
    return broker, position


def advance(broker: EngineUnderTest, ms: int) -> None:
    broker.now_ms += ms
    for _ in itertools.takewhile(broker.engine.deliver_delayed, itertools.repeat(broker.now_ms)):
        broker.make_visible()


def bodies(broker: EngineUnderTest) -> list[bytes]:
    return [message.body[:1] for message in broker.messages(ORDERS)]


def logged_count(caplog: pytest.LogCaptureFixture, words: Iterable[str]) -> int:
    """Number of ERROR lines that contain all of these words."""
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    return sum(all(word in line for word in words) for line in lines)


def test_a_damaged_delayed_message_stops_only_its_own_level(caplog) -> None:
    broker = opened(MemoryFiles())
    for body, level in ((b"a", 3), (b"b", 3), (b"c", 3), (b"d", 4), (b"e", 4)):
        send(broker, body, DELAY=level)
    broker, position = damaged(broker, b"b")
    names = (f"of {SCHEDULE_TOPIC} queue 2", "rmq fsck", "[ROCKETMQ_STORAGE.DAMAGED]")
    advance(broker, LEVEL_3_MS)
    came = bodies(broker)
    assert came in ([], [b"a"])
    advance(broker, LEVEL_4_MS)
    assert bodies(broker) == [*came, b"d", b"e"]
    for _ in range(300):
        advance(broker, 1_000)
    assert logged_count(caplog, names) == 1
    # The next start has not compared that log yet: only the message's own checksum differs.
    broker = restarted(broker)
    advance(broker, 1_000)
    assert sorted(bodies(broker)) == [b"a", b"d", b"e"]
    assert logged_count(caplog, (f"of {SCHEDULE_TOPIC} queue 2", "rmq fsck", "checksum is")) == 1
    flip(broker, position)
    broker = restarted(broker)
    advance(broker, 1_000)
    assert sorted(bodies(broker)) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_damaged_timer_waits_alone_and_is_not_forgotten(caplog) -> None:
    broker = opened(MemoryFiles())
    due_ms = NOW_MS + 5_000
    for number, body in enumerate((b"a", b"b", b"c", b"d", b"e", b"f")):
        send(broker, body, TIMER_DELIVER_MS=due_ms + 1_000 * (number == 5))
    broker, position = damaged(broker, b"c")
    advance(broker, 5_000)
    advance(broker, 1_000)
    came = bodies(broker)
    assert {b"a", b"e", b"f"} <= set(came)
    assert b"c" not in came
    for _ in range(300):
        advance(broker, 1_000)
    held = [body for body in (b"b", b"c", b"d") if body not in came]
    assert logged_count(caplog, (f"of {TIMER_TOPIC}", "rmq fsck", "DAMAGED")) == len(held)
    assert broker.engine.timers.waiting_count == len(held)
    broker = restarted(broker)
    advance(broker, 1_000)
    assert broker.engine.timers.waiting_count == 1
    assert logged_count(caplog, (f"of {TIMER_TOPIC}", "rmq fsck")) == len(held)
    flip(broker, position)
    broker = restarted(broker)
    advance(broker, 1_000)
    assert sorted(bodies(broker)) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    # It is delivered, and the next message is delivered once.
    broker = restarted(broker)
    send(broker, b"g", TIMER_DELIVER_MS=broker.now_ms + 1_000)
    broker = restarted(broker)
    advance(broker, 1_000)
    assert bodies(broker)[6:] == [b"g"]


def test_unreadable_timers_survive_a_visit_of_rocketmq() -> None:
    files = MemoryFiles()
    files.make_directory("config")
    configs = Configs(files)
    configs.save("timers.json", {"deliveredUntilMs": 7, "start": 3, "held": [4]})
    files.open("config/timercheck", create=True).pwrite((9).to_bytes(8, "big"), 0)
    adopt_timers(files, configs)
    assert configs.load("timers.json") == {"deliveredUntilMs": 8, "start": 3, "held": [4]}


def test_half_messages_beside_a_damaged_one_are_asked_about(caplog) -> None:
    broker = opened(MemoryFiles())
    for body in (b"a", b"b", b"c", b"d", b"e"):
        send(broker, body, 0x4, TRAN_MSG="true", PGROUP="p", UNIQ_KEY=body.decode())
    broker, _ = damaged(broker, b"b")
    broker.engine.transactions.take_checks(broker.now_ms)
    asked = []
    for _ in range(2):
        broker.now_ms += 60_000
        checks, _ = broker.engine.transactions.take_checks(broker.now_ms)
        asked.append([check.request.transaction_id for check in checks])
    assert asked[0] == asked[1]
    assert {"d", "e"} <= set(asked[0]) <= {"a", "c", "d", "e"}
    assert logged_count(caplog, ("half message b, offset=1", "rmq fsck")) == 2
    assert broker.engine.transactions.pending_count == 5
