"""Requests that read, send, end, send back, look up or recall messages <-> fields and bodies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from rocketmq_wire.codes import RequestCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.model import DEFAULT_TOPIC, Buffer, QueueId, Subscription
from rocketmq_wire.remoting.codecs import header
from rocketmq_wire.remoting.codecs.header import BROKER_NAME, bool_text, queue_of
from rocketmq_wire.remoting.codecs.layouts import (
    DONE,
    RECORD,
    RECORDS,
    Answer,
    Codec,
    Encoded,
    EncodedReply,
    Fields,
    Layout,
    answer,
    constant,
    field,
    layout,
)
from rocketmq_wire.requests import messages, transactions
from rocketmq_wire.requests.contract import Reply, Request

_Send = messages.SendMessage | messages.SendBatch

# --- pull ------------------------------------------------------------------------------------

_PULL_COMMIT: Final = 0x1
_PULL_SUSPEND: Final = 0x2
_PULL_SUBSCRIPTION: Final = 0x4
_PULL_STATUSES = {status.value: status for status in messages.PullStatus}
_PULL_REMARKS = {
    messages.PullStatus.FOUND: "FOUND",
    messages.PullStatus.NO_NEW_MESSAGE: "OFFSET_OVERFLOW_ONE",
    messages.PullStatus.NO_MATCHED_MESSAGE: "NO_MATCHED_MESSAGE",
    messages.PullStatus.OFFSET_ILLEGAL: "OFFSET_OVERFLOW_BADLY",
}


def _encode_pull(request: messages.PullMessages) -> Encoded:
    sys_flag = 0
    if request.commit is not None:
        sys_flag |= _PULL_COMMIT
    if request.suspend_ms is not None:
        sys_flag |= _PULL_SUSPEND
    queue = request.queue
    fields = {
        "consumerGroup": request.group,
        "topic": queue.topic,
        "queueId": str(queue.index),
        "queueOffset": str(request.start),
        "maxMsgNums": str(request.count_max),
        "commitOffset": str(request.commit or 0),
        "suspendTimeoutMillis": str(request.suspend_ms or 0),
        "subVersion": str(request.subscription_version),
    }
    if not request.uses_registered_subscription:
        sys_flag |= _PULL_SUBSCRIPTION
        fields["subscription"] = request.subscription.expression
    fields["expressionType"] = request.subscription.kind
    fields["sysFlag"] = str(sys_flag)
    if request.bytes_max is not None:
        fields["maxMsgBytes"] = str(request.bytes_max)
    if queue.broker:
        fields[BROKER_NAME] = queue.broker
    return fields, ()


def _decode_pull(fields: Fields, _: Buffer) -> messages.PullMessages:
    sys_flag = fields.int32("sysFlag")
    subscription = Subscription(
        fields.text("subscription", "*"), fields.text("expressionType", "").strip() or "TAG"
    )
    return messages.PullMessages(
        group=fields.text("consumerGroup"),
        queue=queue_of(fields),
        start=fields.int64("queueOffset"),
        count_max=fields.int32("maxMsgNums"),
        bytes_max=fields.int32("maxMsgBytes") if fields.has("maxMsgBytes") else None,
        subscription=subscription,
        subscription_version=fields.int64("subVersion", 0),
        uses_registered_subscription=not sys_flag & _PULL_SUBSCRIPTION,
        commit=fields.int64("commitOffset", 0) if sys_flag & _PULL_COMMIT else None,
        suspend_ms=fields.int64("suspendTimeoutMillis", 0) if sys_flag & _PULL_SUSPEND else None,
    )


def _encode_pull_reply(_: messages.PullMessages, reply: messages.PullReply) -> EncodedReply:
    return EncodedReply(
        reply.status.value,
        reply.remark or _PULL_REMARKS[reply.status],
        {
            "suggestWhichBrokerId": str(reply.suggested_broker_id),
            "nextBeginOffset": str(reply.next_begin),
            # Java's decoder refuses a pull answer without them, with any code.
            "minOffset": str(reply.start),
            "maxOffset": str(reply.end),
        },
        reply.records,
    )


def _decode_pull_reply(_: messages.PullMessages, reply: EncodedReply) -> messages.PullReply:
    fields = Fields(reply.ext_fields)
    if fields.has("offsetDelta") and fields.int64("offsetDelta"):
        raise RemoteProtocolError("the topic is a static one (offsetDelta): not supported")
    return messages.PullReply(
        status=_PULL_STATUSES[reply.code],
        next_begin=fields.int64("nextBeginOffset"),
        start=fields.int64("minOffset"),
        end=fields.int64("maxOffset"),
        records=tuple([part for part in reply.body if len(part)]),
        suggested_broker_id=fields.int64("suggestWhichBrokerId", 0),
        remark=reply.remark or "",
    )


# --- send ------------------------------------------------------------------------------------


# The names of code 10 in the order of the letters a to n that 310 and 320 use.
_SEND_NAMES: Final = (
    *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag"),
    *("bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes"),
    *("batch", BROKER_NAME),
)
_LONG_NAMES: Final = {name: name for name in _SEND_NAMES}
_SHORT_NAMES: Final = dict(zip(_SEND_NAMES, "abcdefghijklmn", strict=True))
_SEND_STATUSES = {status.value: status for status in messages.SendStatus}


def _encode_send(request: messages.SendMessage) -> Encoded:
    fields = _send_fields(request, is_batch=False)
    fields["j"] = str(request.reconsume_times)
    if request.reconsume_times_max is not None:
        fields["l"] = str(request.reconsume_times_max)
    return fields, (request.body,)


def _encode_batch(request: messages.SendBatch) -> Encoded:
    fields = _send_fields(request, is_batch=True)
    fields["j"] = "0"
    return fields, (request.body,)


def _send_fields(request: _Send, *, is_batch: bool) -> dict[str, str]:
    fields = {
        "a": request.group,
        "b": request.queue.topic,
        "c": DEFAULT_TOPIC,
        "d": str(request.default_queue_count),
        "e": str(request.queue.index),
        "f": str(request.sys_flag),
        "g": str(request.born_ms),
        "h": str(request.flag),
        "i": str(request.properties, "utf-8", "replace"),
        "k": "false",
        "m": bool_text(is_batch),
    }
    if request.queue.broker:
        fields["n"] = request.queue.broker
    return fields


def _decode_batch(fields: Fields, body: Buffer) -> messages.SendBatch:
    sent = _decode_send(fields, body, is_batch=True)
    assert isinstance(sent, messages.SendBatch)
    return sent


def _decode_send(
    fields: Fields, body: Buffer, names: dict[str, str] = _SHORT_NAMES, *, is_batch: bool = False
) -> _Send:
    queue = QueueId(
        fields.text(names["topic"]),
        # Behind a proxy the common field may name the broker if the letter does not.
        fields.text(names[BROKER_NAME], fields.text(BROKER_NAME, "")),
        fields.int32(names["queueId"]),
    )
    common = (
        fields.text(names["producerGroup"]),
        queue,
        fields.int64(names["bornTimestamp"]),
        body,
        fields.text(names["properties"], "").encode("utf-8", "replace"),
        fields.int32(names["flag"]),
        fields.int32(names["sysFlag"]),
    )
    default_queue_count = fields.int32(names["defaultTopicQueueNums"], 4)
    # Brokers read the field, not the code: 310 with it is a batch, too.
    if is_batch or fields.boolean(names["batch"], False):
        return messages.SendBatch(*common, default_queue_count)
    maximum = names["maxReconsumeTimes"]
    return messages.SendMessage(
        *common,
        fields.int32(names["reconsumeTimes"], 0),
        fields.int32(maximum) if fields.has(maximum) else None,
        default_queue_count,
    )


def _encode_send_reply(_: _Send, reply: messages.SendReply) -> EncodedReply:
    fields = {
        "msgId": reply.message_id,
        "queueId": str(reply.queue_index),
        "queueOffset": str(reply.start),
        # Java producers read these two; brokers send them with every answer.
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    if reply.transaction_id is not None:
        fields["transactionId"] = reply.transaction_id
    if reply.recall_handle is not None:
        fields["recallHandle"] = reply.recall_handle
    remark = None if reply.status is messages.SendStatus.OK else reply.status.name
    return EncodedReply(reply.status.value, remark, fields)


def _decode_send_reply(_: _Send, reply: EncodedReply) -> messages.SendReply:
    fields = Fields(reply.ext_fields)
    message_id = fields.text("msgId")
    return messages.SendReply(
        status=_SEND_STATUSES[reply.code],
        message_id=message_id,
        queue_index=fields.int32("queueId"),
        start=fields.int64("queueOffset"),
        transaction_id=fields.optional_text("transactionId"),
        count=message_id.count(",") + 1,
        recall_handle=fields.optional_text("recallHandle"),
    )


# --- send back -------------------------------------------------------------------------------


# Clients before 3.4.9 send a wrong attempt limit.
_ATTEMPTS_VERSION_MIN: Final = 121


def _attempts_of(fields: Fields) -> int | None:
    has_limit = fields.has("maxReconsumeTimes") and fields.version >= _ATTEMPTS_VERSION_MIN
    return fields.int32("maxReconsumeTimes") if has_limit else None


# --- transactions -----------------------------------------------------------------------------


_RESOLUTIONS: Final = {resolution.value: resolution for resolution in transactions.Resolution}


def _resolution_of(fields: Fields) -> transactions.Resolution:
    value = fields.int32("commitOrRollback")
    if value not in _RESOLUTIONS:
        raise RemoteProtocolError(f"commitOrRollback is {value}: neither 0, 8 nor 12")
    return _RESOLUTIONS[value]


_HALF: Final = header.int64("tranStateTableOffset", "half_offset")
_POSITION: Final = header.int64("commitLogOffset", "position")
_MESSAGE_ID: Final = header.text("msgId", "message_id", "")
_TRANSACTION_ID: Final = header.text("transactionId", "transaction_id", "")

# --- codecs ----------------------------------------------------------------------------------


_SENT: Final = Answer(_encode_send_reply, _decode_send_reply, frozenset(_SEND_STATUSES))

CODECS: Final = (
    Codec(RequestCode.PULL_MESSAGE, Layout(messages.PullMessages, _encode_pull, _decode_pull),
          Answer(_encode_pull_reply, _decode_pull_reply, frozenset(_PULL_STATUSES))),
    # 310 may carry a batch: see `_decode_send`.
    Codec(RequestCode.SEND_MESSAGE_V2,
          Layout(messages.SendMessage, _encode_send, _decode_send),  # type: ignore[arg-type]
          _SENT),
    Codec(RequestCode.SEND_BATCH_MESSAGE,
          Layout(messages.SendBatch, _encode_batch, _decode_batch), _SENT),
    Codec(RequestCode.CONSUMER_SEND_MSG_BACK,
          layout(messages.SendBack, header.int64("offset", "physical_offset"),
                 header.text("group"), header.int32("delayLevel", "delay_level"),
                 constant("unitMode", "false"), header.optional("originMsgId", "message_id"),
                 header.optional("originTopic", "topic"),
                 field("maxReconsumeTimes", "attempts_max", _attempts_of,
                       lambda limit: None if limit is None else str(limit))),
          DONE),
    # Java reads the region of every answer to a producer.
    Codec(RequestCode.RECALL_MESSAGE,
          layout(messages.RecallMessage, header.text("recallHandle", "handle"),
                 header.optional("topic", default=None), header.BROKER,
                 header.optional("producerGroup", "group")),
          answer(messages.RecallReply, header.text("msgId", "message_id"),
                 constant("MSG_REGION", "DefaultRegion"))),
    Codec(RequestCode.VIEW_MESSAGE_BY_ID,
          layout(messages.ViewMessage, header.int64("offset", "physical_offset"),
                 header.optional("topic")),
          answer(messages.RecordsReply, body=RECORDS)),
    Codec(RequestCode.QUERY_MESSAGE,
          layout(messages.QueryMessages, header.text("topic"), header.text("key"),
                 header.int32("maxNum", "count_max"), header.int64("beginTimestamp", "begin_ms"),
                 header.int64("endTimestamp", "end_ms"),
                 header.boolean("_UNIQUE_KEY_QUERY", "is_unique_key")),
          answer(messages.RecordsReply,
                 header.int64("indexLastUpdateTimestamp", "index_end_ms", 0),
                 header.int64("indexLastUpdatePhyoffset", "index_end", 0), body=RECORDS)),
    Codec(RequestCode.END_TRANSACTION,
          layout(transactions.EndTransaction, header.text("producerGroup", "group"), _HALF,
                 _POSITION, field("commitOrRollback", "resolution", _resolution_of,
                                  lambda resolution: str(resolution.value)),
                 header.boolean("fromTransactionCheck", "is_from_check"), _MESSAGE_ID,
                 _TRANSACTION_ID, header.optional("topic"), header.BROKER),
          DONE),
    Codec(RequestCode.CHECK_TRANSACTION_STATE,
          layout(transactions.CheckTransaction, _HALF, _POSITION, _MESSAGE_ID, _TRANSACTION_ID,
                 header.text("offsetMsgId", "offset_message_id", ""), header.optional("topic"),
                 header.BROKER, body=RECORD),
          DONE),
)  # fmt: skip

DECODERS: Final[dict[int, Callable[[Fields, Buffer], Request[Reply]]]] = {
    RequestCode.SEND_MESSAGE: partial(_decode_send, names=_LONG_NAMES),
    RequestCode.LITE_PULL_MESSAGE: _decode_pull,
}
"""Codes that brokers answer and clients of this project never send."""
