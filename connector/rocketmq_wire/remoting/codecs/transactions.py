"""The two requests of transactions <-> header fields and bodies."""

from __future__ import annotations

from typing import Final

from rocketmq_wire.codes import RequestCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.remoting.codecs import header
from rocketmq_wire.remoting.codecs.layouts import DONE, RECORD, Codec, Fields, field, layout
from rocketmq_wire.requests.transactions import CheckTransaction, EndTransaction, Resolution

_RESOLUTIONS: Final = {resolution.value: resolution for resolution in Resolution}


def _resolution_of(fields: Fields) -> Resolution:
    value = fields.int32("commitOrRollback")
    if value not in _RESOLUTIONS:
        raise RemoteProtocolError(f"commitOrRollback is {value}: neither 0, 8 nor 12")
    return _RESOLUTIONS[value]


_HALF: Final = header.int64("tranStateTableOffset", "half_offset")
_POSITION: Final = header.int64("commitLogOffset", "position")
_MESSAGE_ID: Final = header.text("msgId", "message_id", "")
_TRANSACTION_ID: Final = header.text("transactionId", "transaction_id", "")

CODECS: Final = (
    Codec(RequestCode.END_TRANSACTION,
          layout(EndTransaction, header.text("producerGroup", "group"), _HALF, _POSITION,
                 field("commitOrRollback", "resolution", _resolution_of,
                              lambda resolution: str(resolution.value)),
                 header.boolean("fromTransactionCheck", "is_from_check"), _MESSAGE_ID,
                 _TRANSACTION_ID, header.optional("topic"), header.BROKER),
          DONE),
    Codec(RequestCode.CHECK_TRANSACTION_STATE,
          layout(CheckTransaction, _HALF, _POSITION, _MESSAGE_ID, _TRANSACTION_ID,
                 header.text("offsetMsgId", "offset_message_id", ""), header.optional("topic"),
                 header.BROKER, body=RECORD),
          DONE),
)  # fmt: skip
