"""No crash loses a message that is popped, renewed, revived or partly acknowledged.

A history of pops runs over a disk that may lose power at any point. Of every state that this
leaves a broker is started and drained: whatever was promised and not acknowledged must come.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from rocketmq_broker.engine.core.outcomes import AfterSync
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.requests.pop import change_of
from rocketmq_wire.requests.topics import CreateTopic
from support.crash_files import Crash, CrashFiles, Disk
from support.engines import EngineUnderTest, queue_of
from support.faulty_files import FaultyFiles
from support.pops import GROUP, TOPIC, Popped, ack, change, pop, turn

_SEGMENT_SIZE = 64 * 1024
_STATES = 20


@dataclass
class History:
    """The messages that must and may come again, by points of the disk's journal."""

    files: CrashFiles = field(default_factory=CrashFiles)
    sent: dict[bytes, int] = field(default_factory=dict)
    acked: dict[bytes, int] = field(default_factory=dict)

    @property
    def point(self) -> int:
        return len(self.files.journal)


def play(seed: int, *, is_orderly: bool) -> History:
    """A short life of a broker, with the steps of real ones."""
    chance, history = random.Random(seed), History()
    broker = opened(history.files)
    broker.ask(CreateTopic(TopicConfig(TOPIC, 2, 2)))
    out: list[Popped] = []
    for step in range(40):
        match chance.randrange(8):
            case 0 | 1:
                bodies = [b"%d-%d" % (step, index) for index in range(chance.randrange(1, 5))]
                broker.store_messages(queue_of(TOPIC, chance.randrange(2)), *bodies)
                history.sent.update(dict.fromkeys(bodies, history.point))
            case 2 | 3:
                invisible_ms = chance.choice((500, 4_000, 30_000))
                count = chance.randrange(1, 9)
                out += pop(broker, count, invisible_ms=invisible_ms, is_orderly=is_orderly)
            case 4 | 5 if out:
                chosen = [out.pop(chance.randrange(len(out))) for _ in range(min(3, len(out)))]
                for one in chosen:
                    history.acked.setdefault(one.body, history.point)
                    acknowledge(broker, one)
            case 6 if out:
                one = out.pop(chance.randrange(len(out)))
                renew(broker, one, chance.choice((500, 20_000)))
            case _:
                turn(broker, after_ms=chance.choice((100, 1_000, 3_000, 10_000)))
                if chance.random() < 0.5:
                    broker.save_files()
    return history


def acknowledge(broker: EngineUnderTest, one: Popped) -> None:
    # In order, a late acknowledgement may name a message that was popped again since.
    with contextlib.suppress(BrokerError):
        ack(broker, one)


def renew(broker: EngineUnderTest, one: Popped, invisible_ms: int) -> None:
    # A message that is visible again cannot be renewed.
    with contextlib.suppress(BrokerError):
        change(broker, one, invisible_ms)


def opened(files: CrashFiles) -> EngineUnderTest:
    return EngineUnderTest(files, flush="sync", commit_log_file_bytes=_SEGMENT_SIZE)


def drained(crash: Crash) -> set[bytes]:
    """Every message of a broker that starts after a crash."""
    broker = opened(CrashFiles.of(crash.state))
    if broker.engine.tables.topics.get(TOPIC) is None:
        return set()
    found: set[bytes] = set()
    for _ in range(4):
        # Longer than any invisible time: messages in flight at the crash are visible again.
        turn(broker, after_ms=60_000)
        while popped := pop(broker):
            found.update(one.body for one in popped)
            for one in popped:
                ack(broker, one)
    return found


def some_crashes(files: CrashFiles, chance: random.Random) -> Iterator[Crash]:
    """Some points of the journal, and for each one choice of the writes that reached the disk."""
    points = set(chance.sample(range(len(files.journal)), min(_STATES, len(files.journal))))
    disk = Disk(files.base)
    for point, operation in enumerate(files.journal):
        if point in points:
            share = chance.choice((0.0, 0.5, 1.0))
            kept = [change for change in disk.pending if chance.random() < share]
            yield Crash(point, disk.state_with(kept))
        disk.step(operation)


@pytest.mark.parametrize("is_orderly", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_no_crash_loses_a_message(seed: int, is_orderly: bool) -> None:
    history = play(seed, is_orderly=is_orderly)
    for crash in some_crashes(history.files, random.Random(seed)):
        promised = {body for body, point in history.sent.items() if point <= crash.point}
        acked = {body for body, point in history.acked.items() if point <= crash.point}
        lost = promised - acked - drained(crash)
        assert not lost, f"point {crash.point} of {len(history.files.journal)}: {lost}"


def test_a_renewal_is_answered_once_it_is_on_the_disk() -> None:
    broker = opened(CrashFiles())
    broker.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
    broker.store_messages(queue_of(TOPIC), b"x")
    (one,) = pop(broker)
    outcome = broker.outcome(change_of(GROUP, TOPIC, one.handle.text(), 1_000))
    assert isinstance(outcome, AfterSync)
    broker.engine.pops.revival.advance()
    # The old pop is finished, but the checkpoint that replaces it is not durable.
    assert broker.engine.tables.committed.get(GROUP, queue_of(TOPIC)) == 0
    broker.store.sync()
    broker.engine.pops.revival.advance()
    assert broker.engine.tables.committed.get(GROUP, queue_of(TOPIC)) == 1


def test_the_messages_of_a_group_that_a_full_disk_refused_come_again() -> None:
    files = FaultyFiles()
    broker = opened(files)
    broker.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
    broker.store_messages(queue_of(TOPIC), b"x")
    files.is_full = True
    assert [one.body for one in pop(broker, invisible_ms=4_000)] == [b"x"]
    files.is_full = False
    # The checkpoint of the pop is written, and the group before it.
    turn(broker, after_ms=3_500)
    broker.save_files()
    assert drained(Crash(0, files.state())) == {b"x"}
