"""Layouts: what of a request or reply travels in which header field and where in the body.

A request has one entry: its code, the layout of its class, and the answer that it gets.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from rocketmq_wire.codes import RequestCode, ResponseCode
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.model import Buffer
from rocketmq_wire.numbers import whole_number
from rocketmq_wire.requests.contract import Done, Reply, Request

_NUMBER_SIZE_MAX: Final = 20

S = TypeVar("S")
D = TypeVar("D")
V = TypeVar("V")
T = TypeVar("T")
Q_contra = TypeVar("Q_contra", bound="Request[Reply]", contravariant=True)
Q = TypeVar("Q", bound="Request[Reply]")
P = TypeVar("P", bound=Reply)

Encoded = tuple[dict[str, str], tuple[Buffer, ...]]
"""Header fields and body; the body's parts follow each other."""


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
        value = whole_number(text, digits_max=_NUMBER_SIZE_MAX, is_signed=True)
        if value is None or not -(1 << bits) <= value < 1 << bits:
            raise RemoteProtocolError(f"the header field {name} is no number: {text[:40]!r}")
        return value


@dataclass(frozen=True, slots=True)
class Field(Generic[S, D]):
    """An attribute's way from a source, and from its record into a dictionary."""

    attribute: str
    read: Callable[[S], object] | None
    """None for what is only written, and has no attribute."""
    # Any: the record, whose class the layout names.
    write: Callable[[dict[str, D], Any], None]


HeaderField = Field[Fields, str]


def field(
    name: str, attribute: str, read: Callable[[S], V], write: Callable[[V], D | None]
) -> Field[S, D]:
    """One attribute under one name; `write` returns None to leave it out."""
    attribute = attribute or name

    def write_into(target: dict[str, D], record: object) -> None:
        written = write(getattr(record, attribute))
        if written is not None:
            target[name] = written

    return Field(attribute, read, write_into)


def read_only(attribute: str, read: Callable[[S], object]) -> Field[S, D]:
    return Field(attribute, read, lambda _target, _record: None)


def constant(name: str, value: D) -> Field[S, D]:
    """What peers expect, and nobody here reads."""
    return Field("", None, lambda target, _: target.update({name: value}))


@dataclass(frozen=True, slots=True)
class Content:
    """The attributes that travel in a body."""

    write: Callable[[Any], tuple[Buffer, ...]]
    read: Callable[[Buffer], dict[str, object]]


NO_CONTENT: Final = Content(lambda _: (), lambda _: {})
RECORD: Final = Content(
    lambda request: (request.record,), lambda content: {"record": bytes(content)}
)
RECORDS: Final = Content(lambda reply: reply.records, lambda content: {"records": (content,)})


@dataclass(frozen=True, slots=True)
class Layout(Generic[T]):
    """How one class of requests or replies becomes header fields and a body."""

    record: type[T]
    encode: Callable[[T], Encoded]
    decode: Callable[[Fields, Buffer], T]


def layout(record: type[T], *header: HeaderField, body: Content = NO_CONTENT) -> Layout[T]:
    """The layout of a dataclass: its header fields are written in the given order.

    They are read in the order of the attributes, so that a refusal names the first that is wrong.
    """
    attributes = list(inspect.signature(record).parameters)
    readers = [(field.attribute, field.read) for field in header if field.read is not None]
    readers.sort(key=lambda reader: attributes.index(reader[0]))
    writers = [field.write for field in header]

    def encode(value: T) -> Encoded:
        ext_fields: dict[str, str] = {}
        for write in writers:
            write(ext_fields, value)
        return ext_fields, body.write(value)

    def decode(fields: Fields, content: Buffer) -> T:
        found = {attribute: read(fields) for attribute, read in readers}
        if body is not NO_CONTENT:
            found.update(body.read(content))
        return record(**found)

    return Layout(record, encode, decode)


@dataclass(frozen=True, slots=True)
class Answer(Generic[Q_contra, P]):
    """How the replies to requests become frames."""

    encode: Callable[[Q_contra, P], EncodedReply]
    decode: Callable[[Q_contra, EncodedReply], P]
    """Called for the reply codes in `codes`; the body comes in one part."""
    codes: frozenset[int] = frozenset({ResponseCode.SUCCESS})
    """Reply codes that are answers; all others are errors."""


def answer(
    record: type[P], *header: HeaderField, body: Content = NO_CONTENT
) -> Answer[Request[Reply], P]:
    """The answer of a reply's layout, with code 0."""
    reply_layout = layout(record, *header, body=body)

    def encode(_: Request[Reply], reply: P) -> EncodedReply:
        return EncodedReply(ResponseCode.SUCCESS, None, *reply_layout.encode(reply))

    def decode(_: Request[Reply], reply: EncodedReply) -> P:
        return reply_layout.decode(Fields(reply.ext_fields), reply.body[0])

    return Answer(encode, decode)


DONE: Final[Answer[Request[Reply], Done]] = Answer(
    lambda _, reply: EncodedReply(ResponseCode.SUCCESS, reply.remark or None, {}),
    lambda _, reply: Done(reply.remark or ""),
)


@dataclass(frozen=True, slots=True)
class Codec(Generic[Q, P]):
    """How one kind of request and its reply become bytes."""

    code: RequestCode
    request: Layout[Q]
    answer: Answer[Q, P]
