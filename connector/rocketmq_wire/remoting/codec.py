"""Requests and replies <-> the content of a remoting frame: code, remark, header fields, body.

`codecs` holds the codecs of the single requests; this module joins them in one table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from rocketmq_wire import fastjson
from rocketmq_wire.codes import RequestCode, ResponseCode
from rocketmq_wire.errors import BrokerError, LocalProtocolError, RemoteProtocolError, broker_error
from rocketmq_wire.limits import LIST_SIZE_MAX, LIST_VALUES_MAX, REQUEST_SIZE_MAX
from rocketmq_wire.model import Buffer
from rocketmq_wire.remoting.codecs import (
    brokers,
    groups,
    members,
    messages,
    offsets,
    pop,
    registration,
    topics,
)
from rocketmq_wire.remoting.codecs.layouts import Codec, EncodedReply, EncodedRequest, Fields
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.members import RelayedReply

R = TypeVar("R", bound=Reply)

_Decode = Callable[[Fields, Buffer], "Request[Reply]"]

_MODULES: Final = (messages, offsets, groups, members, topics, brokers, registration, pop)
# Any: mypy checks each row where it is made.
_ROWS: Final[list[Codec[Any, Any]]] = [row for module in _MODULES for row in module.CODECS]
_BY_TYPE: Final[dict[type, Codec[Any, Any]]] = {row.request.record: row for row in _ROWS}
_DECODERS: Final[dict[int, _Decode]] = {
    **{row.code: row.request.decode for row in _ROWS},
    **messages.DECODERS,
}
_SENDS: Final = frozenset(
    (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
)
_LISTS: Final = frozenset(
    (RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ,
     RequestCode.BATCH_ACK_MESSAGE, RequestCode.REGISTER_BROKER)
)  # fmt: skip
_FREE: Final = frozenset(
    row.code
    for row in _ROWS
    if row.request.record.to_name_server and not row.request.record.access.cluster
)


def encode_request(request: Request[Reply]) -> EncodedRequest:
    """The content of a request's frame.

    Raises LocalProtocolError if TCP has no such request, or its body is no bytes.
    """
    row = _row_of(request)
    ext_fields, body = row.request.encode(request)
    for part in body:
        if not isinstance(part, Buffer):
            raise LocalProtocolError(f"a body is bytes, not {type(part).__name__}")
    return EncodedRequest(row.code, ext_fields, body)


def decode_request(header: Header, body: Buffer) -> Request[Reply]:
    """The request in a frame.

    Raises UnsupportedRequestError (3) for an unknown code, and BrokerError (1) for an incomplete
    request: a broker answers with both.
    """
    check_code(header.code)
    try:
        return _DECODERS[header.code](
            Fields(header.ext_fields, header.version, header.language), body
        )
    except RemoteProtocolError as error:
        raise broker_error(ResponseCode.SYSTEM_ERROR, str(error)) from error


def check_code(code: int) -> None:
    """Raises UnsupportedRequestError (3) for a code that is no request."""
    if code not in _DECODERS:
        remark = f" request type {code} not supported"
        raise broker_error(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


def check_request_size(code: int, body: Buffer) -> None:
    """Refuse (1) a body that would take a server too long to parse; sends have none to parse."""
    size = len(body)
    if size <= REQUEST_SIZE_MAX or code in _SENDS:
        return
    size_max = LIST_SIZE_MAX if code in _LISTS else REQUEST_SIZE_MAX
    if size > size_max:
        reason = f"{size} bytes, over {size_max}"
    else:
        text = str(body, "utf-8", "replace")
        values = sum(map(text.count, ",[{"))
        if values > LIST_VALUES_MAX:
            reason = f"some {values} values, over {LIST_VALUES_MAX}"
        elif not fastjson.is_strict(text):
            reason = f"{size} bytes that are no strict JSON"
        else:
            return
    remark = f"the body of a request of type {code} has {reason}"
    raise broker_error(ResponseCode.SYSTEM_ERROR, remark)


def is_free(code: int) -> bool:
    """True for the requests of a name server that change nothing: they need no account."""
    return code in _FREE


def encode_reply(request: Request[Reply], reply: Reply | BrokerError) -> EncodedReply:
    """The content of the frame of an answer or a refusal."""
    if isinstance(reply, BrokerError):
        return EncodedReply(reply.code, reply.remark, {})
    if isinstance(reply, RelayedReply):
        return EncodedReply(reply.code, reply.remark, dict(reply.ext_fields), (reply.body,))
    encoded: EncodedReply = _row_of(request).answer.encode(request, reply)
    return encoded


def decode_reply(request: Request[R], header: Header, body: Buffer) -> R:
    """The answer in a frame; a body of records is not copied.

    Raises the BrokerError that the code stands for, or RemoteProtocolError.
    """
    row = _row_of(request)
    if header.code not in row.answer.codes:
        raise broker_error(header.code, header.remark or "")
    encoded = EncodedReply(header.code, header.remark, header.ext_fields, (body,))
    try:
        return cast("R", row.answer.decode(request, encoded))
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"the answer to {row.code.name} is broken: {error}") from error


def _row_of(request: Request[Reply]) -> Codec[Any, Any]:
    row = _BY_TYPE.get(type(request))
    if row is None:
        raise LocalProtocolError(f"{type(request).__name__} does not exist in the TCP protocol")
    return row
