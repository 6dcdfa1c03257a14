"""The codec of one request, and the header fields that many requests share.

Header fields travel as text. `Fields` checks names, types and ranges; its errors become refusals by
a broker and protocol errors in a client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from rocketmq_wire import fastjson
from rocketmq_wire.codes import RequestCode, ResponseCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import Json, json_object
from rocketmq_wire.model import Buffer, QueueId
from rocketmq_wire.requests.contract import Done, Reply, Request

_NUMBER_SIZE_MAX: Final = 20

Encoded = tuple[dict[str, str], tuple[Buffer, ...]]
"""Header fields and body of a request; the body's parts follow each other."""


class EncodedRequest(NamedTuple):
    """A request as a frame carries it; the body's parts follow each other."""

    code: int
    ext_fields: dict[str, str]
    body: tuple[Buffer, ...] = ()


class EncodedReply(NamedTuple):
    """A reply as a frame carries it; the body's parts follow each other."""

    code: int
    remark: str | None
    ext_fields: dict[str, str]
    body: tuple[Buffer, ...] = ()


class Fields:
    """Typed access to header fields. Every method raises RemoteProtocolError for a bad one."""

    __slots__ = ("_fields", "language", "version")

    def __init__(self, fields: Mapping[str, str], version: int = 0, language: str = "") -> None:
        self._fields = fields
        self.version = version
        """The sender's version, from the frame's header."""
        self.language = language

    def text(self, name: str, default: str | None = None) -> str:
        value = self._fields.get(name, default)
        if value is None:
            raise RemoteProtocolError(f"the header field {name} is missing")
        return value

    def optional_text(self, name: str) -> str | None:
        """The field's text; None if it is absent or empty."""
        return self._fields.get(name) or None

    def int32(self, name: str, default: int | None = None) -> int:
        return self._integer(name, default, 31)

    def int64(self, name: str, default: int | None = None) -> int:
        text = self._fields.get(name)
        # Up to 18 digits always fit; most numbers of most answers are such.
        if text is not None and len(text) < 19 and text.isdecimal():
            return int(text)
        return self._integer(name, default, 63)

    def boolean(self, name: str, default: bool) -> bool:
        """Java's reading: `true` in any case is true, any other text false."""
        value = self._fields.get(name)
        return default if value is None else value.lower() == "true"

    def has(self, name: str) -> bool:
        return name in self._fields

    def _integer(self, name: str, default: int | None, bits: int) -> int:
        text = self._fields.get(name)
        if text is None:
            if default is None:
                raise RemoteProtocolError(f"the header field {name} is missing")
            return default
        # Python's int() also takes blanks, underscores and numbers of any length.
        is_number = len(text) <= _NUMBER_SIZE_MAX and text.removeprefix("-").isdecimal()
        value = int(text) if is_number else 0
        if not is_number or not -(1 << bits) <= value < 1 << bits:
            raise RemoteProtocolError(f"the header field {name} is no number: {text[:40]!r}")
        return value


Q = TypeVar("Q", bound="Request[Reply]")
P = TypeVar("P", bound=Reply)


@dataclass(frozen=True, slots=True)
class Codec(Generic[Q, P]):
    """How one kind of request and its reply become bytes."""

    code: RequestCode
    request: type[Q]
    encode: Callable[[Q], Encoded]
    decode: Callable[[Fields, Buffer], Q]
    encode_reply: Callable[[Q, P], EncodedReply]
    decode_reply: Callable[[Q, EncodedReply], P]
    """Called for the reply codes in `codes`; the body comes in one part."""
    codes: frozenset[int] = frozenset({ResponseCode.SUCCESS})
    """Reply codes that are answers; all others are errors."""


# --- parts that many requests share ---------------------------------------------------------


BROKER_NAME: Final = "bname"
"""The broker that a request is meant for: brokers ignore it, RocketMQ's proxy insists on it."""


def queue_fields(queue: QueueId) -> dict[str, str]:
    """The header fields that name a queue."""
    fields = {"topic": queue.topic, "queueId": str(queue.index)}
    if queue.broker:
        fields[BROKER_NAME] = queue.broker
    return fields


def topic_fields(topic: str, broker: str) -> dict[str, str]:
    """The header fields that name a topic and a broker; an empty name is left out."""
    fields = {"topic": topic} if topic else {}
    return {**fields, BROKER_NAME: broker} if broker else fields


def queue_of(fields: Fields) -> QueueId:
    """The queue that a request names; its broker is "" if the request names none."""
    return QueueId(fields.text("topic"), fields.text(BROKER_NAME, ""), fields.int32("queueId"))


def bool_text(value: bool) -> str:
    """A boolean as Java writes it."""
    return "true" if value else "false"


def no_fields(_: object) -> Encoded:
    """The encoding of a request without fields."""
    return {}, ()


def json_bytes(value: Json, *, quotes_integer_keys: bool = True) -> bytes:
    return fastjson.dumps(value, quotes_integer_keys=quotes_integer_keys).encode("utf-8", "replace")


def json_request(body: Json) -> Encoded:
    """The encoding of a request whose fields all travel in a JSON body."""
    return {}, (json_bytes(body),)


def success(
    ext_fields: dict[str, str] | None = None, body: Json = None, remark: str = ""
) -> EncodedReply:
    """Code 0 with header fields, and a body written as strict JSON."""
    parts = () if body is None else (json_bytes(body),)
    return EncodedReply(ResponseCode.SUCCESS, remark or None, ext_fields or {}, parts)


def done_codec(
    code: RequestCode,
    request: type[Q],
    encode: Callable[[Q], Encoded],
    decode: Callable[[Fields, Buffer], Q],
) -> Codec[Q, Done]:
    """The codec of a request that is answered with `Done`."""
    return Codec(
        code,
        request,
        encode,
        decode,
        lambda _, reply: success(remark=reply.remark),
        lambda _, reply: Done(reply.remark or ""),
    )


def json_body(reply: EncodedReply) -> dict[str, Json]:
    """The JSON object in a reply's body; empty if there is no body."""
    return json_object(reply.body[0] if reply.body else b"")
