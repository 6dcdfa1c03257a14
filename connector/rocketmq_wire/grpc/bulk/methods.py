"""A unary call of the bulk service, made of pure functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rocketmq_wire.errors import BrokerError, LocalProtocolError, RemoteProtocolError
from rocketmq_wire.grpc.bulk.shapes import Converter, Shape
from rocketmq_wire.limits import CALL_ITEMS_MAX, LIST_SIZE_MAX
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
    sharing_key: Callable[[Any], Hashable] | None = None
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
    decode_reply: Callable[[Buffer], Outcome],
) -> Method:

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
        decode_outcomes=lambda _, content: [decode_reply(content)],
    )


def small(
    name: str, request_types: tuple[type[AnyRequest], ...], request: Converter, reply: Converter
) -> Method:
    """A call that carries one request, without large fields."""
    return alone(
        name,
        request_types,
        lambda value: serialize(request.to_message(value)),
        lambda content: request.from_message(parse_request(name, content)),
        lambda _, value: serialize(reply.to_message(value)),
        lambda content: reply.from_message(parse(f"{name}Response", content)),
    )


def simple(
    name: str,
    request_class: type[AnyRequest],
    reply_class: type[Reply] = Done,
    *,
    renamed: Mapping[str, str] | None = None,
    **converters: Converter,
) -> Method:
    """A call whose two messages have the fields of its classes. See `Shape` for the options."""
    request = Shape(f"{name}Request", request_class, renamed=renamed, **converters)
    reply = Shape(f"{name}Response", reply_class, renamed=renamed, **converters)
    return small(name, (request_class,), request, reply)


def shared(
    name: str,
    request_types: tuple[type[AnyRequest], ...],
    to_fields: Callable[[Sequence[Any]], dict[str, Any]],
    from_message: Callable[[Any], tuple[AnyRequest, ...]],
    result: Converter,
    sharing_key: Callable[[Any], Hashable],
) -> Method:
    """A call with many requests, and a result for each."""

    def decode_outcomes(requests: Sequence[AnyRequest], content: Buffer) -> list[Outcome]:
        results = parse(f"{name}Response", content).results
        if len(results) != len(requests):
            raise RemoteProtocolError(f"{len(requests)} requests got {len(results)} answers")
        return [result.from_message(one) for one in results]

    return Method(
        name=name,
        request_types=request_types,
        encode_requests=lambda requests: serialize(
            message_class(f"{name}Request")(**to_fields(requests))
        ),
        decode_requests=lambda content: from_message(parse_request(name, content)),
        encode_outcomes=lambda _, outcomes: serialize(
            message_class(f"{name}Response")(
                results=[result.to_message(outcome) for outcome in outcomes]
            )
        ),
        decode_outcomes=decode_outcomes,
        sharing_key=sharing_key,
    )


def parse_request(name: str, content: Buffer, size_max: int = LIST_SIZE_MAX) -> Any:
    """The message of a request without records. Raises RemoteProtocolError."""
    check_size(name, content, size_max)
    return parse(f"{name}Request", content)


def check_size(name: str, content: Buffer, size_max: int = LIST_SIZE_MAX) -> None:
    """Check the size of a request without records. Raises RemoteProtocolError.

    This comes before the request is parsed: of empty items a message makes fifty times its size.
    """
    if len(content) > size_max:
        raise RemoteProtocolError(f"a {name} request has {len(content)} bytes, over {size_max}")


def limited(items: Sequence[Any], count_max: int = CALL_ITEMS_MAX) -> Sequence[Any]:
    """The items of a call. Raises RemoteProtocolError if there are too many."""
    if len(items) > count_max:
        raise RemoteProtocolError(f"a call has {len(items)} items, over {count_max}")
    return items
