"""A unary call of the bulk service, made of pure functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from rocketmq_wire.errors import BrokerError, LocalProtocolError
from rocketmq_wire.model import Buffer
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.stubs import SERVICE, message_class, parse, serialize

AnyRequest = Request[Any]
Outcome = Reply | BrokerError


@dataclass(frozen=True, slots=True)
class Method:
    """One unary call of the service: how requests and outcomes become bytes."""

    name: str
    request_types: tuple[type[AnyRequest], ...]
    encode_requests: Callable[[Sequence[AnyRequest]], bytes]
    decode_requests: Callable[[bytes], tuple[AnyRequest, ...]]
    encode_outcomes: Callable[[Sequence[AnyRequest], Sequence[Outcome]], bytes]
    """Raises the BrokerError if the call's answer cannot carry it."""
    decode_outcomes: Callable[[Sequence[AnyRequest], Buffer], list[Outcome]]
    sharing_key: Callable[[AnyRequest], Hashable] | None = None
    """Requests with equal keys may share a call; None: every request takes its own call."""

    @property
    def path(self) -> str:
        return f"/{SERVICE}/{self.name}"

    def encode(self, requests: Sequence[AnyRequest]) -> bytes:
        """The bytes of the call's request.

        Raises LocalProtocolError for values that protobuf cannot carry.
        """
        try:
            return self.encode_requests(requests)
        except (TypeError, ValueError) as error:
            raise LocalProtocolError(
                f"{self.name} cannot carry {requests[0]!r}: {error}"
            ) from error


def alone(
    name: str,
    request_types: tuple[type[AnyRequest], ...],
    encode_request: Callable[[Any], bytes],
    decode_request: Callable[[bytes], AnyRequest],
    encode_reply: Callable[[Any, Any], bytes],
    decode_reply: Callable[[Any, Buffer], Outcome],
) -> Method:
    """A call that carries one request."""

    def encode_outcomes(requests: Sequence[AnyRequest], outcomes: Sequence[Outcome]) -> bytes:
        (outcome,) = outcomes
        if isinstance(outcome, BrokerError):
            raise outcome
        return encode_reply(requests[0], outcome)

    return Method(
        name=name,
        request_types=request_types,
        encode_requests=lambda requests: encode_request(requests[0]),
        decode_requests=lambda content: (decode_request(content),),
        encode_outcomes=encode_outcomes,
        decode_outcomes=lambda requests, content: [decode_reply(requests[0], content)],
    )


def small(
    name: str,
    request_types: tuple[type[AnyRequest], ...],
    to_fields: Callable[[Any], dict[str, Any]],
    from_message: Callable[[Any], AnyRequest],
    reply_to_message: Callable[[Any], Any],
    reply_from_message: Callable[[Any], Reply],
) -> Method:
    """A call that carries one request, without large fields."""
    request_class, response_name = message_class(f"{name}Request"), f"{name}Response"
    return alone(
        name,
        request_types,
        lambda request: serialize(request_class(**to_fields(request))),
        lambda content: from_message(parse(f"{name}Request", content)),
        lambda _, reply: serialize(reply_to_message(reply)),
        lambda _, content: reply_from_message(parse(response_name, content)),
    )


def done(
    name: str,
    request_types: tuple[type[AnyRequest], ...],
    to_fields: Callable[[Any], dict[str, Any]],
    from_message: Callable[[Any], AnyRequest],
) -> Method:
    """A call whose answer is `Done`."""
    response_class = message_class(f"{name}Response")
    return small(
        name,
        request_types,
        to_fields,
        from_message,
        lambda reply: response_class(remark=reply.remark),
        lambda message: Done(message.remark),
    )
