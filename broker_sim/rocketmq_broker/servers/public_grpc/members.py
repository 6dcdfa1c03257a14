"""Telemetry, Heartbeat, NotifyClientTermination, and the settings that clients get."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from rocketmq_broker.servers.public_grpc.caller import CLIENT_VERSION, Caller, ok_reply
from rocketmq_broker.servers.public_grpc.lookup import LIMITS, MINUTE_MS, GroupLookup, Lookup
from rocketmq_broker.servers.public_grpc.receiving import subscription_of
from rocketmq_broker.servers.public_grpc.routing import group_named, lite_refusal, topic_named
from rocketmq_broker.servers.public_grpc.sessions import Session
from rocketmq_wire.codes import CLIENT_VERSION as CLIENT_VERSION_NUMBER
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import PublicRefusal, RocketMQError
from rocketmq_wire.grpc.bulk.methods import check_size
from rocketmq_wire.grpc.public.messages import put_duration
from rocketmq_wire.grpc.public.status import make_status, status_of
from rocketmq_wire.model import ConsumerInfo
from rocketmq_wire.requests.groups import Heartbeat, UnregisterClient
from rocketmq_wire.requests.permissions import PUBLISH
from rocketmq_wire.stubs import public

PRODUCER, PUSH, SIMPLE, PULL, _LITE_PUSH, _LITE_SIMPLE = range(1, 7)
"""`ClientType` in the protocol."""
# RocketMQ's waits before each further delivery: its delay levels from the third on.
RETRY_DELAYS_MS: Final = (
    *(10_000, 30_000, MINUTE_MS),
    *(minutes * MINUTE_MS for minutes in (2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)
_ATTEMPTS_MAX: Final = 3
"""A producer's attempts to send a message."""
Write = Callable[[bytes], Awaitable[None]]
_LANGUAGES: Final = dict(
    enumerate(("JAVA", "CPP", "DOTNET", "GO", "RUST", "PYTHON", "PHP", "NODE_JS"), 1)
)
"""`Language` in the protocol -> the names of the TCP protocol, which tools show."""


async def converse(caller: Caller, incoming: AsyncIterator[bytes], write: Write) -> None:
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
            check_size("Telemetry", content)
            command = public.parse("TelemetryCommand", content)
            if command.WhichOneof("command") == "settings":
                answer = await _answer_settings(caller, command.settings)
                session = caller.service.sessions.find(caller.session_key)
                if session is None:
                    await write(bytes(answer.SerializeToString()))
                elif queue is None:
                    queue = caller.service.sessions.begin_stream(session)
                    writing = asyncio.ensure_future(_write_all(session, queue, write))
                if session is not None:
                    session.send(answer)
            elif session is not None and command.WhichOneof("command") is not None:
                caller.service.sessions.answered(session, command)
            reading = asyncio.ensure_future(anext(incoming, None))
    finally:
        reading.cancel()
        if writing is not None:
            writing.cancel()
        if session is not None and queue is not None:
            caller.service.sessions.end_stream(session, queue)


async def _answer_settings(caller: Caller, settings: Any) -> Any:
    command = public.message_class("TelemetryCommand")()
    try:
        _check_names(settings)
        decided = decided_settings(settings, caller.service.lookup)
        beat = _heartbeat_of(caller, decided)
        caller.check_right(beat)
        for topic in beat.producer_groups:
            caller.peer.require(PUBLISH, topic)
        session = caller.service.sessions.put(caller.session_key, caller.peer, decided)
        # The client is online from now on, and not only from its first heartbeat.
        await caller.service.shell.ask(beat, session.peer)
    except RocketMQError as error:
        command.status.CopyFrom(status_of(error))
        return command
    command.status.CopyFrom(make_status(PublicCode.OK))
    command.settings.CopyFrom(decided)
    return command


def _check_names(settings: Any) -> None:
    for topic in settings.publishing.topics:
        topic_named(topic)
    if settings.HasField("subscription"):
        if settings.subscription.HasField("group"):
            group_named(settings.subscription.group)
        for entry in settings.subscription.subscriptions:
            topic_named(entry.topic)


async def heartbeat(caller: Caller, request: Any) -> Any:
    """Renew the client's membership in its groups."""
    del request
    session = _require(caller)
    beat = _heartbeat_of(caller, session.settings)
    caller.check_right(beat)
    await caller.service.shell.ask(beat, session.peer)
    return ok_reply("Heartbeat")


async def terminate(caller: Caller, request: Any) -> Any:
    """Remove a stopping client from its groups at once."""
    if request.group.name:
        caller.check_right(UnregisterClient(caller.client_id, consumer_group=request.group.name))
    session = _require(caller)
    beat = _heartbeat_of(caller, session.settings)
    for group in beat.producer_groups:
        leave = UnregisterClient(caller.client_id, producer_group=group)
        await caller.service.shell.ask(leave, session.peer)
    for consumer in beat.consumers:
        leave = UnregisterClient(caller.client_id, consumer_group=consumer.group)
        await caller.service.shell.ask(leave, session.peer)
    caller.service.sessions.remove(caller.session_key)
    caller.service.renewals.forget_client(caller.session_key)
    return ok_reply("NotifyClientTermination")


def _require(caller: Caller) -> Session:
    session = caller.service.sessions.find(caller.session_key)
    if session is None:
        raise PublicRefusal(
            PublicCode.UNRECOGNIZED_CLIENT_TYPE,
            f"no settings are known of client {caller.client_id}: open Telemetry first",
        )
    # The file of accounts may have changed since.
    session.peer = replace(session.peer, sender=caller.sender)
    return session


async def _write_all(session: Session, queue: asyncio.Queue[Any], write: Write) -> None:
    while (command := await session.next_command(queue)) is not None:
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


def decided_settings(settings: Any, lookup: Lookup) -> Any:
    """The settings that the client gets. Raises PublicRefusal if they fit no kind of client."""
    if settings.ByteSize() > LIMITS.settings_size_max:
        raise PublicRefusal(
            PublicCode.BAD_REQUEST, f"the settings take more than {LIMITS.settings_size_max} bytes"
        )
    decided = type(settings)()
    decided.CopyFrom(settings)
    decided.metric.on = False
    kind = settings.WhichOneof("pub_sub")
    if kind == "publishing":
        _decide_publishing(decided)
    elif kind == "subscription":
        _decide_subscription(decided, lookup)
    else:
        raise PublicRefusal(
            PublicCode.UNRECOGNIZED_CLIENT_TYPE, "settings name neither publishing nor subscription"
        )
    return decided


def _decide_publishing(settings: Any) -> None:
    settings.ClearField("backoff_policy")
    policy = settings.backoff_policy
    policy.max_attempts = _ATTEMPTS_MAX
    put_duration(policy.exponential_backoff.initial, 10)
    put_duration(policy.exponential_backoff.max, 1_000)
    policy.exponential_backoff.multiplier = 2
    settings.publishing.max_body_size = LIMITS.body_size_max
    settings.publishing.validate_message_type = True


def _decide_subscription(settings: Any, lookup: Lookup) -> None:
    name = settings.subscription.group.name
    group = lookup.group(name)
    if settings.client_type in (_LITE_PUSH, _LITE_SIMPLE):
        raise lite_refusal(f"a lite consumer of group {name}")
    settings.ClearField("backoff_policy")
    _put_backoff(settings.backoff_policy, group)
    subscription = settings.subscription
    subscription.fifo = group.is_fifo
    subscription.receive_batch_size = LIMITS.receive_count_max
    put_duration(subscription.long_polling_timeout, LIMITS.poll_ms_max)


def _put_backoff(policy: Any, group: GroupLookup) -> None:
    policy.max_attempts = group.attempts_max
    if group.backoff is None:
        for delay_ms in RETRY_DELAYS_MS:
            put_duration(policy.customized_backoff.next.add(), delay_ms)
        return
    exponential = policy.exponential_backoff
    put_duration(exponential.initial, int(group.backoff.get("initial", 5_000)))
    put_duration(exponential.max, int(group.backoff.get("max", 2 * 60 * MINUTE_MS)))
    exponential.multiplier = float(group.backoff.get("multiplier", 2))
