"""The protections of the broker, each with a switch: a replacement of the function that protects.

Without any of them some life of the simulation breaks a promise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from rocketmq_arrow.decode.layout import read_layout
from rocketmq_broker.engine.groups.committed_offsets import CommittedOffsets
from rocketmq_broker.engine.groups.consumer_groups import Groups
from rocketmq_broker.engine.messages import delays
from rocketmq_broker.engine.messages.delays import Delays
from rocketmq_broker.engine.messages.timers import Timers
from rocketmq_broker.engine.pop.in_flight import InFlightPops
from rocketmq_broker.engine.transactions.half_messages import Transactions
from rocketmq_broker.engine.transactions.table import TransactionTable
from rocketmq_broker.servers.shell.clock import BrokerClock
from rocketmq_broker.servers.shell.shell import EngineShell
from rocketmq_broker.storage.disk import config_files
from rocketmq_broker.storage.disk.config_files import Configs
from rocketmq_broker.storage.disk.files import Files
from rocketmq_broker.storage.log import scan
from rocketmq_broker.storage.log.commit_log import CommitLog
from rocketmq_broker.storage.log.durability import Durability
from rocketmq_broker.storage.maintenance import Maintenance
from rocketmq_broker.storage.queues.queue_table import QueueTable
from rocketmq_broker.storage.recovery import recover
from rocketmq_broker.storage.store import Store
from support.message_checker import Kind
from support.simulation.disk import SimulatedDisk

_EVERYTHING = 1 << 62
"""Behind every position of a log."""
Scene = Sequence[tuple[str, float]] | None


@dataclass(frozen=True)
class Protection:
    """One function of the broker, what replaces it, and the promises that break then."""

    owner: object
    name: str
    without: object
    breaks: frozenset[Kind]
    scene: Scene = None
    """The operations of a life that needs it, if few lives by chance do."""

    @contextmanager
    def switched_off(self) -> Iterator[None]:
        with mock.patch.object(self.owner, self.name, self.without):
            yield


def _advance_without_disk(self: Any, end: int) -> None:
    self._mark = replace(self._mark, end=end)


_carry_out = EngineShell._carry_out


def _answer_at_once(self: Any, outcome: Any, done: Any) -> None:
    if hasattr(outcome, "position"):
        done(outcome.reply)
        self._commit.order(outcome.position)
    else:
        _carry_out(self, outcome, done)


def _publish_undurable(self: Any) -> Any:
    return self._queues.publish(self._log.end)


def _write_over(files: Files, name: str, data: bytes) -> None:
    with closing(files.open(name, create=True)) as file:
        file.resize(0)
        file.pwrite(data, 0)
        file.sync()
    files.sync_directory(name.rpartition("/")[0])


def _unchecked_prefix(data: Any, base: int) -> Any:
    del base
    chain = scan.chain_of(data)
    return chain, read_layout(data, chain.starts, chain.sizes, None)[0]


_take_delays, _take_timers = Delays.take_changes, Timers.take_changes
_take_committed, _take_marks = InFlightPops.take_committed, InFlightPops.take_marks
_delete_topics = Configs.delete_topics


def _protection(
    owner: object, name: str, without: object, *breaks: Kind, scene: Scene = None
) -> Protection:
    return Protection(owner, name, without, frozenset(breaks), scene)


_READS = (
    *(("send", 0), ("send", 100), ("send", 260), ("pull", 1), ("pull", 1), ("pull", 1)),
    *(("pull", 1), ("pull", 1), ("pull", 60), ("cut the power", 1_500)),
)
_TEARS = (("send", 1), ("send", 1), ("send", 1), ("send", 100), ("cut the power", 1_200))
_DELIVERIES = (
    *(("send later", 1), ("send later", 1), ("send later", 1), ("send later", 100)),
    ("cut the power soon", 2_500),
)
_CHECKPOINTS = (("send a batch", 500), ("pop", 1), ("pop", 3_100), ("cut the power soon", 1_500))
_FULL = (
    *(("send a batch", 1), ("send a batch", 1_000), ("fill the disk", 1), ("pop", 1), ("pop", 1)),
    *(("relieve the disk", 3_500), ("kill", 6_000)),
)
_DELAYS = (("send later", 50), ("pull", 20), ("pull", 20))
_STEPS = (("send later", 1), ("step the clock", 100), ("send later", 300), ("pull", 1_000))
_DELETIONS = (
    *(("send", 1), ("send", 50), ("pull", 50), ("pull", 50), ("commit", 1), ("commit", 1)),
    *(("pop", 100), ("recreate a topic", 1_500), ("look up", 50), ("look up", 50)),
)
_RETENTION = (
    *(("send a batch", 1), ("send a batch", 1), ("send a batch", 1), ("send a batch", 20)),
    *(("overfill the disk", 11_000), ("relieve the disk", 100), ("kill", 1_500)),
)
_SENDS = (("send a batch", 1), ("send a batch", 1), ("send a batch", 1), ("wait", 100))
_TRANSACTIONS = (
    *(("begin a transaction", 1), ("begin a transaction", 1), ("begin a transaction", 100)),
    ("cut a connection", 700),
)
_CUT_TRANSACTIONS = (
    *(("begin a transaction", 1), ("begin a transaction", 1), ("begin a transaction", 1)),
    ("cut the power soon", 1_500),
)
_DELETED = (
    *(("send", 1), ("send", 1), ("send", 50), ("recreate a topic", 1_500)),
    *(("cut the power", 1_500), ("pull", 20), ("pull", 20)),
)
_ANSWERS = (("send", 1), ("send", 1), ("send a batch", 40), ("cut the power", 1_200))
_CHANGES = (
    *(("send later", 100), ("pull", 20), ("commit", 10), ("recreate a topic", 0)),
    ("cut the power soon", 1_500),
)
_POPS = (("send", 1), ("send a batch", 50), ("pop", 20), ("pop", 20), ("pop", 20))

PROTECTIONS = {
    "the log is synced": _protection(
        Durability, "_advance", _advance_without_disk, Kind.LOST, Kind.WRONG_BODY
    ),
    "the mark follows the log": _protection(CommitLog, "sync", lambda *_: None, Kind.LOST),
    "names are synced": _protection(SimulatedDisk, "sync_directory", lambda *_: None, Kind.LOST),
    "answers wait for the sync": _protection(
        EngineShell, "_carry_out", _answer_at_once, Kind.LOST, Kind.WRONG_BODY, scene=_ANSWERS
    ),
    "configuration is replaced in one step": _protection(
        config_files, "write_file", _write_over, Kind.LOST, scene=_CHANGES
    ),
    "the log's start is stored before files are deleted": _protection(
        Durability, "move_log_start", lambda *_: None, Kind.LOST, scene=_RETENTION
    ),
    "retention keeps what has not expired": _protection(
        Maintenance,
        "_expired_before",
        lambda self, _: max(self._deletable(), default=self._log.start),
        Kind.LOST,
        scene=_SENDS,
    ),
    "deletions store their log position": _protection(
        Configs,
        "delete_topics",
        lambda self, topics, _: _delete_topics(self, topics, 0),
        Kind.UNEXPECTED,
        Kind.WRONG_BODY,
        Kind.LOST,
        scene=_DELETED,
    ),
    "a created topic begins empty": _protection(
        QueueTable, "remove_topics", lambda *_: None, Kind.UNEXPECTED
    ),
    "a created topic has no committed offsets": _protection(
        CommittedOffsets, "delete_topic", lambda *_: None, Kind.GAP, Kind.LOST, scene=_DELETIONS
    ),
    "delays wait": _protection(delays, "DELAYS_MS", (0,) * 18, Kind.EARLY, scene=_DELAYS),
    "timers wait": _protection(
        Timers, "is_due", lambda self, _: bool(self._due), Kind.EARLY, scene=_DELAYS
    ),
    "the clock does not follow steps back": _protection(
        BrokerClock, "now_ms", lambda self: self.wall_ms(), Kind.LOST, Kind.EARLY, scene=_STEPS
    ),
    "half messages wait for their commit": _protection(
        Transactions, "prepare", lambda _, queue, names, __: (queue, dict(names)), Kind.EARLY
    ),
    "an ended transaction is not ended again": _protection(
        TransactionTable,
        "get",
        lambda self, offset: self._by_offset.get(offset),
        Kind.DUPLICATE,
        scene=_TRANSACTIONS,
    ),
    "a commit that a crash cut is completed": _protection(
        Transactions, "_repair", lambda *_: None, Kind.DUPLICATE, scene=_CUT_TRANSACTIONS
    ),
    "popped messages are invisible": _protection(
        InFlightPops,
        "next_offset",
        lambda _, __, committed: committed,
        Kind.EARLY,
        Kind.DUPLICATE,
        scene=_POPS,
    ),
    "acknowledged pops do not come again": _protection(
        InFlightPops, "acknowledge", lambda *_: None, Kind.DUPLICATE
    ),
    "pops are revived": _protection(InFlightPops, "take_due", lambda *_: [], Kind.LOST),
    "readers wait for the sync": _protection(
        Store, "publish", _publish_undurable, Kind.LOST, Kind.WRONG_BODY, scene=_READS
    ),
    "torn records are cut": _protection(
        recover, "whole_prefix", _unchecked_prefix, Kind.WRONG_BODY, Kind.LOST, scene=_TEARS
    ),
    "delays are saved once delivered durably": _protection(
        Delays,
        "take_changes",
        lambda self, _: _take_delays(self, _EVERYTHING),
        Kind.LOST,
        scene=_DELIVERIES,
    ),
    "timers are saved once delivered durably": _protection(
        Timers,
        "take_changes",
        lambda self, _: _take_timers(self, _EVERYTHING),
        Kind.LOST,
        scene=_DELIVERIES,
    ),
    "pops are committed once their checkpoints are durable": _protection(
        InFlightPops,
        "take_committed",
        lambda self, _: _take_committed(self, _EVERYTHING),
        Kind.LOST,
        scene=_CHECKPOINTS,
    ),
    "checkpoints are read again until durable": _protection(
        InFlightPops,
        "take_marks",
        lambda self, _: _take_marks(self, _EVERYTHING),
        Kind.LOST,
        scene=_CHECKPOINTS,
    ),
    "groups are saved before their checkpoints": _protection(
        Groups, "save", lambda _: None, Kind.LOST, scene=_FULL
    ),
}
