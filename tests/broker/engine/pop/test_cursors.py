"""The first pop of a group in a queue whose first messages expired."""

from __future__ import annotations

import pytest

from rocketmq_broker.storage.disk.files import Files
from rocketmq_broker.storage.errors import StorageError
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.requests.offsets import CommitOffset, GetCommittedOffset
from rocketmq_wire.requests.pop import InitMode
from rocketmq_wire.requests.topics import CreateTopic
from support.engines import EngineUnderTest, queue_of
from support.faulty_files import FaultyFiles
from support.pops import GROUP, TOPIC, ack, pop, turn


def with_expired_messages(files: Files | None = None, *, flush: str = "memory") -> EngineUnderTest:
    """A broker with a queue whose first messages expired."""
    broker = EngineUnderTest(files, commit_log_file_bytes=65_536, flush=flush)
    broker.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
    for number in range(8):
        broker.store_messages(queue_of(TOPIC), b"%d" % number * 15_000)
    broker.store.clean(broker.now_ms + 100 * 3_600_000)
    bounds = broker.store.bounds(TOPIC, 0)
    assert 0 < bounds.start < bounds.end - 1
    return broker


class TestBeginnings:
    @pytest.fixture
    def broker(self):
        return with_expired_messages()

    def test_the_oldest_is_the_oldest_that_is_there(self, broker):
        bounds = broker.store.bounds(TOPIC, 0)
        popped = pop(broker, init_mode=InitMode.MIN)
        assert [one.handle.offset for one in popped] == list(range(bounds.start, bounds.end))

    def test_the_newest_of_an_old_queue_is_its_last_message(self, broker):
        end = broker.store.bounds(TOPIC, 0).end
        assert [one.handle.offset for one in pop(broker, init_mode=InitMode.MAX)] == [end - 1]
        assert broker.ask(GetCommittedOffset(GROUP, queue_of(TOPIC))).value == end - 1

    @pytest.mark.parametrize("is_orderly", [False, True])
    def test_a_new_group_keeps_what_it_popped_at_the_newest_over_a_crash(self, is_orderly):
        files = FaultyFiles()
        broker = with_expired_messages(files, flush="sync")
        (newest,) = pop(broker, init_mode=InitMode.MAX, is_orderly=is_orderly)
        broker.store_messages(queue_of(TOPIC), b"later", b"last")
        for state in files.power_cuts():
            after = EngineUnderTest(FaultyFiles.of(state), flush="sync")
            popped = pop(after, init_mode=InitMode.MAX, is_orderly=is_orderly)
            assert [one.body for one in popped] == [newest.body, b"later", b"last"]

    def test_a_new_group_gets_nothing_at_the_newest_that_a_crash_would_take_away(self):
        files = FaultyFiles()
        broker = with_expired_messages(files, flush="sync")
        broker.engine.tables.groups.ensure(GROUP)
        broker.engine.tables.groups.ensure(GROUP)
        files.refuse(1)
        with pytest.raises(StorageError, match="consumerOffset"):
            pop(broker, init_mode=InitMode.MAX, invisible_ms=1_000)
        broker.now_ms += 2_000
        turn(broker, after_ms=0)
        assert pop(broker, init_mode=InitMode.MAX)

    def test_in_an_expired_queue_a_group_waits_for_new_messages(self, broker):
        broker.ask(CreateTopic(TopicConfig("bills", 1, 1)))
        broker.store_messages(queue_of("bills"), b"x" * 60_000)
        broker.store.clean(broker.now_ms + 100 * 3_600_000)
        bounds = broker.store.bounds(TOPIC, 0)
        assert bounds.start == bounds.end == 8
        for group, init_mode in (("oldest", InitMode.MIN), ("newest", InitMode.MAX)):
            assert pop(broker, group=group, init_mode=init_mode) == []
            assert broker.ask(GetCommittedOffset(group, queue_of(TOPIC))).value == 8
        broker.store_messages(queue_of(TOPIC), b"new")
        for group, init_mode in (("oldest", InitMode.MIN), ("newest", InitMode.MAX)):
            (popped,) = pop(broker, group=group, init_mode=init_mode)
            assert popped.body == b"new"

    def test_a_committed_offset_out_of_bounds_is_corrected_and_logged(self, broker, caplog):
        broker.engine.tables.groups.ensure("old")
        broker.ask(CommitOffset("old", queue_of(TOPIC), 1))
        start = broker.store.bounds(TOPIC, 0).start
        assert pop(broker, group="old")[0].handle.start == start > 1
        assert [f"group=old: pops continue at {start}" in line for line in caplog.messages] == [
            True
        ]

    def test_messages_that_expire_unpopped_are_behind_the_group(self, broker):
        (last,) = pop(broker, init_mode=InitMode.MAX)
        ack(broker, last)
        for number in range(8):
            broker.store_messages(queue_of(TOPIC), b"%d" % number * 15_000)
        broker.store.clean(broker.now_ms + 100 * 3_600_000)
        start = broker.store.bounds(TOPIC, 0).start
        assert start > last.handle.offset + 1
        assert pop(broker)[0].handle.offset == start
