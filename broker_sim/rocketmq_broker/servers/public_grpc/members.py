"""The clients of groups: settings over telemetry, heartbeats, terminations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from rocketmq_broker.servers.public_grpc.caller import CLIENT_VERSION, Caller, ok_reply
from rocketmq_broker.servers.public_grpc.limits import PublicLimits
from rocketmq_broker.servers.public_grpc.lookup import Lookup
from rocketmq_broker.servers.public_grpc.receiving import subscription_of
from rocketmq_broker.servers.public_grpc.renewals import Renewals
from rocketmq_broker.servers.public_grpc.routing import group_named, topic_named
from rocketmq_broker.servers.public_grpc.sessions import Session, Sessions
from rocketmq_broker.servers.public_grpc.settings import PRODUCER, PUSH, decided_settings
from rocketmq_wire.codes import CLIENT_VERSION as CLIENT_VERSION_NUMBER
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import PublicRefusal, RocketMQError
from rocketmq_wire.grpc.public.status import make_status, status_of
from rocketmq_wire.model import ConsumerInfo
from rocketmq_wire.requests.groups import Heartbeat, UnregisterClient
from rocketmq_wire.stubs import public

Write = Callable[[bytes], Awaitable[None]]
_LANGUAGES: Final = {
    1: "JAVA",
    2: "CPP",
    3: "DOTNET",
    4: "GO",
    5: "RUST",
    6: "PYTHON",
    7: "PHP",
    8: "NODE_JS",
}
"""`Language` in the protocol -> the names of the TCP protocol, which tools show."""


class Members:
    """Telemetry, Heartbeat, NotifyClientTermination."""

    def __init__(
        self, lookup: Lookup, limits: PublicLimits, sessions: Sessions, renewals: Renewals
    ) -> None:
        self._lookup = lookup
        self._limits = limits
        self._sessions = sessions
        self._renewals = renewals

    # --- telemetry ----------------------------------------------------------------------------

    async def converse(self, caller: Caller, incoming: AsyncIterator[bytes], write: Write) -> None:
        """Read a client's commands and write the broker's, until either side ends the stream."""
        session: Session | None = None
        queue: asyncio.Queue[Any] | None = None
        writing: asyncio.Task[None] | None = None
        reading = asyncio.ensure_future(anext(incoming, None))
        try:
            while True:
                waiting: list[asyncio.Future[Any]] = [reading]
                if writing is not None:
                    waiting.append(writing)
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if writing is not None and writing.done():
                    return
                content = reading.result()
                if content is None:
                    return
                command = public.parse("TelemetryCommand", content)
                if command.WhichOneof("command") == "settings":
                    answer = await self._answer_settings(caller, command.settings)
                    session = self._sessions.find(caller.client_id)
                    if session is None:
                        await write(bytes(answer.SerializeToString()))
                    elif queue is None:
                        queue = self._sessions.begin_stream(session)
                        writing = asyncio.ensure_future(_write_all(queue, write))
                    if session is not None:
                        session.send(answer)
                elif session is not None and command.WhichOneof("command") is not None:
                    self._sessions.answered(session, command)
                reading = asyncio.ensure_future(anext(incoming, None))
        finally:
            reading.cancel()
            if writing is not None:
                writing.cancel()
            if session is not None and queue is not None:
                self._sessions.end_stream(session, queue)

    async def _answer_settings(self, caller: Caller, settings: Any) -> Any:
        command = public.message_class("TelemetryCommand")()
        try:
            self._check_names(settings)
            decided = decided_settings(settings, self._lookup, self._limits)
            beat = _heartbeat_of(caller, decided)
            caller.check_right(beat)
            session = self._sessions.put(caller.client_id, caller.peer, decided)
            # The client is online from now on, and not only from its first heartbeat.
            await caller.asking.ask(beat, session.peer)
        except RocketMQError as error:
            command.status.CopyFrom(status_of(error))
            return command
        command.status.CopyFrom(make_status(PublicCode.OK))
        command.settings.CopyFrom(decided)
        return command

    def _check_names(self, settings: Any) -> None:
        for topic in settings.publishing.topics:
            topic_named(topic)
        if settings.HasField("subscription"):
            if settings.subscription.HasField("group"):
                group_named(settings.subscription.group)
            for entry in settings.subscription.subscriptions:
                topic_named(entry.topic)

    # --- heartbeats ---------------------------------------------------------------------------

    async def heartbeat(self, caller: Caller, request: Any) -> Any:
        """Renew the client's membership in its groups."""
        del request
        session = self._require(caller)
        beat = _heartbeat_of(caller, session.settings)
        caller.check_right(beat)
        await caller.asking.ask(beat, session.peer)
        return ok_reply("Heartbeat")

    async def terminate(self, caller: Caller, request: Any) -> Any:
        """Remove a stopping client from its groups at once."""
        del request
        session = self._require(caller)
        beat = _heartbeat_of(caller, session.settings)
        for group in beat.producer_groups:
            leave = UnregisterClient(caller.client_id, producer_group=group)
            await caller.asking.ask(leave, session.peer)
        for consumer in beat.consumers:
            leave = UnregisterClient(caller.client_id, consumer_group=consumer.group)
            await caller.asking.ask(leave, session.peer)
        self._sessions.remove(caller.client_id)
        self._renewals.forget_client(caller.client_id)
        return ok_reply("NotifyClientTermination")

    def _require(self, caller: Caller) -> Session:
        session = self._sessions.find(caller.client_id)
        if session is None:
            raise PublicRefusal(
                PublicCode.UNRECOGNIZED_CLIENT_TYPE,
                f"no settings are known of client {caller.client_id}: open Telemetry first",
            )
        return session


async def _write_all(queue: asyncio.Queue[Any], write: Write) -> None:
    while (command := await queue.get()) is not None:
        await write(bytes(command.SerializeToString()))


def _heartbeat_of(caller: Caller, settings: Any) -> Heartbeat:
    """The heartbeat of a TCP client with the same settings."""
    language = _LANGUAGES.get(settings.user_agent.language, "OTHER")
    if settings.WhichOneof("pub_sub") == "publishing" or settings.client_type == PRODUCER:
        # The topic stands for the producer group, which these clients lack, in transaction checks.
        topics = tuple(dict.fromkeys(topic.name for topic in settings.publishing.topics))
        return Heartbeat(caller.client_id, topics, (), language, _version(caller))
    is_push = settings.client_type == PUSH
    entries = settings.subscription.subscriptions
    named = [(entry.topic.name, subscription_of(entry.expression)) for entry in entries]
    info = ConsumerInfo(
        settings.subscription.group.name,
        "CONSUME_PASSIVELY" if is_push else "CONSUME_ACTIVELY",
        "CLUSTERING",
        "CONSUME_FROM_LAST_OFFSET",
        tuple((topic, one.expression, one.kind, caller.now_ms) for topic, one in named),
    )
    return Heartbeat(caller.client_id, (), (info,), language, _version(caller))


def _version(caller: Caller) -> int:
    """The TCP protocol's version number for a client of the public service."""
    major = caller.metadata.get(CLIENT_VERSION, "").partition(".")[0]
    return CLIENT_VERSION_NUMBER if major == "5" else 0
