"""Assignment of queues, held pops and their waking, and the first pop of a new group."""

from __future__ import annotations

import asyncio

import pytest

from rocketmq_broker.engine.core.outcomes import HoldPop
from rocketmq_broker.engine.pop.assignment import (
    allocate_averagely,
    allocate_by_circle,
    share_queues,
)
from rocketmq_broker.servers.shell.pop_waiters import PopWaiters
from rocketmq_broker.storage.settings import Arrival
from rocketmq_wire.model import ConsumerInfo, TopicConfig
from rocketmq_wire.requests.assignment import ConsumeMode, QueryAssignment, SetConsumeMode
from rocketmq_wire.requests.groups import Heartbeat
from rocketmq_wire.requests.offsets import GetCommittedOffset
from rocketmq_wire.requests.pop import (
    ANY_QUEUE,
    AwaitMessages,
    AwaitMessagesReply,
    InitMode,
    PopMessages,
    PopStatus,
)
from rocketmq_wire.requests.topics import CreateTopic
from support.engines import EngineUnderTest, queue_of
from support.pops import GROUP, TOPIC, ack, held_pop, messages_of, pop

QUEUES = [queue_of(TOPIC, index) for index in range(8)]


def indices(queues):
    return [queue.index for queue in queues]


class TestSharedQueues:
    @pytest.mark.parametrize("shared", [-1, 0, 3, 4, 99])
    def test_every_member_pops_every_queue_if_all_share_or_no_number_is_set(self, shared):
        for index in range(4):
            assert set(indices(share_queues(QUEUES, index, 4, shared, allocate_averagely))) == {
                ANY_QUEUE
            }

    @pytest.mark.parametrize(
        ("allocate", "shared", "expected"),
        [
            (allocate_averagely, 1, [[0, 1, 2, 3], [2, 3, 4, 5], [4, 5, 6, 7], [6, 7, 0, 1]]),
            (
                allocate_averagely,
                2,
                [[0, 1, 2, 3, 4, 5], [2, 3, 4, 5, 6, 7], [4, 5, 6, 7, 0, 1], [6, 7, 0, 1, 2, 3]],
            ),
            (allocate_by_circle, 1, [[0, 4, 1, 5], [1, 5, 2, 6], [2, 6, 3, 7], [3, 7, 0, 4]]),
        ],
    )
    def test_a_member_pops_its_own_queues_and_those_of_the_members_behind_it(
        self, allocate, shared, expected
    ):
        found = [indices(share_queues(QUEUES, index, 4, shared, allocate)) for index in range(4)]
        assert found == expected

    def test_more_members_than_queues_pop_one_each(self):
        found = [indices(share_queues(QUEUES[:3], i, 7, 2, allocate_averagely)) for i in range(7)]
        assert found == [[0], [1], [2], [0], [1], [2], [0]]
        assert share_queues([], 1, 7, 2, allocate_averagely) == []

    def test_every_queue_is_assigned_for_every_number_of_shares(self):
        for count in range(1, 12):
            for members in range(1, 8):
                for shared in range(-1, members + 1):
                    queues = [queue_of(TOPIC, index) for index in range(count)]
                    found = set()
                    for index in range(members):
                        found.update(
                            indices(
                                share_queues(queues, index, members, shared, allocate_by_circle)
                            )
                        )
                    assert found == {ANY_QUEUE} or found == set(range(count))

    def test_the_broker_shares_as_the_group_is_set(self):
        broker = EngineUnderTest()
        broker.ask(CreateTopic(TopicConfig(TOPIC, 8, 8)))
        info = ConsumerInfo(GROUP, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST")
        for number in range(4):
            broker.ask(Heartbeat(f"c@{number}", (), (info,)))

        def assigned(number):
            reply = broker.ask(QueryAssignment(GROUP, TOPIC, f"c@{number}"))
            assert {one.mode for one in reply.assignments} == {ConsumeMode.POP}
            return [one.queue.index for one in reply.assignments]

        broker.ask(SetConsumeMode(GROUP, TOPIC, ConsumeMode.POP, 1))
        assert [assigned(number) for number in range(4)] == [
            [0, 1, 2, 3],
            [2, 3, 4, 5],
            [4, 5, 6, 7],
            [0, 1, 6, 7],
        ]
        broker.ask(SetConsumeMode(GROUP, TOPIC, ConsumeMode.POP, 3))
        assert [assigned(number) for number in range(4)] == [[ANY_QUEUE]] * 4


class Waiting:
    """Held pops of an engine, and their replies."""

    def __init__(self):
        self.broker = EngineUnderTest()
        self.broker.ask(CreateTopic(TopicConfig(TOPIC, 2, 2)))
        self.answers = {}
        self.waiters = PopWaiters(
            self.broker.engine.pops,
            lambda outcome, done: done(outcome.reply),
            lambda: self.broker.now_ms,
        )

    def wait(self, name, queue=ANY_QUEUE, count=2, group=GROUP):
        request = PopMessages(
            *(group, queue_of(TOPIC, queue), count, 60_000),
            poll_ms=10_000,
            born_ms=self.broker.now_ms,
        )
        hold = held_pop(self.broker, request)
        return self.waiters.hold(hold, 1, lambda reply: self.answers.__setitem__(name, reply))

    def send(self, *bodies, queue=0):
        self.broker.store_messages(queue_of(TOPIC, queue), *bodies)
        end = self.broker.store.bounds(TOPIC, queue).end
        self.waiters.arrived([Arrival(TOPIC, queue, end)])

    def bodies(self):
        """The replies by pop, in the order of answering."""
        return {
            name: [one.body for one in messages_of(reply)] for name, reply in self.answers.items()
        }

    def forget(self):
        self.waiters.forget_peer(1)


def waiting(scenario):
    """Run a scenario with held pops on a loop; their timers end with it."""

    async def run():
        world = Waiting()
        try:
            return scenario(world)
        finally:
            world.forget()

    return asyncio.run(run())


class TestWaiters:
    def test_messages_left_by_a_pop_wake_the_next_one(self):
        def scenario(world):
            for name in "abcd":
                world.wait(name)
            world.send(b"1", b"2", b"3", b"4", b"5")
            return world.bodies()

        assert waiting(scenario) == {"a": [b"1", b"2"], "b": [b"3", b"4"], "c": [b"5"]}

    def test_one_arrival_wakes_one_of_each_kind_of_wait(self):
        def scenario(world):
            for name in "ab":
                world.wait(name, count=1)
                world.wait(f"{name} of 0", queue=0, count=1)
                world.wait(f"{name} of 1", queue=1, count=1)
                world.wait(f"{name} of others", count=1, group="others")
            world.send(b"1")
            return world.bodies()

        # One pop of a group gets the message; the others that were woken wait on.
        assert waiting(scenario) == {"a": [b"1"], "a of others": [b"1"]}

    def test_a_queue_that_is_named_wakes_who_named_it(self):
        def scenario(world):
            for name in "ab":
                world.wait(f"{name} of 1", queue=1)
                world.wait(f"{name} of 0", queue=0)
            world.send(b"1", b"2", b"3", queue=1)
            return world.bodies()

        assert waiting(scenario) == {"a of 1": [b"1", b"2"], "b of 1": [b"3"]}

    def test_the_rest_that_an_answer_at_once_leaves_wakes_the_next(self):
        def scenario(world):
            world.wait("a")
            # This pop takes the new message before a held one is woken.
            world.broker.store_messages(queue_of(TOPIC), b"1", b"2", b"3")
            request = PopMessages(GROUP, queue_of(TOPIC, ANY_QUEUE), 1, 60_000)
            outcome = world.broker.outcome(request)
            world.waiters.answered(request, outcome)
            return [one.body for one in messages_of(outcome.reply)], world.bodies()

        assert waiting(scenario) == ([b"1"], {"a": [b"2", b"3"]})

    def test_after_1024_waiting_pops_the_next_is_answered_full(self):
        def scenario(world):
            held = [world.wait(number, queue=0) for number in range(1_024)]
            assert world.answers == {}
            world.wait("too many", queue=0)
            world.wait("another queue", queue=1)
            world.wait("another group", queue=0, group="others")
            refused = {name: reply.status for name, reply in world.answers.items()}
            world.waiters.remove(held[0])
            world.wait("one has gone", queue=0)
            waiting_count = world.waiters.count_of(GROUP, queue_of(TOPIC, 0))
            return refused, len(world.answers), waiting_count

        assert waiting(scenario) == ({"too many": PopStatus.POLLING_FULL}, 1, 1_024)

    def test_a_notification_request_is_answered_full_too(self):
        def scenario(world):
            request = AwaitMessages(GROUP, queue_of(TOPIC, 0), poll_ms=10_000)
            hold = world.broker.outcome(request)
            assert isinstance(hold, HoldPop)
            for number in range(1_025):
                world.waiters.hold(
                    hold, 1, lambda reply, n=number: world.answers.update({n: reply})
                )
            return world.answers

        assert waiting(scenario) == {
            1_024: AwaitMessagesReply(has_message=False, is_polling_full=True)
        }


class TestBeginnings:
    @pytest.fixture
    def broker(self):
        """A queue whose first messages expired."""
        broker = EngineUnderTest(commit_log_file_bytes=65_536)
        broker.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
        for number in range(8):
            broker.store_messages(queue_of(TOPIC), b"%d" % number * 15_000)
        broker.store.clean(broker.now_ms + 100 * 3_600_000)
        bounds = broker.store.bounds(TOPIC, 0)
        assert 0 < bounds.start < bounds.end - 1
        return broker

    def test_the_oldest_is_the_oldest_that_is_there(self, broker):
        bounds = broker.store.bounds(TOPIC, 0)
        popped = pop(broker, init_mode=InitMode.MIN)
        assert [one.handle.offset for one in popped] == list(range(bounds.start, bounds.end))

    def test_the_newest_of_an_old_queue_is_its_last_message(self, broker):
        end = broker.store.bounds(TOPIC, 0).end
        assert [one.handle.offset for one in pop(broker, init_mode=InitMode.MAX)] == [end - 1]
        assert broker.ask(GetCommittedOffset(GROUP, queue_of(TOPIC))).value == end - 1

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

    def test_messages_that_expire_unpopped_are_behind_the_group(self, broker):
        (last,) = pop(broker, init_mode=InitMode.MAX)
        ack(broker, last)
        for number in range(8):
            broker.store_messages(queue_of(TOPIC), b"%d" % number * 15_000)
        broker.store.clean(broker.now_ms + 100 * 3_600_000)
        start = broker.store.bounds(TOPIC, 0).start
        assert start > last.handle.offset + 1
        assert pop(broker)[0].handle.offset == start
