"""Broker errors <-> the `status` of the public gRPC service's messages.

A failure travels in a message's `status`; the gRPC call itself succeeds.
"""

from __future__ import annotations

from typing import Any, Final

from rocketmq_wire.codes import PublicCode, ResponseCode
from rocketmq_wire.errors import BrokerError, PublicRefusal, RocketMQError, broker_error
from rocketmq_wire.requests.messages import SendStatus
from rocketmq_wire.stubs import public

_BY_RESPONSE_CODE: Final[dict[int, PublicCode]] = {
    ResponseCode.SYSTEM_BUSY: PublicCode.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: PublicCode.NOT_IMPLEMENTED,
    ResponseCode.NO_PERMISSION: PublicCode.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: PublicCode.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: PublicCode.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: PublicCode.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.NO_MESSAGE: PublicCode.INVALID_RECEIPT_HANDLE,
    ResponseCode.POLLING_FULL: PublicCode.TOO_MANY_REQUESTS,
    ResponseCode.FLOW_CONTROL: PublicCode.TOO_MANY_REQUESTS,
}
_RESPONSE_CODES: Final[dict[int, ResponseCode]] = {
    PublicCode.UNAUTHORIZED: ResponseCode.NO_PERMISSION,
    PublicCode.FORBIDDEN: ResponseCode.NO_PERMISSION,
    PublicCode.TOPIC_NOT_FOUND: ResponseCode.TOPIC_NOT_EXIST,
    PublicCode.ILLEGAL_FILTER_EXPRESSION: ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    PublicCode.CONSUMER_GROUP_NOT_FOUND: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    PublicCode.INVALID_RECEIPT_HANDLE: ResponseCode.NO_MESSAGE,
    PublicCode.TOO_MANY_REQUESTS: ResponseCode.SYSTEM_BUSY,
    PublicCode.NOT_IMPLEMENTED: ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    PublicCode.PROXY_TIMEOUT: ResponseCode.SYSTEM_BUSY,
}
_BY_SEND_STATUS: Final = {
    SendStatus.OK: PublicCode.OK,
    SendStatus.FLUSH_DISK_TIMEOUT: PublicCode.MASTER_PERSISTENCE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE: PublicCode.HA_NOT_AVAILABLE,
    SendStatus.FLUSH_SLAVE_TIMEOUT: PublicCode.SLAVE_PERSISTENCE_TIMEOUT,
}


def code_of(error: RocketMQError) -> PublicCode:
    if isinstance(error, PublicRefusal):
        return error.code
    if isinstance(error, BrokerError):
        return _BY_RESPONSE_CODE.get(error.code, PublicCode.INTERNAL_SERVER_ERROR)
    return PublicCode.INTERNAL_SERVER_ERROR


def code_of_send(status: SendStatus) -> PublicCode:
    return _BY_SEND_STATUS[status]


def status_of(error: RocketMQError) -> Any:
    if isinstance(error, PublicRefusal):
        return make_status(error.code, error.text)
    text = error.remark if isinstance(error, BrokerError) else str(error)
    return make_status(code_of(error), text)


def make_status(code: PublicCode, text: str = "") -> Any:
    """A `Status` message; without a text it carries the code's name, as the proxy's does."""
    return public.message_class("Status")(code=int(code), message=text or code.name)


def error_of_status(status: Any) -> BrokerError | None:
    """The error that a received `Status` stands for; None for success."""
    if status.code in (0, PublicCode.OK):
        return None
    code = _RESPONSE_CODES.get(status.code, ResponseCode.SYSTEM_ERROR)
    return broker_error(code, f"{status.message} (status {status.code})")


def check_status(status: Any) -> None:
    """Raises BrokerError for the status of a failure."""
    error = error_of_status(status)
    if error is not None:
        raise error
