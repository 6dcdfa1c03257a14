"""Held pops: new messages and other pops wake them, and a full server refuses them."""

from __future__ import annotations

import asyncio

from rocketmq_broker.engine.core.outcomes import HoldPop
from rocketmq_broker.servers.shell.held_requests import PopWaiters
from rocketmq_broker.storage.settings import Arrival
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.requests.pop import (
    ANY_QUEUE,
    AwaitMessages,
    AwaitMessagesReply,
    PopMessages,
    PopStatus,
)
from rocketmq_wire.requests.topics import CreateTopic
from support.engines import EngineUnderTest, queue_of
from support.pops import GROUP, TOPIC, held_pop, messages_of


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
