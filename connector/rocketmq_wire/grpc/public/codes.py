"""The status codes of the public gRPC service, and which of them a broker's refusal is.

What goes wrong is told inside a message's `status`; the call itself succeeds.
"""

from __future__ import annotations

import enum
from typing import Any, Final

from rocketmq_wire.errors import BrokerError, RocketMQError
from rocketmq_wire.requests.messages import SendStatus
from rocketmq_wire.stubs import public


class Code(enum.IntEnum):
    """The codes that this project gives or looks at."""

    OK = 20_000
    MULTIPLE_RESULTS = 30_000
    BAD_REQUEST = 40_000
    ILLEGAL_TOPIC = 40_002
    ILLEGAL_CONSUMER_GROUP = 40_003
    ILLEGAL_MESSAGE_TAG = 40_004
    ILLEGAL_MESSAGE_KEY = 40_005
    ILLEGAL_MESSAGE_GROUP = 40_006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40_007
    INVALID_TRANSACTION_ID = 40_008
    ILLEGAL_MESSAGE_ID = 40_009
    ILLEGAL_FILTER_EXPRESSION = 40_010
    ILLEGAL_INVISIBLE_TIME = 40_011
    ILLEGAL_DELIVERY_TIME = 40_012
    INVALID_RECEIPT_HANDLE = 40_013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40_014
    UNRECOGNIZED_CLIENT_TYPE = 40_015
    MESSAGE_CORRUPTED = 40_016
    CLIENT_ID_REQUIRED = 40_017
    ILLEGAL_POLLING_TIME = 40_018
    ILLEGAL_OFFSET = 40_019
    UNAUTHORIZED = 40_100
    FORBIDDEN = 40_300
    MESSAGE_NOT_FOUND = 40_401
    TOPIC_NOT_FOUND = 40_402
    CONSUMER_GROUP_NOT_FOUND = 40_403
    OFFSET_NOT_FOUND = 40_404
    MESSAGE_BODY_TOO_LARGE = 41_301
    MESSAGE_BODY_EMPTY = 41_302
    TOO_MANY_REQUESTS = 42_900
    MESSAGE_PROPERTIES_TOO_LARGE = 43_101
    INTERNAL_SERVER_ERROR = 50_001
    HA_NOT_AVAILABLE = 50_002
    NOT_IMPLEMENTED = 50_100
    PROXY_TIMEOUT = 50_400
    MASTER_PERSISTENCE_TIMEOUT = 50_401
    SLAVE_PERSISTENCE_TIMEOUT = 50_402
    FAILED_TO_CONSUME_MESSAGE = 60_000


class PublicRefusal(RocketMQError):
    """A call cannot be carried out: the code says why, the text what to do."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text

    def __str__(self) -> str:
        return f"{self.code.name}: {self.text}"


_BY_RESPONSE_CODE: Final = {
    2: Code.TOO_MANY_REQUESTS,
    3: Code.NOT_IMPLEMENTED,
    16: Code.FORBIDDEN,
    17: Code.TOPIC_NOT_FOUND,
    23: Code.ILLEGAL_FILTER_EXPRESSION,
    26: Code.CONSUMER_GROUP_NOT_FOUND,
    208: Code.INVALID_RECEIPT_HANDLE,
    209: Code.TOO_MANY_REQUESTS,
    215: Code.TOO_MANY_REQUESTS,
}
_BY_SEND_STATUS: Final = {
    SendStatus.OK: Code.OK,
    SendStatus.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
    SendStatus.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
}


def code_of(error: RocketMQError) -> Code:
    """The code that an error is told by."""
    if isinstance(error, PublicRefusal):
        return error.code
    if isinstance(error, BrokerError):
        return _BY_RESPONSE_CODE.get(error.code, Code.INTERNAL_SERVER_ERROR)
    return Code.INTERNAL_SERVER_ERROR


def code_of_send(status: SendStatus) -> Code:
    return _BY_SEND_STATUS[status]


def status_of(error: RocketMQError) -> Any:
    """The `Status` message of an error."""
    if isinstance(error, PublicRefusal):
        return make_status(error.code, error.text)
    text = error.remark if isinstance(error, BrokerError) else str(error)
    return make_status(code_of(error), text)


def make_status(code: Code, text: str = "") -> Any:
    """A `Status` message; without a text it says the code's name, as the proxy does."""
    return public.message_class("Status")(code=int(code), message=text or code.name)
