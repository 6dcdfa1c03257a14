"""Requests of pop consumption <-> header fields and bodies."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import Final, TypeVar

from rocketmq_wire.codes import RequestCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import json_object, member_int, member_text
from rocketmq_wire.model import Buffer, Subscription
from rocketmq_wire.numbers import QUEUE_DIGITS_MAX, whole_number
from rocketmq_wire.records.handles import RetryKind
from rocketmq_wire.remoting.codecs import header
from rocketmq_wire.remoting.codecs.body import limited_objects
from rocketmq_wire.remoting.codecs.layouts import (
    DONE,
    Answer,
    Codec,
    Content,
    EncodedReply,
    Field,
    Fields,
    answer,
    field,
    layout,
)
from rocketmq_wire.requests import pop
from rocketmq_wire.requests.contract import CountReply

# --- pop and peek ----------------------------------------------------------------------------

_STATUSES: Final = {status.value: status for status in pop.PopStatus}
_KINDS: Final = {kind.value: kind for kind in RetryKind}
_INIT_MODES: Final = {mode.value: mode for mode in pop.InitMode}
_BITS_MAX: Final = 4_096
_OFFSET_COUNT_MAX: Final = 100_000
_V = TypeVar("_V")


def _subscription_of(fields: Fields) -> Subscription:
    return Subscription(
        fields.optional_text("exp") or "*", fields.text("expType", "").strip() or "TAG"
    )


def _write_subscription(target: dict[str, str], request: pop.PopMessages) -> None:
    target["expType"] = request.subscription.kind
    target["exp"] = request.subscription.expression


def _encode_popped(_: pop.PopMessages | pop.PeekMessages, reply: pop.PopReply) -> EncodedReply:
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


def _attempts_of(span: pop.PoppedSpan) -> list[str]:
    """How often each message was popped before; for old clients also the queue's minimum."""
    if not span.attempts:
        return []
    kind, queue = span.retry.value, span.queue_index
    pairs = zip(span.offsets, span.attempts, strict=True)
    each = [f"{kind} qo{queue}%{offset} {count}" for offset, count in pairs if count]
    return [*each, f"{kind} {queue} {min(span.attempts)}"]


def _decode_popped(_: pop.PopMessages | pop.PeekMessages, reply: EncodedReply) -> pop.PopReply:
    fields = Fields(reply.ext_fields)
    return pop.PopReply(
        status=_STATUSES[reply.code],
        pop_ms=fields.int64("popTime", 0),
        invisible_ms=fields.int64("invisibleTime", 0),
        revive_queue=fields.int32("reviveQid", 0),
        rest_count=fields.int64("restNum", 0),
        spans=_spans_of(fields),
        records=tuple([part for part in reply.body if len(part)]),
        remark=reply.remark or "",
    )


def _spans_of(fields: Fields) -> tuple[pop.PoppedSpan, ...]:
    starts = _table(fields.text("startOffsetInfo", ""), _number_of)
    lists = _table(fields.text("msgOffsetInfo", ""), _offsets_of)
    counts = _table(fields.text("orderCountInfo", ""), _number_of)
    spans = []
    for (kind, queue), offsets in lists.items():
        retry, start = _KINDS.get(kind), starts.get((kind, queue))
        index = whole_number(queue, digits_max=QUEUE_DIGITS_MAX)
        if retry is None or start is None or index is None:
            raise RemoteProtocolError(f"the queue {kind} {queue[:20]} has no start")
        least = counts.get((kind, queue))
        attempts: tuple[int, ...] = ()
        if least is not None:
            attempts = tuple(counts.get((kind, f"qo{queue}%{offset}"), 0) for offset in offsets)
            # Brokers before 5.0.1 send one number per queue.
            attempts = attempts if any(attempts) else (least,) * len(offsets)
        spans.append(pop.PoppedSpan(retry, index, start, offsets, attempts))
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


def _number_of(text: str) -> int:
    number = whole_number(text, is_signed=True)
    if number is None:
        raise ValueError(text)
    return number


def _offsets_of(text: str) -> tuple[int, ...]:
    return tuple(map(_number_of, text.split(",")))


# --- acknowledgements ------------------------------------------------------------------------


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


def _acks_json(request: pop.AckMessages) -> tuple[bytes]:
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
    # Strict JSON without nulls: the same text at less cost, for a body per 32 messages.
    body = json.dumps(
        {"acks": acks, "brokerName": request.broker}, ensure_ascii=False, separators=(",", ":")
    )
    return (body.encode("utf-8", "replace"),)


def _acks_of(content: Buffer) -> dict[str, object]:
    request = json_object(content)
    spans, count = [], 0
    for item in limited_objects(request, "acks"):
        retry, start = member_text(item, "r", "0"), member_int(item, "so")
        if retry not in _KINDS:
            raise RemoteProtocolError(f"a batch of acks with the retry kind {retry[:20]!r}")
        offsets = decode_bits(member_text(item, "b", ""), start)
        count += len(offsets)
        if count > _OFFSET_COUNT_MAX:
            raise RemoteProtocolError(f"more than {_OFFSET_COUNT_MAX} acks in one request")
        spans.append(
            pop.AckSpan(
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
    return {"broker": member_text(request, "brokerName", ""), "spans": tuple(spans)}


_GROUP: Final = header.text("consumerGroup", "group")
_COUNT: Final = header.int32("maxMsgNums", "count_max")
_INVISIBLE: Final = header.int64("invisibleTime", "invisible_ms")
_POLL: Final = header.int64("pollTime", "poll_ms")
_BORN: Final = header.int64("bornTime", "born_ms", 0)
_ORDERLY: Final = header.boolean("order", "is_orderly")
_ATTEMPT: Final = header.optional("attemptId", "attempt_id")
_ACK: Final = (
    _GROUP,
    header.QUEUE,
    header.text("extraInfo", "handle"),
    header.int64("offset"),
)
_POPPED: Final = Answer(_encode_popped, _decode_popped, frozenset(_STATUSES))

CODECS: Final = (
    Codec(RequestCode.POP_MESSAGE,
          layout(pop.PopMessages, _GROUP, header.QUEUE, _COUNT, _INVISIBLE, _POLL, _BORN,
                 # RocketMQ reads any number but 0 as MAX.
                 field("initMode", "init_mode", lambda fields: _INIT_MODES.get(
                     fields.int32("initMode", 0), pop.InitMode.MAX), lambda mode: str(mode.value)),
                 Field("subscription", _subscription_of, _write_subscription),
                 _ORDERLY, _ATTEMPT),
          _POPPED),
    Codec(RequestCode.PEEK_MESSAGE, layout(pop.PeekMessages, _GROUP, header.QUEUE, _COUNT),
          _POPPED),
    Codec(RequestCode.NOTIFICATION,
          layout(pop.AwaitMessages, _GROUP, header.QUEUE, _POLL, _BORN, _ORDERLY, _ATTEMPT),
          answer(pop.AwaitMessagesReply, header.boolean("hasMsg", "has_message"),
                 header.boolean("pollingFull", "is_polling_full"))),
    Codec(RequestCode.POLLING_INFO, layout(pop.GetPollingCount, _GROUP, header.QUEUE),
          answer(CountReply, header.int32("pollingNum", "count"))),
    Codec(RequestCode.ACK_MESSAGE, layout(pop.AckMessage, *_ACK), DONE),
    # The body names the broker, too, and decides.
    Codec(RequestCode.BATCH_ACK_MESSAGE,
          layout(pop.AckMessages, header.BROKER, body=Content(_acks_json, _acks_of)), DONE),
    Codec(RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
          layout(pop.ChangeInvisibleTime, *_ACK, _INVISIBLE),
          answer(pop.InvisibleTimeReply, header.int64("popTime", "pop_ms"), _INVISIBLE,
                 header.int32("reviveQid", "revive_queue"))),
)  # fmt: skip
