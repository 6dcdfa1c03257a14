"""Every change of a file or directory is refused once, in every kind of work of a broker.

After each refusal the broker continues, its disk loses power, and a start follows. Every
acknowledged message is there, at its offset; nothing that was deleted comes back; what was refused
can be done again.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import pytest

from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.settings import FlushMode, StoreConfig
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import QueueId, TopicConfig
from rocketmq_wire.requests.messages import SendMessage
from rocketmq_wire.requests.offsets import CommitOffset, GetCommittedOffset
from rocketmq_wire.requests.topics import CreateTopic, DeleteTopic
from support.crash_files import State
from support.engines import NOW_MS, STORE_HOST, EngineUnderTest, queue_of
from support.faulty_files import FaultyFiles
from support.storage_blocks import block_of

GROUP = "readers"
QUEUES = (queue_of("orders"), queue_of("orders", 1), queue_of("bills"))
TINY = StoreConfig(
    FlushMode.SYNC,
    STORE_HOST,
    segment_size=2048,
    queue_file_entries=4,
    index_slot_count=8,
    index_entry_count=10,
    checksum_range_size=500,
    retention_ms=1_000,
)


@dataclass
class Life:
    """A broker on a faulty disk, and what it has promised."""

    files: FaultyFiles
    acknowledged: dict[QueueId, list[bytes]] = field(default_factory=dict)
    sent: set[bytes] = field(default_factory=set)
    may_expire: bool = False
    number: Iterator[int] = field(default_factory=itertools.count)

    def open(self) -> EngineUnderTest:
        self.files.unlock_all()
        self.broker = EngineUnderTest(self.files, store_config=TINY, flush="sync")
        return self.broker

    def send(self, queue: QueueId, size: int = 20) -> None:
        body = b"%06d" % next(self.number) * (size // 6)
        self.sent.add(body)
        self.broker.ask(SendMessage("p", queue, 1, body))
        self.acknowledged.setdefault(queue, []).append(body)

    def delete(self, topic: str) -> None:
        self.broker.ask(DeleteTopic(topic))
        for queue in [queue for queue in self.acknowledged if queue.topic == topic]:
            del self.acknowledged[queue]

    def commit(self, group: str) -> None:
        self.broker.engine.tables.groups.ensure(group)
        for queue in QUEUES:
            self.broker.ask(CommitOffset(group, queue, 2))
        self.broker.save_files()

    def check(self, state: State, where: str) -> None:
        """A start on this disk shows everything that was acknowledged, and nothing else."""
        after = EngineUnderTest(FaultyFiles.of(state), store_config=TINY, flush="sync")
        for queue, bodies in self.acknowledged.items():
            assert after.engine.tables.topics.get(queue.topic) is not None, where
            bounds = after.store.bounds(queue.topic, queue.index)
            assert self.may_expire or bounds.start == 0, where
            found = [message.body for message in after.messages(queue, bounds.start)]
            kept = [body for body in found if body in bodies]
            assert kept == bodies[len(bodies) - len(kept) :], where
            assert self.may_expire or len(kept) == len(bodies), where
            # A send without a good answer may be stored, too.
            assert self.sent.issuperset(found), where
            message = SendMessage("p", queue, 1, b"next")
            assert after.ask(message).start == bounds.end, where


@cache
def first_life() -> tuple[State, dict[QueueId, list[bytes]]]:
    """A disk with several files of the log, one checkpoint, and a tail behind it."""
    life = Life(FaultyFiles())
    broker = life.open()
    broker.ask(CreateTopic(TopicConfig("orders", 2, 2)))
    broker.ask(CreateTopic(TopicConfig("bills", 1, 1)))
    for _ in range(4):
        for queue in QUEUES:
            life.send(queue, 120)
    life.commit(GROUP)
    broker.store.checkpoint()
    for queue in QUEUES:
        life.send(queue)
    return life.files.state(), life.acknowledged


def create(life: Life) -> None:
    life.broker.ask(CreateTopic(TopicConfig("letters", 1, 1)))


def widen(life: Life) -> None:
    life.broker.ask(CreateTopic(TopicConfig("orders", 3, 3)))
    life.send(queue_of("orders", 2))


def delete(life: Life) -> None:
    life.delete("orders")


def recreate(life: Life) -> None:
    life.delete("orders")
    life.broker.ask(CreateTopic(TopicConfig("orders", 2, 2)))
    assert_no_offsets(life.broker)
    life.send(QUEUES[0])


def commit(life: Life) -> None:
    life.commit(GROUP)
    life.commit("another")


def send(life: Life) -> None:
    for _ in range(4):
        life.send(QUEUES[0], 300)


def send_together(life: Life) -> None:
    store = life.broker.store
    bodies = [b"together-%d-%d" % (next(life.number), number) for number in range(4)]
    life.sent.update(bodies)
    block = block_of("orders", *bodies)
    while store.append_parts("orders", block, [(0, 2), (1, 2)], NOW_MS) is None:
        life.send(QUEUES[2], 600)
    store.sync()
    life.acknowledged[QUEUES[0]] += bodies[:2]
    life.acknowledged[QUEUES[1]] += bodies[2:]
    store.publish()


def checkpoint(life: Life) -> None:
    while life.broker.store.index_step():
        pass
    life.broker.store.checkpoint()


def expire(life: Life) -> None:
    life.may_expire = True
    life.broker.store.clean(NOW_MS + 10 * TINY.retention_ms)


def make_room(life: Life) -> None:
    life.may_expire = True
    life.files.used_ratio = 0.99
    life.broker.store.clean(NOW_MS)


def close(life: Life) -> None:
    life.broker.store.close()


def start(life: Life) -> None:
    life.open()


STEPS: dict[str, Callable[[Life], None]] = {
    step.__name__: step
    for step in (
        *(create, widen, delete, recreate, commit, send, send_together),
        *(checkpoint, expire, make_room, close, start),
    )
}


def assert_no_offsets(broker: EngineUnderTest) -> None:
    with pytest.raises(BrokerError, match="no committed offset"):
        broker.ask(GetCommittedOffset(GROUP, QUEUES[0]))


def proceed(life: Life, *steps: Callable[[Life], None]) -> None:
    """Take steps; a broker that takes no writes after a failed sync is started again."""
    try:
        take(life, steps)
    except StorageError:
        life.open()
        take(life, steps)


def take(life: Life, steps: Sequence[Callable[[Life], None]]) -> None:
    life.broker.store.publish()
    for step in steps:
        step(life)


def use(life: Life) -> None:
    """Send to every topic that is there, and save the table of topics."""
    for queue in QUEUES:
        if life.broker.engine.tables.topics.get(queue.topic) is not None:
            life.send(queue)
    life.broker.ask(CreateTopic(TopicConfig(f"topic-{next(life.number)}", 1, 1)))


def create_again(life: Life) -> None:
    """Create the topics that are not there: they have no offsets of deleted ones."""
    for queue in QUEUES:
        if life.broker.engine.tables.topics.get(queue.topic) is None:
            assert queue not in life.acknowledged
            life.broker.ask(CreateTopic(TopicConfig(queue.topic, 2, 2)))
            assert_no_offsets(life.broker)


def broken_lives(step: Callable[[Life], None], *, is_half_done: bool) -> Iterator[tuple[Life, str]]:
    """One life for each change that the step makes, which the disk refused."""
    state, acknowledged = first_life()
    for count in itertools.count(1):
        bodies = {queue: [*each] for queue, each in acknowledged.items()}
        sent = {body for each in bodies.values() for body in each}
        life = Life(FaultyFiles.of(state), bodies, sent)
        life.number = itertools.count(1000)
        if step is not start:
            life.open()
        life.files.refuse(count, is_half_done=is_half_done)
        with contextlib.suppress(StorageError, BrokerError):
            step(life)
        fault = life.files.fault
        life.files.refuse(0)
        life.files.used_ratio = 0.0
        if fault is None:
            assert count > 1
            return
        yield life, f"{step.__name__}: {count}. {fault}"


@pytest.mark.parametrize("is_half_done", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_a_refused_change_of_the_disk_loses_nothing(name: str, is_half_done: bool) -> None:
    step = STEPS[name]
    for life, where in broken_lives(step, is_half_done=is_half_done):
        for state in life.files.power_cuts():
            life.check(state, f"{where}, crash")
        if step is start:
            life.open()
        if step is close:
            continue
        proceed(life, use)
        for state in life.files.power_cuts():
            life.check(state, f"{where}, crash after more work")
        proceed(life, *(() if step is start else (step,)), create_again, use)
        life.check(life.files.state(), f"{where}, crash after the second attempt")
