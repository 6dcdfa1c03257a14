"""Requests of pop consumption <-> header fields and bodies."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Final, TypeVar

from rocketmq_wire.codes import RequestCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import json_object, member_int, member_objects, member_text
from rocketmq_wire.model import Buffer, Subscription
from rocketmq_wire.records.handles import RetryKind
from rocketmq_wire.remoting.codecs.fields import (
    Codec,
    Encoded,
    EncodedReply,
    Fields,
    bool_text,
    done_codec,
    queue_fields,
    queue_of,
    success,
)
from rocketmq_wire.requests.pop import (
    AckMessage,
    AckMessages,
    AckSpan,
    AwaitMessages,
    AwaitMessagesReply,
    ChangeInvisibleTime,
    GetPollingCount,
    InitMode,
    InvisibleTimeReply,
    PeekMessages,
    PollingCountReply,
    PopMessages,
    PoppedSpan,
    PopReply,
    PopStatus,
)

# --- pop and peek ----------------------------------------------------------------------------


_STATUSES: Final = {status.value: status for status in PopStatus}


_KINDS: Final = {kind.value: kind for kind in RetryKind}


_INIT_MODES: Final = {mode.value: mode for mode in InitMode}


_BITS_MAX: Final = 4_096


_OFFSET_COUNT_MAX: Final = 100_000


_V = TypeVar("_V")


def _encode_pop(request: PopMessages) -> Encoded:
    fields = {
        "consumerGroup": request.group,
        **queue_fields(request.queue),
        "maxMsgNums": str(request.count_max),
        "invisibleTime": str(request.invisible_ms),
        "pollTime": str(request.poll_ms),
        "bornTime": str(request.born_ms),
        "initMode": str(request.init_mode.value),
        "expType": request.subscription.kind,
        "exp": request.subscription.expression,
        "order": bool_text(request.is_orderly),
    }
    if request.attempt_id:
        fields["attemptId"] = request.attempt_id
    return fields, ()


def _decode_pop(fields: Fields, _: Buffer) -> PopMessages:
    return PopMessages(
        group=fields.text("consumerGroup"),
        queue=queue_of(fields),
        count_max=fields.int32("maxMsgNums"),
        invisible_ms=fields.int64("invisibleTime"),
        poll_ms=fields.int64("pollTime"),
        born_ms=fields.int64("bornTime", 0),
        # RocketMQ reads any number but 0 as MAX.
        init_mode=_INIT_MODES.get(fields.int32("initMode", 0), InitMode.MAX),
        subscription=Subscription(
            fields.optional_text("exp") or "*", fields.text("expType", "").strip() or "TAG"
        ),
        is_orderly=fields.boolean("order", False),
        attempt_id=fields.text("attemptId", ""),
    )


def _encode_peek(request: PeekMessages) -> Encoded:
    fields = {"consumerGroup": request.group, **queue_fields(request.queue)}
    return {**fields, "maxMsgNums": str(request.count_max)}, ()


def _decode_peek(fields: Fields, _: Buffer) -> PeekMessages:
    return PeekMessages(fields.text("consumerGroup"), queue_of(fields), fields.int32("maxMsgNums"))


def _encode_popped(_: PopMessages | PeekMessages, reply: PopReply) -> EncodedReply:
    fields = {
        "popTime": str(reply.pop_ms),
        "invisibleTime": str(reply.invisible_ms),
        "reviveQid": str(reply.revive_queue),
        "restNum": str(reply.rest_count),
    }
    if reply.spans:
        starts, offsets, counts = [], [], []
        for span in reply.spans:
            head = f"{span.retry.value} {span.queue_index}"
            starts.append(f"{head} {span.start}")
            offsets.append(f"{head} {','.join(map(str, span.offsets))}")
            counts += _attempts_of(span)
        fields["startOffsetInfo"] = ";".join(starts)
        fields["msgOffsetInfo"] = ";".join(offsets)
        if counts:
            fields["orderCountInfo"] = ";".join(counts)
    return EncodedReply(
        reply.status.value, reply.remark or reply.status.name, fields, reply.records
    )


def _attempts_of(span: PoppedSpan) -> list[str]:
    """How often each message was popped before; for old clients also the queue's minimum."""
    if not span.attempts:
        return []
    kind, queue = span.retry.value, span.queue_index
    pairs = zip(span.offsets, span.attempts, strict=True)
    each = [f"{kind} qo{queue}%{offset} {count}" for offset, count in pairs if count]
    return [*each, f"{kind} {queue} {min(span.attempts)}"]


def _decode_popped(_: PopMessages | PeekMessages, reply: EncodedReply) -> PopReply:
    fields = Fields(reply.ext_fields)
    return PopReply(
        status=_STATUSES[reply.code],
        pop_ms=fields.int64("popTime", 0),
        invisible_ms=fields.int64("invisibleTime", 0),
        revive_queue=fields.int32("reviveQid", 0),
        rest_count=fields.int64("restNum", 0),
        spans=_spans_of(fields),
        records=tuple([part for part in reply.body if len(part)]),
        remark=reply.remark or "",
    )


def _spans_of(fields: Fields) -> tuple[PoppedSpan, ...]:
    starts = _table(fields.text("startOffsetInfo", ""), int)
    lists = _table(fields.text("msgOffsetInfo", ""), _offsets_of)
    counts = _table(fields.text("orderCountInfo", ""), int)
    spans = []
    for (kind, queue), offsets in lists.items():
        retry, start = _KINDS.get(kind), starts.get((kind, queue))
        if retry is None or start is None or not queue.isdecimal():
            raise RemoteProtocolError(f"the queue {kind} {queue[:20]} has no start")
        least = counts.get((kind, queue))
        attempts: tuple[int, ...] = ()
        if least is not None:
            attempts = tuple(counts.get((kind, f"qo{queue}%{offset}"), 0) for offset in offsets)
            # Brokers before 5.0.1 send one number per queue.
            attempts = attempts if any(attempts) else (least,) * len(offsets)
        spans.append(PoppedSpan(retry, int(queue), start, offsets, attempts))
    return tuple(spans)


def _table(text: str, read: Callable[[str], _V]) -> dict[tuple[str, str], _V]:
    """Read `kind queue value` items joined by `;`. Raises RemoteProtocolError."""
    table: dict[tuple[str, str], _V] = {}
    for item in text.split(";") if text else []:
        parts = item.split(" ")
        if len(parts) != 3 or (parts[0], parts[1]) in table:
            raise RemoteProtocolError(f"a broken table of popped messages: {item[:60]!r}")
        try:
            table[parts[0], parts[1]] = read(parts[2])
        except ValueError as error:
            raise RemoteProtocolError(f"no number in {item[:60]!r}") from error
    return table


def _offsets_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


# --- waiting ---------------------------------------------------------------------------------


def _encode_await(request: AwaitMessages) -> Encoded:
    fields = {
        "consumerGroup": request.group,
        **queue_fields(request.queue),
        "pollTime": str(request.poll_ms),
        "bornTime": str(request.born_ms),
        "order": bool_text(request.is_orderly),
    }
    if request.attempt_id:
        fields["attemptId"] = request.attempt_id
    return fields, ()


def _decode_await(fields: Fields, _: Buffer) -> AwaitMessages:
    return AwaitMessages(
        group=fields.text("consumerGroup"),
        queue=queue_of(fields),
        poll_ms=fields.int64("pollTime"),
        born_ms=fields.int64("bornTime", 0),
        is_orderly=fields.boolean("order", False),
        attempt_id=fields.text("attemptId", ""),
    )


def _encode_arrival(_: AwaitMessages, reply: AwaitMessagesReply) -> EncodedReply:
    return success(
        {"hasMsg": bool_text(reply.has_message), "pollingFull": bool_text(reply.is_polling_full)}
    )


def _decode_arrival(_: AwaitMessages, reply: EncodedReply) -> AwaitMessagesReply:
    fields = Fields(reply.ext_fields)
    return AwaitMessagesReply(fields.boolean("hasMsg", False), fields.boolean("pollingFull", False))


def _decode_polling_count(_: GetPollingCount, reply: EncodedReply) -> PollingCountReply:
    return PollingCountReply(Fields(reply.ext_fields).int32("pollingNum"))


# --- acknowledgements and invisible times ----------------------------------------------------


def _encode_ack(request: AckMessage | ChangeInvisibleTime) -> Encoded:
    fields = {
        "consumerGroup": request.group,
        **queue_fields(request.queue),
        "extraInfo": request.handle,
        "offset": str(request.offset),
    }
    if isinstance(request, ChangeInvisibleTime):
        fields["invisibleTime"] = str(request.invisible_ms)
    return fields, ()


def _decode_ack(fields: Fields, _: Buffer) -> AckMessage:
    return AckMessage(
        fields.text("consumerGroup"),
        queue_of(fields),
        fields.int64("offset"),
        fields.text("extraInfo"),
    )


def _decode_change(fields: Fields, body: Buffer) -> ChangeInvisibleTime:
    ack = _decode_ack(fields, body)
    invisible_ms = fields.int64("invisibleTime")
    return ChangeInvisibleTime(ack.group, ack.queue, ack.offset, ack.handle, invisible_ms)


def _encode_changed(_: ChangeInvisibleTime, reply: InvisibleTimeReply) -> EncodedReply:
    return success(
        {
            "popTime": str(reply.pop_ms),
            "invisibleTime": str(reply.invisible_ms),
            "reviveQid": str(reply.revive_queue),
        }
    )


def _decode_changed(_: ChangeInvisibleTime, reply: EncodedReply) -> InvisibleTimeReply:
    fields = Fields(reply.ext_fields)
    return InvisibleTimeReply(
        fields.int64("popTime"), fields.int64("invisibleTime"), fields.int32("reviveQid")
    )


def encode_bits(offsets: tuple[int, ...], start: int) -> str:
    """Offsets relative to a start as Java's BitSet in Base64: bytes from the lowest bit on."""
    bits = 0
    for offset in offsets:
        if not 0 <= offset - start < _BITS_MAX:
            raise RemoteProtocolError(f"offset {offset} is too far from {start}")
        bits |= 1 << (offset - start)
    size = (bits.bit_length() + 7) // 8
    return base64.b64encode(bits.to_bytes(size, "little")).decode("ascii")


def decode_bits(text: str, start: int) -> tuple[int, ...]:
    """The offsets of a bit set. Raises RemoteProtocolError."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RemoteProtocolError(f"no Base64: {text[:40]!r}") from error
    if len(data) * 8 > _BITS_MAX:
        raise RemoteProtocolError(f"a bit set of {len(data)} bytes")
    bits = int.from_bytes(data, "little")
    return tuple(start + index for index in range(bits.bit_length()) if bits >> index & 1)


def _encode_acks(request: AckMessages) -> Encoded:
    acks = [
        {
            "b": encode_bits(span.offsets, span.start),
            "c": span.group,
            "it": span.invisible_ms,
            "pt": span.pop_ms,
            "q": span.queue_index,
            "r": span.retry.value,
            "rq": span.revive_queue,
            "so": span.start,
            "t": span.topic,
        }
        for span in request.spans
    ]
    fields = {"bname": request.broker} if request.broker else {}
    # Strict JSON without nulls: the same text at less cost, for a body per 32 messages.
    body = json.dumps(
        {"acks": acks, "brokerName": request.broker}, ensure_ascii=False, separators=(",", ":")
    )
    return fields, (body.encode("utf-8", "replace"),)


def _decode_acks(_: Fields, body: Buffer) -> AckMessages:
    request = json_object(body)
    spans, count = [], 0
    for item in member_objects(request, "acks"):
        retry, start = member_text(item, "r", "0"), member_int(item, "so")
        if retry not in _KINDS:
            raise RemoteProtocolError(f"a batch of acks with the retry kind {retry[:20]!r}")
        offsets = decode_bits(member_text(item, "b", ""), start)
        count += len(offsets)
        if count > _OFFSET_COUNT_MAX:
            raise RemoteProtocolError(f"more than {_OFFSET_COUNT_MAX} acks in one request")
        spans.append(
            AckSpan(
                group=member_text(item, "c"),
                topic=member_text(item, "t"),
                retry=_KINDS[retry],
                queue_index=member_int(item, "q"),
                revive_queue=member_int(item, "rq"),
                start=start,
                pop_ms=member_int(item, "pt"),
                invisible_ms=member_int(item, "it"),
                offsets=offsets,
            )
        )
    return AckMessages(member_text(request, "brokerName", ""), tuple(spans))


POP_CODECS: Final = (
    Codec(RequestCode.POP_MESSAGE, PopMessages, _encode_pop, _decode_pop, _encode_popped,
          _decode_popped, frozenset(_STATUSES)),
    Codec(RequestCode.PEEK_MESSAGE, PeekMessages, _encode_peek, _decode_peek, _encode_popped,
          _decode_popped, frozenset(_STATUSES)),
    Codec(RequestCode.NOTIFICATION, AwaitMessages, _encode_await, _decode_await, _encode_arrival,
          _decode_arrival),
    Codec(RequestCode.POLLING_INFO, GetPollingCount,
          lambda request: ({"consumerGroup": request.group, **queue_fields(request.queue)}, ()),
          lambda fields, _: GetPollingCount(fields.text("consumerGroup"), queue_of(fields)),
          lambda _, reply: success({"pollingNum": str(reply.count)}), _decode_polling_count),
    done_codec(RequestCode.ACK_MESSAGE, AckMessage, _encode_ack, _decode_ack),
    done_codec(RequestCode.BATCH_ACK_MESSAGE, AckMessages, _encode_acks, _decode_acks),
    Codec(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTime, _encode_ack,
          _decode_change, _encode_changed, _decode_changed),
)  # fmt: skip
