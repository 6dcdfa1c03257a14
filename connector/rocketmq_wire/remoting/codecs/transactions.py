"""The requests of transactions and recall (37, 39, 370) <-> header fields and bodies."""

from __future__ import annotations

from typing import Final

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.model import Buffer
from rocketmq_wire.remoting.codecs.fields import (
    BROKER_NAME,
    Codec,
    EncodedReply,
    Fields,
    RequestCode,
    decode_done,
    encode_done,
    success,
)
from rocketmq_wire.requests.messages import RecallMessage, RecallReply
from rocketmq_wire.requests.transactions import CheckTransaction, EndTransaction, Resolution

Encoded = tuple[dict[str, str], tuple[Buffer, ...]]

_RESOLUTIONS: Final = {resolution.value: resolution for resolution in Resolution}


def _encode_end(request: EndTransaction) -> Encoded:
    fields = {
        "producerGroup": request.group,
        "tranStateTableOffset": str(request.half_offset),
        "commitLogOffset": str(request.position),
        "commitOrRollback": str(request.resolution.value),
        "fromTransactionCheck": "true" if request.is_from_check else "false",
        "msgId": request.message_id,
        "transactionId": request.transaction_id,
    }
    return {**fields, **_named(request.topic, request.broker)}, ()


def _decode_end(fields: Fields, body: Buffer) -> EndTransaction:
    del body
    value = fields.int32("commitOrRollback")
    if value not in _RESOLUTIONS:
        raise RemoteProtocolError(f"commitOrRollback is {value}: neither 0, 8 nor 12")
    return EndTransaction(
        group=fields.text("producerGroup"),
        half_offset=fields.int64("tranStateTableOffset"),
        position=fields.int64("commitLogOffset"),
        resolution=_RESOLUTIONS[value],
        message_id=fields.text("msgId", ""),
        transaction_id=fields.text("transactionId", ""),
        topic=fields.text("topic", ""),
        is_from_check=fields.boolean("fromTransactionCheck", False),
        broker=fields.text(BROKER_NAME, ""),
    )


def _encode_check(request: CheckTransaction) -> Encoded:
    fields = {
        "tranStateTableOffset": str(request.half_offset),
        "commitLogOffset": str(request.position),
        "msgId": request.message_id,
        "transactionId": request.transaction_id,
        "offsetMsgId": request.offset_message_id,
    }
    return {**fields, **_named(request.topic, request.broker)}, (request.record,)


def _decode_check(fields: Fields, body: Buffer) -> CheckTransaction:
    return CheckTransaction(
        half_offset=fields.int64("tranStateTableOffset"),
        position=fields.int64("commitLogOffset"),
        record=bytes(body),
        topic=fields.text("topic", ""),
        message_id=fields.text("msgId", ""),
        transaction_id=fields.text("transactionId", ""),
        offset_message_id=fields.text("offsetMsgId", ""),
        broker=fields.text(BROKER_NAME, ""),
    )


def _encode_recall(request: RecallMessage) -> Encoded:
    fields = {"recallHandle": request.handle, **_named(request.topic, request.broker)}
    if request.group:
        fields["producerGroup"] = request.group
    return fields, ()


def _decode_recall(fields: Fields, body: Buffer) -> RecallMessage:
    del body
    return RecallMessage(
        topic=fields.text("topic"),
        handle=fields.text("recallHandle"),
        group=fields.text("producerGroup", ""),
        broker=fields.text(BROKER_NAME, ""),
    )


def _encode_recalled(request: RecallMessage, reply: RecallReply) -> EncodedReply:
    del request
    # Java reads the region of every answer to a producer.
    return success({"msgId": reply.message_id, "MSG_REGION": "DefaultRegion"})


def _decode_recalled(request: RecallMessage, reply: EncodedReply) -> RecallReply:
    del request
    return RecallReply(Fields(reply.ext_fields).text("msgId"))


def _named(topic: str, broker: str) -> dict[str, str]:
    fields = {"topic": topic} if topic else {}
    return {**fields, BROKER_NAME: broker} if broker else fields


TRANSACTION_CODECS: Final = (
    Codec(
        RequestCode.END_TRANSACTION,
        EndTransaction,
        _encode_end,
        _decode_end,
        encode_done,
        decode_done,
    ),
    Codec(
        RequestCode.CHECK_TRANSACTION_STATE,
        CheckTransaction,
        _encode_check,
        _decode_check,
        encode_done,
        decode_done,
    ),
    Codec(
        RequestCode.RECALL_MESSAGE,
        RecallMessage,
        _encode_recall,
        _decode_recall,
        _encode_recalled,
        _decode_recalled,
    ),
)
