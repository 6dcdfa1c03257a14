"""Receives of the public service: pops, their acknowledgements, other times, dead letters."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any, Final

from rocketmq_arrow.decode.inflate import InflateError, inflate
from rocketmq_broker.servers.public_grpc.caller import CLIENT_VERSION, Caller
from rocketmq_broker.servers.public_grpc.limits import PublicLimits
from rocketmq_broker.servers.public_grpc.lookup import Lookup, accepted_types
from rocketmq_broker.servers.public_grpc.renewals import Renewals
from rocketmq_broker.servers.public_grpc.routing import (
    group_named,
    lite_refusal,
    require_topic,
    topic_named,
)
from rocketmq_broker.servers.public_grpc.sending import common_status
from rocketmq_broker.servers.public_grpc.sessions import Sessions
from rocketmq_wire.codes import PublicCode, ResponseCode
from rocketmq_wire.errors import BrokerError, PublicRefusal, RemoteProtocolError, RocketMQError
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
# A broker that finds nothing by a handle answers by one of these.
_HANDLE_CODES: Final = (
    ResponseCode.SYSTEM_ERROR,
    ResponseCode.MESSAGE_ILLEGAL,
    ResponseCode.NO_MESSAGE,
)
"""`FilterType` in the protocol."""
_POLL_MARGIN_MS: Final = 200
"""An answer has to arrive before the client gives up."""
_OWN_CODE_SINCE: Final = (5, 0, 3)
"""Clients before know no code of its own for too little time."""
_DEAD: Final = -1
_HANDED_BACK_MS: Final = 1_000
"""As in the proxy: what a client's call did not bring comes again so soon."""
_NUMBERS: Final = re.compile(r"\d{1,6}")


@dataclass(frozen=True, slots=True)
class _Taking:
    """What one receive is for."""

    group: str
    topic: str
    subscription: Subscription
    is_orderly: bool


class Receives:
    """ReceiveMessage, AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue."""

    def __init__(
        self, lookup: Lookup, limits: PublicLimits, sessions: Sessions, renewals: Renewals
    ) -> None:
        self._lookup, self._limits = lookup, limits
        self._sessions, self._renewals = sessions, renewals
        self._on_their_way: set[tuple[str, str, str]] = set()
        """Client, group and handle of messages whose answer is being written."""
        self._handing_back: set[asyncio.Task[None]] = set()

    # --- receive ------------------------------------------------------------------------------

    async def receive(self, caller: Caller, request: Any) -> AsyncGenerator[Any, None]:
        """The frames of the answer: a status, messages, and when they were handed out."""
        session = self._sessions.find(caller.client_id)
        if session is None:
            raise PublicRefusal(
                PublicCode.INTERNAL_SERVER_ERROR,
                f"settings is null for client {caller.client_id}: open Telemetry first",
            )
        name = topic_named(request.message_queue.topic)
        group = group_named(request.group)
        config = require_topic(self._lookup, name)
        known = self._lookup.group(group)
        invisible_ms = self._invisible_ms(request)
        subscription = subscription_of(request.filter_expression)
        if not 1 <= request.batch_size <= self._limits.receive_count_max:
            # The proxy, too, gives fewer rather than refuse.
            request.batch_size = min(max(request.batch_size, 1), self._limits.receive_count_max)
        taking = _Taking(group, name, subscription, is_orderly=known.is_fifo)
        poll_ms = self._poll_ms(caller, request, session.settings)
        reply = await self._lent(caller, request, taking, config, invisible_ms, poll_ms)
        handed = await self._handed_out(caller, taking, reply, known.attempts_max)
        frame = public.message_class("ReceiveMessageResponse")
        found = PublicCode.OK if handed else PublicCode.MESSAGE_NOT_FOUND
        last = frame()
        put_timestamp(last.delivery_timestamp, reply.pop_ms or caller.now_ms)
        keys = [(caller.client_id, group, text) for text in handed]
        self._on_their_way.update(keys)
        if request.auto_renew:
            for text in handed:
                self._renewals.add(caller.client_id, group, name, text)
        try:
            yield frame(status=make_status(found, "OK" if handed else "no new message"))
            for message in handed.values():
                yield frame(message=message)
            yield last
            self._on_their_way.difference_update(keys)
        finally:
            # The client may have cancelled, or its connection may have broken. Clients use an
            # answer once it is whole: what was written of it is lost on them, too.
            for text in handed:
                if (caller.client_id, group, text) in self._on_their_way:
                    work = asyncio.create_task(self._hand_back(caller, group, name, text))
                    self._handing_back.add(work)
                    work.add_done_callback(self._handing_back.discard)

    async def _lent(
        self,
        caller: Caller,
        request: Any,
        taking: _Taking,
        config: TopicConfig,
        invisible_ms: int,
        poll_ms: int,
    ) -> PopReply:
        """What the broker lends, or that it has nothing. Raises PublicRefusal (42900)."""
        pop = PopMessages(
            taking.group,
            QueueId(taking.topic, self._lookup.broker_name, ANY_QUEUE),
            request.batch_size,
            invisible_ms,
            poll_ms=poll_ms,
            born_ms=caller.now_ms,
            init_mode=InitMode.MAX,
            subscription=taking.subscription,
            is_orderly=taking.is_orderly,
            attempt_id=request.attempt_id,
        )
        reply = await self._pop(caller, pop, config)
        if reply.status is PopStatus.POLLING_FULL:
            raise PublicRefusal(PublicCode.TOO_MANY_REQUESTS, "polling full")
        return reply

    async def _hand_back(self, caller: Caller, group: str, topic: str, text: str) -> None:
        """Have a message that was lent and never reached its client come again soon."""
        handle = await self._renewals.current(caller.client_id, group, text)
        if (caller.client_id, group, text) not in self._on_their_way:
            return  # It did reach its client, who has decided about it meanwhile.
        self._settled(caller, group, text)
        try:
            await caller.ask(change_of(group, topic, handle, _HANDED_BACK_MS))
        except RocketMQError as error:
            _LOG.warning("group=%s: a message comes again only later: %s", group, error)

    async def _pop(self, caller: Caller, pop: PopMessages, config: TopicConfig) -> PopReply:
        """What there is, or what comes; of a topic with priorities the highest that is there."""
        if PRIORITY in accepted_types(config):
            for index in reversed(range(config.read_queue_count)):
                queue = QueueId(pop.queue.topic, pop.queue.broker, index)
                found = await caller.ask(replace(pop, queue=queue, poll_ms=0))
                if found.status is PopStatus.FOUND:
                    return found
        return await caller.ask(pop)

    async def _handed_out(
        self, caller: Caller, taking: _Taking, reply: PopReply, attempts_max: int
    ) -> dict[str, Any]:
        """The messages that the client gets, by their handles."""
        content = memoryview(b"".join(reply.records))
        tags = TagExpression.parse(taking.subscription.expression)
        is_by_tag = taking.subscription.kind == "TAG" and not taking.subscription.selects_all
        position, topic = 0, taking.topic
        handed: dict[str, Any] = {}
        handles = reply.handles(self._lookup.broker_name)
        for handle, popped in zip(handles, _counts(reply), strict=True):
            stored, position = decode_record(content, position, check_crc=False)
            text = _with_position(handle, stored).text()
            if is_by_tag and not tags.matches(stored.properties.get("TAGS")):
                # Another tag of the same hash.
                await caller.ask(ack_of(taking.group, topic, text))
                continue
            before = popped if popped is not None else stored.reconsume_times
            if before >= attempts_max and not taking.is_orderly:
                await self._bury(caller, taking.group, topic, text, stored)
                continue
            delivery = Delivery(topic, text, reply.invisible_ms, before + 1, sendable_body)
            message = incoming_of(stored, delivery)
            message.system_properties.queue_offset = handle.offset
            handed[text] = message
        return handed

    def _invisible_ms(self, request: Any) -> int:
        if request.auto_renew:
            return self._limits.renewed_ms
        invisible_ms = milliseconds(request.invisible_duration)
        limits = self._limits
        if not limits.invisible_ms_min <= invisible_ms <= limits.invisible_ms_max:
            raise PublicRefusal(
                PublicCode.ILLEGAL_INVISIBLE_TIME,
                f"the invisible time must be {limits.invisible_ms_min} to "
                f"{limits.invisible_ms_max} ms, not {invisible_ms}",
            )
        return invisible_ms

    def _poll_ms(self, caller: Caller, request: Any, settings: Any) -> int:
        limits = self._limits
        wanted = settings.subscription.long_polling_timeout
        if request.HasField("long_polling_timeout"):
            wanted = request.long_polling_timeout
        poll_ms = min(max(milliseconds(wanted), limits.poll_ms_min), limits.poll_ms_max)
        if caller.seconds_left is None:
            return poll_ms
        left_ms = int(caller.seconds_left * 1_000)
        if poll_ms <= left_ms:
            return min(poll_ms, left_ms - _POLL_MARGIN_MS)
        if left_ms < limits.poll_ms_min:
            is_new = _version_of(caller.metadata.get(CLIENT_VERSION, "")) >= _OWN_CODE_SINCE
            raise PublicRefusal(
                PublicCode.ILLEGAL_POLLING_TIME if is_new else PublicCode.BAD_REQUEST,
                "The deadline time remaining is not enough for polling",
            )
        return left_ms - _POLL_MARGIN_MS

    # --- what becomes of a message ------------------------------------------------------------

    async def ack(self, caller: Caller, request: Any) -> Any:
        """Settle messages, each for itself."""
        topic, group = topic_named(request.topic), group_named(request.group)
        if not request.entries:
            raise PublicRefusal(PublicCode.BAD_REQUEST, "nothing to acknowledge")
        reply = public.message_class("AckMessageResponse")()
        for entry in request.entries:
            result = reply.entries.add(
                message_id=entry.message_id, receipt_handle=entry.receipt_handle
            )
            try:
                _refuse_lite_topic(entry)
                handle = await self._current(caller, group, entry.receipt_handle)
                await caller.ask(ack_of(group, topic, handle))
                status = make_status(PublicCode.OK)
            except RocketMQError as error:
                status = status_of(_of_handle(error))
            result.status.CopyFrom(status)
            self._settled(caller, group, entry.receipt_handle)
        reply.status.CopyFrom(common_status([entry.status for entry in reply.entries]))
        return reply

    async def change(self, caller: Caller, request: Any) -> Any:
        """Have a message come again at another time; the answer holds the handle from now on."""
        topic, group = topic_named(request.topic), group_named(request.group)
        invisible_ms = milliseconds(request.invisible_duration)
        if not 0 <= invisible_ms <= self._limits.invisible_ms_max:
            raise PublicRefusal(
                PublicCode.ILLEGAL_INVISIBLE_TIME,
                f"the invisible time must be 0 to {self._limits.invisible_ms_max} ms",
            )
        _refuse_lite_topic(request)
        handle = await self._current(caller, group, request.receipt_handle)
        self._settled(caller, group, request.receipt_handle)
        try:
            changed = await caller.ask(change_of(group, topic, handle, invisible_ms))
        except RocketMQError as error:
            raise _of_handle(error) from error
        following = changed.handle_after(ReceiptHandle.parse(handle))
        return public.message_class("ChangeInvisibleDurationResponse")(
            status=make_status(PublicCode.OK), receipt_handle=following.text()
        )

    async def forward(self, caller: Caller, request: Any) -> Any:
        """Put a message that cannot be consumed to the group's dead letters."""
        topic, group = topic_named(request.topic), group_named(request.group)
        _refuse_lite_topic(request)
        handle = await self._current(caller, group, request.receipt_handle)
        self._settled(caller, group, request.receipt_handle)
        position = ReceiptHandle.parse(handle).position
        if position is None or position < 0:
            raise PublicRefusal(
                PublicCode.INVALID_RECEIPT_HANDLE,
                "the receipt handle does not say where the message is",
            )
        await self._send_dead(caller, group, topic, request.message_id, position)
        await caller.ask(ack_of(group, topic, handle))
        name = "ForwardMessageToDeadLetterQueueResponse"
        return public.message_class(name)(status=make_status(PublicCode.OK))

    async def _bury(
        self, caller: Caller, group: str, topic: str, handle: str, stored: StoredMessage
    ) -> None:
        message_id = stored.properties.get("UNIQ_KEY", "")
        await self._send_dead(caller, group, topic, message_id, stored.physical_offset)
        await caller.ask(ack_of(group, topic, handle))

    async def _send_dead(
        self, caller: Caller, group: str, topic: str, message_id: str, position: int
    ) -> None:
        await caller.ask(SendBack(group, position, _DEAD, message_id, topic))

    async def _current(self, caller: Caller, group: str, text: str) -> str:
        """The handle that counts now: one that was renewed stands for the first one."""
        current = await self._renewals.current(caller.client_id, group, text)
        handle = _parsed(current)
        if handle.visible_ms <= caller.now_ms and not handle.is_orderly:
            raise PublicRefusal(PublicCode.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
        return current

    def _settled(self, caller: Caller, group: str, text: str) -> None:
        """Somebody has decided about the message of this handle."""
        self._renewals.remove(caller.client_id, group, text)
        self._on_their_way.discard((caller.client_id, group, text))


def subscription_of(expression: Any) -> Subscription:
    """A `FilterExpression` as the broker reads it."""
    if expression.type == _SQL:
        return Subscription(expression.expression, "SQL92")
    return Subscription(expression.expression or "*")


def _refuse_lite_topic(said: Any) -> None:
    """Raises PublicRefusal (50100) for a message that was popped from a lite topic."""
    if said.lite_topic:
        raise lite_refusal(f"a message of lite topic {said.lite_topic[:80]!r}")


def _parsed(text: str) -> ReceiptHandle:
    """Raises PublicRefusal (40013)."""
    try:
        return ReceiptHandle.parse(text)
    except RemoteProtocolError as error:
        raise PublicRefusal(PublicCode.INVALID_RECEIPT_HANDLE, str(error)) from error


def _with_position(handle: ReceiptHandle, stored: StoredMessage) -> ReceiptHandle:
    return ReceiptHandle(
        start=handle.start,
        pop_ms=handle.pop_ms,
        invisible_ms=handle.invisible_ms,
        revive_queue=handle.revive_queue,
        retry=handle.retry,
        broker=handle.broker,
        queue_index=handle.queue_index,
        offset=handle.offset,
        position=stored.physical_offset,
    )


def _counts(reply: PopReply) -> list[int | None]:
    """How often each message was popped before, where the pop itself says it."""
    counts: list[int | None] = []
    for span in reply.spans:
        counts += span.attempts or [None] * len(span.offsets)
    return counts


def sendable_body(stored: StoredMessage) -> tuple[bytes, int]:
    """Clients of this service inflate gzip and nothing else."""
    if not stored.sys_flag & FLAG_COMPRESSED:
        return stored.body, IDENTITY
    if stored.body.startswith(GZIP_MAGIC):
        return stored.body, GZIP
    try:
        return inflate(stored.body, stored.sys_flag, BODY_SIZE_MAX), IDENTITY
    except InflateError:
        # As it is: the message must not stand in the way of all others.
        return stored.body, IDENTITY


def _of_handle(error: RocketMQError) -> RocketMQError:
    """A broker that finds nothing by a handle says so in several ways."""
    if isinstance(error, BrokerError) and error.code in _HANDLE_CODES:
        return PublicRefusal(PublicCode.INVALID_RECEIPT_HANDLE, error.remark)
    return error


def _version_of(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in _NUMBERS.findall(text)[:3])
