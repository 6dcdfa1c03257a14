"""The two requests of transactions <-> header fields and bodies."""

from __future__ import annotations

from typing import Final

from rocketmq_wire.codes import RequestCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.model import Buffer
from rocketmq_wire.remoting.codecs.fields import (
    BROKER_NAME,
    Encoded,
    Fields,
    bool_text,
    done_codec,
    topic_fields,
)
from rocketmq_wire.requests.transactions import CheckTransaction, EndTransaction, Resolution

_RESOLUTIONS: Final = {resolution.value: resolution for resolution in Resolution}


def _encode_end(request: EndTransaction) -> Encoded:
    fields = {
        "producerGroup": request.group,
        "tranStateTableOffset": str(request.half_offset),
        "commitLogOffset": str(request.position),
        "commitOrRollback": str(request.resolution.value),
        "fromTransactionCheck": bool_text(request.is_from_check),
        "msgId": request.message_id,
        "transactionId": request.transaction_id,
    }
    return {**fields, **topic_fields(request.topic, request.broker)}, ()


def _decode_end(fields: Fields, _: Buffer) -> EndTransaction:
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
    return {**fields, **topic_fields(request.topic, request.broker)}, (request.record,)


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


TRANSACTION_CODECS: Final = (
    done_codec(RequestCode.END_TRANSACTION, EndTransaction, _encode_end, _decode_end),
    done_codec(RequestCode.CHECK_TRANSACTION_STATE, CheckTransaction, _encode_check, _decode_check),
)  # fmt: skip
