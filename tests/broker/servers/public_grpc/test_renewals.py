"""Leases of the public service: messages that an aborted receive hands back, and renewals."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

import pytest

from rocketmq_broker.servers.public_grpc import receiving
from rocketmq_broker.servers.public_grpc.caller import Caller, Service
from rocketmq_broker.servers.public_grpc.lookup import Lookup
from rocketmq_broker.servers.public_grpc.renewals import Renewals
from rocketmq_broker.servers.public_grpc.sessions import Sessions
from rocketmq_broker.servers.shell.clock import BrokerClock
from rocketmq_broker.servers.shell.shell import EngineShell
from rocketmq_broker.storage.store import Store
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.grpc.public.messages import put_duration
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.records.handles import ReceiptHandle
from rocketmq_wire.requests.topics import CreateTopic
from rocketmq_wire.stubs import public
from support import public_serving
from support.engines import BROKER, PEER, EngineUnderTest, queue_of
from support.pops import GROUP, TOPIC, pop, turn
from support.public_peer import outgoing, resource
from support.public_peer import queue_of as public_queue

broker, tool, topic = public_serving.broker, public_serving.tool, public_serving.topic
peer, consumer = public_serving.peer, public_serving.consumer

CLIENT = "c"
BODIES = [b"%d" % number for number in range(6)]


class NoClients:
    """A registry that asks no client."""

    def listen(self, peer, *, on_members_changed, on_check, ask_client):
        pass

    def forget_peer(self, peer):
        pass


class Receiving:
    """Receives of one client, asked of an engine with a clock of its own."""

    def __init__(self):
        self.engine = EngineUnderTest()
        self.engine.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
        pop(self.engine)
        self.engine.store_messages(queue_of(TOPIC), *BODIES)
        sessions = Sessions(cast(Any, NoClients()), expiry_seconds=9, time=float)
        settings = public.message_class("Settings")(client_type=3)
        put_duration(settings.subscription.long_polling_timeout, 5_000)
        sessions.begin_stream(sessions.put(CLIENT, PEER, settings))
        self.renewals = Renewals()
        lookup = Lookup(self.engine.engine, BROKER, "")
        self.shared = Service(cast(Any, self), None, lookup, sessions, self.renewals)

    async def ask(self, request, peer):
        del peer
        await asyncio.sleep(0)
        return self.engine.ask(request)

    @property
    def caller(self):
        return Caller(CLIENT, PEER, {}, None, self.engine.now_ms, None, self.shared)

    def receive(self, **fields):
        request = public.message_class("ReceiveMessageRequest")(
            group=resource(GROUP), message_queue=public_queue(TOPIC, -1), batch_size=32, **fields
        )
        if not request.auto_renew:
            put_duration(request.invisible_duration, 600_000)
        return receiving.receive(self.caller, request)

    async def ack(self, message):
        entry = public.message_class("AckMessageEntry")(
            message_id="M", receipt_handle=message.system_properties.receipt_handle
        )
        request = public.message_class("AckMessageRequest")(
            group=resource(GROUP), topic=resource(TOPIC), entries=[entry]
        )
        reply = await receiving.ack(self.caller, request)
        assert reply.status.code == PublicCode.OK

    async def bodies_after(self, milliseconds):
        """The messages of a pop after the running work and some more time."""
        for _ in range(50):
            await asyncio.sleep(0)
        turn(self.engine, after_ms=milliseconds)
        return sorted(popped.body for popped in pop(self.engine))


@pytest.mark.parametrize("fields", [{"auto_renew": True}, {}], ids=["renewed", "timed"])
class TestAbortedReceives:
    def test_an_answer_that_is_not_whole_comes_again_at_once_and_is_not_renewed(self, fields):
        async def run():
            service = Receiving()
            frames = service.receive(**fields)
            assert (await anext(frames)).status.code == PublicCode.OK
            assert [(await anext(frames)).message.body for _ in range(3)] == BODIES[:3]
            await frames.aclose()
            return await service.bodies_after(1_500), len(service.renewals)

        assert asyncio.run(run()) == (BODIES, 0)

    def test_a_client_that_hears_the_status_alone_costs_nobody_anything(self, fields):
        async def run():
            service = Receiving()
            frames = service.receive(**fields)
            await anext(frames)
            with pytest.raises(ConnectionError):
                await frames.athrow(ConnectionError())
            assert await service.bodies_after(900) == []
            return await service.bodies_after(600), len(service.renewals)

        assert asyncio.run(run()) == (BODIES, 0)

    def test_messages_that_a_client_decided_about_are_not_handed_back(self, fields):
        async def run():
            service = Receiving()
            frames = service.receive(**fields)
            await anext(frames)
            await service.ack((await anext(frames)).message)
            await frames.aclose()
            return await service.bodies_after(1_500), len(service.renewals)

        assert asyncio.run(run()) == (BODIES[1:], 0)

    def test_a_whole_answer_gives_nothing_back(self, fields):
        async def run():
            service = Receiving()
            count = len([frame async for frame in service.receive(**fields)])
            return count, await service.bodies_after(30_000), len(service.renewals)

        assert asyncio.run(run()) == (8, [], 6 if fields else 0)


def test_a_cancelled_call_gives_its_messages_back(peer, consumer, topic):
    # Far more than a connection takes before its reader does.
    bodies = {b"%d" % number * 2_000_000 for number in range(6)}
    for body in bodies:
        assert peer.send(outgoing(topic, body)).status.code == PublicCode.OK
    call = consumer.begin(
        "ReceiveMessage",
        group=resource(f"g-{topic}"),
        message_queue=public_queue(topic, -1),
        batch_size=16,
        auto_renew=True,
    )
    first = public.parse("ReceiveMessageResponse", next(call))
    assert first.status.code == PublicCode.OK
    call.cancel()
    came: set[bytes] = set()
    while came != bodies:
        # Each waits for up to 5 s; the time after which all would come again is a minute.
        code, messages = consumer.receive(
            f"g-{topic}",
            topic,
            auto_renew=True,
            long_polling_timeout=public_serving.duration(5_000),
        )
        assert code == PublicCode.OK, "the messages stay hidden"
        came.update(message.body for message in messages)


class Syncs:
    """A store that counts its syncs, the first of which waits for the test."""

    def __init__(self, store):
        self._store, self.count, self.gate = store, 0, threading.Event()

    def __getattr__(self, name):
        return getattr(self._store, name)

    def sync(self):
        self.count += 1
        assert self.gate.wait(timeout=60)
        return self._store.sync()


class TestRenewals:
    def test_many_leases_are_renewed_in_few_syncs(self):
        async def run():
            engine = EngineUnderTest(flush="sync")
            engine.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
            engine.now_ms = BrokerClock().now_ms()
            pop(engine)
            engine.store_messages(queue_of(TOPIC), *[b"%d" % number for number in range(500)])
            renewals = Renewals()
            while found := pop(engine):
                for popped in found:
                    renewals.add(CLIENT, GROUP, TOPIC, popped.handle.text())
            store = Syncs(engine.store)
            shell = EngineShell(engine.engine, cast(Store, store), engine.config)
            await shell.start()
            try:
                renewing = asyncio.ensure_future(
                    renewals.renew_due(
                        lambda request: shell.ask(request, PEER),
                        lambda _: True,
                        engine.now_ms + 59_000,
                    )
                )
                await asyncio.sleep(0)
                store.gate.set()
                await asyncio.wait_for(renewing, timeout=60)
                return len(renewals), store.count
            finally:
                store.gate.set()
                await shell.stop_serving()
                await shell.close()

        leases, syncs = asyncio.run(run())
        assert leases == 500
        assert syncs <= 10

    def test_a_handle_that_is_being_renewed_is_the_new_one_once_that_is_over(self):
        async def run():
            engine = EngineUnderTest()
            engine.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
            pop(engine)
            engine.store_messages(queue_of(TOPIC), b"a")
            (popped,) = pop(engine)
            renewals, granted = Renewals(), asyncio.Event()
            renewals.add(CLIENT, GROUP, TOPIC, popped.handle.text())

            async def renew(request):
                reply = engine.ask(request)
                await granted.wait()
                return reply

            renewing = asyncio.ensure_future(
                renewals.renew_due(renew, lambda _: True, engine.now_ms + 59_000)
            )
            await asyncio.sleep(0)
            asked = asyncio.ensure_future(renewals.current(CLIENT, GROUP, popped.handle.text()))
            await asyncio.sleep(0)
            is_early = asked.done()
            granted.set()
            await renewing
            return is_early, ReceiptHandle.parse(await asked).pop_ms > popped.handle.pop_ms

        assert asyncio.run(run()) == (False, True)
