"""ReceiveMessage, AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any, Final

from rocketmq_arrow.decode.inflate import inflate
from rocketmq_broker.servers.public_grpc.caller import CLIENT_VERSION, Caller, ok_reply
from rocketmq_broker.servers.public_grpc.lookup import LIMITS, accepted_types
from rocketmq_broker.servers.public_grpc.routing import (
    group_named,
    lite_refusal,
    require_topic,
    topic_named,
)
from rocketmq_broker.servers.public_grpc.sending import common_status
from rocketmq_broker.servers.shell.clock import TimeSlices
from rocketmq_wire.codes import PublicCode, ResponseCode
from rocketmq_wire.errors import (
    BrokerError,
    InflateError,
    PublicRefusal,
    RemoteProtocolError,
    RocketMQError,
)
from rocketmq_wire.filters.tags import TagExpression
from rocketmq_wire.grpc.public.messages import (
    GZIP,
    IDENTITY,
    PRIORITY,
    Delivery,
    incoming_of,
    milliseconds,
    put_timestamp,
)
from rocketmq_wire.grpc.public.status import make_status, status_of
from rocketmq_wire.limits import PUBLIC_ENTRIES_MAX
from rocketmq_wire.model import BODY_SIZE_MAX, QueueId, StoredMessage, Subscription, TopicConfig
from rocketmq_wire.records.handles import ReceiptHandle
from rocketmq_wire.records.record import FLAG_COMPRESSED, GZIP_MAGIC, decode_record
from rocketmq_wire.requests.messages import SendBack
from rocketmq_wire.requests.pop import (
    ANY_QUEUE,
    InitMode,
    PopMessages,
    PopReply,
    PopStatus,
    ack_of,
    change_of,
)
from rocketmq_wire.stubs import public

_LOG = logging.getLogger(__name__)
_SQL: Final = 2
"""`FilterType` in the protocol."""
_HANDLE_CODES: Final = (
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.MESSAGE_ILLEGAL,
    ResponseCode.NO_MESSAGE,
)
"""The broker's codes for a handle without a message."""
_POLL_MARGIN_MS: Final = 200
"""The time for a reply to arrive before the client's deadline."""
_POLLING_TIME_CODE_SINCE: Final = (5, 0, 3)
"""The first version of clients that know ILLEGAL_POLLING_TIME."""
_DEAD_LETTER: Final = -1
"""The delay level that sends a message to the dead letters."""
_HAND_BACK_MS: Final = 1_000
"""As in the proxy: the time until a message comes again that did not reach its client."""
_NUMBERS: Final = re.compile(r"\d{1,6}")


async def receive(caller: Caller, request: Any) -> AsyncGenerator[Any, None]:
    """The frames of the reply: a status, messages, the time of their delivery."""
    session = caller.service.sessions.find(caller.session_key)
    if session is None:
        raise PublicRefusal(
            PublicCode.INTERNAL_SERVER_ERROR,
            f"settings is null for client {caller.client_id}: open Telemetry first",
        )
    name = topic_named(request.message_queue.topic)
    group = group_named(request.group)
    config = require_topic(caller, name)
    known = caller.service.lookup.group(group)
    pop = PopMessages(
        group,
        QueueId(name, caller.service.lookup.broker_name, ANY_QUEUE),
        # As in the proxy, a wrong size gets fewer messages, and no refusal.
        min(max(request.batch_size, 1), LIMITS.receive_count_max),
        LIMITS.renewed_ms
        if request.auto_renew
        else _invisible_ms(request, LIMITS.invisible_ms_min),
        poll_ms=_poll_ms(caller, request, session.settings),
        born_ms=caller.now_ms,
        init_mode=InitMode.MAX,
        subscription=subscription_of(request.filter_expression),
        is_orderly=known.is_fifo,
        attempt_id=request.attempt_id,
    )
    reply = await _pop(caller, pop, config)
    if reply.status is PopStatus.POLLING_FULL:
        raise PublicRefusal(PublicCode.TOO_MANY_REQUESTS, "polling full")
    handed = await _deliveries(caller, pop, reply, known.attempts_max)
    frame = public.message_class("ReceiveMessageResponse")
    found = PublicCode.OK if handed else PublicCode.MESSAGE_NOT_FOUND
    last = frame()
    put_timestamp(last.delivery_timestamp, reply.pop_ms or caller.now_ms)
    keys = [(caller.session_key, group, text) for text in handed]
    caller.service.unwritten.update(keys)
    if request.auto_renew:
        for text in handed:
            caller.service.renewals.add(caller.session_key, group, name, text)
    try:
        yield frame(status=make_status(found, "OK" if handed else "no new message"))
        for message in handed.values():
            yield frame(message=message)
        yield last
        caller.service.unwritten.difference_update(keys)
    finally:
        # The client may have cancelled, or its connection may have broken. Clients use only a
        # whole reply, so the messages that were written are handed back, too.
        for text in handed:
            if (caller.session_key, group, text) in caller.service.unwritten:
                work = asyncio.create_task(_hand_back(caller, group, name, text))
                caller.service.handing_back.add(work)
                work.add_done_callback(caller.service.handing_back.discard)


async def _hand_back(caller: Caller, group: str, topic: str, text: str) -> None:
    """Make a popped message visible soon that never reached its client."""
    handle = await caller.service.renewals.current(caller.session_key, group, text)
    if (caller.session_key, group, text) not in caller.service.unwritten:
        return  # The message did reach its client, which has decided about it meanwhile.
    _forget(caller, group, text)
    try:
        await caller.ask(change_of(group, topic, handle, _HAND_BACK_MS))
    except RocketMQError as error:
        _LOG.warning("group=%s: a message comes again only later: %s", group, error)


# --- decisions about a message ------------------------------------------------------------


async def ack(caller: Caller, request: Any) -> Any:
    """Acknowledge messages; each has a status of its own."""
    topic, group = topic_named(request.topic), group_named(request.group)
    if not request.entries:
        raise PublicRefusal(PublicCode.BAD_REQUEST, "nothing to acknowledge")
    if len(request.entries) > PUBLIC_ENTRIES_MAX:
        raise PublicRefusal(
            PublicCode.BAD_REQUEST,
            f"{len(request.entries)} entries in one call, over {PUBLIC_ENTRIES_MAX}",
        )
    reply = public.message_class("AckMessageResponse")()
    slices = TimeSlices()
    for entry in request.entries:
        await slices.pause()
        result = reply.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle)
        try:
            _refuse_lite_topic(entry)
            handle = await _current(caller, group, entry.receipt_handle)
            await caller.ask(ack_of(group, topic, handle))
            status = make_status(PublicCode.OK)
        except RocketMQError as error:
            status = status_of(_of_handle(error))
        result.status.CopyFrom(status)
        _forget(caller, group, entry.receipt_handle)
    reply.status.CopyFrom(common_status([entry.status for entry in reply.entries]))
    return reply


async def change(caller: Caller, request: Any) -> Any:
    """Change the time of a message's next delivery; the reply has its new handle."""
    topic, group = topic_named(request.topic), group_named(request.group)
    invisible_ms = _invisible_ms(request, 0)
    _refuse_lite_topic(request)
    handle = await _current(caller, group, request.receipt_handle)
    _forget(caller, group, request.receipt_handle)
    try:
        changed = await caller.ask(change_of(group, topic, handle, invisible_ms))
    except RocketMQError as error:
        raise _of_handle(error) from error
    following = changed.handle_after(ReceiptHandle.parse(handle))
    return ok_reply("ChangeInvisibleDuration", receipt_handle=following.text())


async def forward(caller: Caller, request: Any) -> Any:
    """Send a message that cannot be consumed to the group's dead letters."""
    topic, group = topic_named(request.topic), group_named(request.group)
    _refuse_lite_topic(request)
    handle = await _current(caller, group, request.receipt_handle)
    _forget(caller, group, request.receipt_handle)
    position = ReceiptHandle.parse(handle).position
    if position is None or position < 0:
        raise PublicRefusal(
            PublicCode.INVALID_RECEIPT_HANDLE,
            "the receipt handle lacks the position of the message",
        )
    await caller.ask(SendBack(group, position, _DEAD_LETTER, request.message_id, topic))
    await caller.ask(ack_of(group, topic, handle))
    return ok_reply("ForwardMessageToDeadLetterQueue")


def _forget(caller: Caller, group: str, text: str) -> None:
    """Stop renewing and handing back a message about which a decision was made."""
    caller.service.renewals.remove(caller.session_key, group, text)
    caller.service.unwritten.discard((caller.session_key, group, text))


async def _pop(caller: Caller, pop: PopMessages, config: TopicConfig) -> PopReply:
    """Pop messages; of a topic with priorities those of the highest one."""
    if PRIORITY in accepted_types(config):
        slices = TimeSlices()
        for index in reversed(range(config.read_queue_count)):
            await slices.pause()
            queue = QueueId(pop.queue.topic, pop.queue.broker, index)
            found = await caller.ask(replace(pop, queue=queue, poll_ms=0))
            if found.status is PopStatus.FOUND:
                return found
    return await caller.ask(pop)


async def _deliveries(
    caller: Caller, pop: PopMessages, reply: PopReply, attempts_max: int
) -> dict[str, Any]:
    """The messages for the client, by their handles."""
    content = memoryview(b"".join(reply.records))
    tags = TagExpression.parse(pop.subscription.expression)
    is_by_tag = pop.subscription.kind == "TAG" and not pop.subscription.selects_all
    position, group, topic = 0, pop.group, pop.queue.topic
    handed: dict[str, Any] = {}
    slices = TimeSlices()
    handles = reply.handles(caller.service.lookup.broker_name)
    for handle, popped in zip(handles, _counts(reply), strict=True):
        # To inflate a body may take some milliseconds.
        await slices.pause()
        stored, position = decode_record(content, position, check_crc=False)
        text = handle._replace(position=stored.physical_offset).text()
        if is_by_tag and not tags.matches(stored.properties.get("TAGS")):
            # A different tag with the same hash.
            await caller.ask(ack_of(group, topic, text))
            continue
        before = popped if popped is not None else stored.reconsume_times
        if before >= attempts_max and not pop.is_orderly:
            message_id = stored.properties.get("UNIQ_KEY", "")
            await caller.ask(
                SendBack(group, stored.physical_offset, _DEAD_LETTER, message_id, topic)
            )
            await caller.ask(ack_of(group, topic, text))
            continue
        delivery = Delivery(topic, text, reply.invisible_ms, before + 1, sendable_body)
        message = incoming_of(stored, delivery)
        message.system_properties.queue_offset = handle.offset
        handed[text] = message
    return handed


def _invisible_ms(request: Any, ms_min: int) -> int:
    """The requested time, in a proxy's limits and words: clients' own tests compare the text."""
    invisible_ms = milliseconds(request.invisible_duration)
    problem = ""
    if invisible_ms < ms_min:
        problem = f"too small. min is {ms_min}"
    elif invisible_ms > LIMITS.invisible_ms_max:
        problem = f"too large. max is {LIMITS.invisible_ms_max}"
    if problem:
        raise PublicRefusal(PublicCode.ILLEGAL_INVISIBLE_TIME, f"the invisibleTime is {problem}")
    return invisible_ms


def _poll_ms(caller: Caller, request: Any, settings: Any) -> int:
    wanted = settings.subscription.long_polling_timeout
    if request.HasField("long_polling_timeout"):
        wanted = request.long_polling_timeout
    poll_ms = min(max(milliseconds(wanted), LIMITS.poll_ms_min), LIMITS.poll_ms_max)
    if caller.seconds_left is None:
        return poll_ms
    left_ms = int(caller.seconds_left * 1_000)
    if poll_ms <= left_ms:
        return min(poll_ms, left_ms - _POLL_MARGIN_MS)
    if left_ms < LIMITS.poll_ms_min:
        is_new = _version_of(caller.metadata.get(CLIENT_VERSION, "")) >= _POLLING_TIME_CODE_SINCE
        raise PublicRefusal(
            PublicCode.ILLEGAL_POLLING_TIME if is_new else PublicCode.BAD_REQUEST,
            "The deadline time remaining is not enough for polling",
        )
    return left_ms - _POLL_MARGIN_MS


async def _current(caller: Caller, group: str, text: str) -> str:
    """The message's current handle, which a renewal changes. Raises PublicRefusal (40013)."""
    current = await caller.service.renewals.current(caller.session_key, group, text)
    try:
        handle = ReceiptHandle.parse(current)
    except RemoteProtocolError as error:
        raise PublicRefusal(PublicCode.INVALID_RECEIPT_HANDLE, str(error)) from error
    if handle.visible_ms <= caller.now_ms and not handle.is_orderly:
        raise PublicRefusal(PublicCode.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
    return current


def subscription_of(expression: Any) -> Subscription:
    """A `FilterExpression` as a subscription."""
    if expression.type == _SQL:
        return Subscription(expression.expression, "SQL92")
    return Subscription(expression.expression or "*")


def _refuse_lite_topic(popped: Any) -> None:
    """Raises PublicRefusal (50100) for a message that was popped from a lite topic."""
    if popped.lite_topic:
        raise lite_refusal(f"a message of lite topic {popped.lite_topic[:80]!r}")


def _counts(reply: PopReply) -> list[int | None]:
    """The earlier pops of each message; None where the reply does not have them."""
    counts: list[int | None] = []
    for span in reply.spans:
        counts += span.attempts or [None] * len(span.offsets)
    return counts


def sendable_body(stored: StoredMessage) -> tuple[bytes, int]:
    """A body and its encoding: clients of this service inflate nothing but gzip."""
    if not stored.sys_flag & FLAG_COMPRESSED:
        return stored.body, IDENTITY
    if stored.body.startswith(GZIP_MAGIC):
        return stored.body, GZIP
    try:
        return inflate(stored.body, stored.sys_flag, BODY_SIZE_MAX), IDENTITY
    except InflateError:
        # Sent as it is, because one message must not block all others.
        return stored.body, IDENTITY


def _of_handle(error: RocketMQError) -> RocketMQError:
    """Map the broker's codes for a handle without a message to the public one."""
    if isinstance(error, BrokerError) and error.code in _HANDLE_CODES:
        return PublicRefusal(PublicCode.INVALID_RECEIPT_HANDLE, error.remark)
    return error


def _version_of(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBERS.findall(text)[:3])
