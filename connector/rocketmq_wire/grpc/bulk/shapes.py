"""Values <-> protobuf messages whose fields have the same names.

A field travels as it is unless it has a converter; an absent optional scalar is None.

The messages of the bulk service have their large fields at numbers 14 and 15, after all others:

    small fields (1 to 13)      written and read by the protobuf library
    0x72 varint(size) sizes     field 14, length-delimited
    0x7A varint(size) bytes     field 15, length-delimited

The protobuf library copies a bytes field when it is set, when it is serialised and when it is read.
This module copies the parts once when it writes, and returns memoryviews when it reads. The reader
accepts fields in any order, as protobuf requires; the last of a repeated field wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Generic, Protocol, TypeVar

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.limits import MESSAGE_FIELDS_MAX
from rocketmq_wire.model import Buffer, buffer_size
from rocketmq_wire.stubs import message_class, parse, serialize

V = TypeVar("V")

SIZES_FIELD: Final = 14
BODY_FIELD: Final = 15
_BODY: Final = 4
"""The body's field in a message of the public service."""

_VARINT, _FIXED_64, _LENGTH_DELIMITED, _FIXED_32 = 0, 1, 2, 5
# A varint holds 64 bits, 7 in a byte.
_VARINT_SIZE_MAX: Final = 10


class Converter(Protocol):
    """How a value becomes a message or the value of a field, and back."""

    @property
    def to_message(self) -> Callable[[Any], Any]: ...

    @property
    def from_message(self) -> Callable[[Any], Any]: ...


@dataclass(frozen=True, slots=True)
class Pair:
    to_message: Callable[[Any], Any]
    from_message: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


SAME: Final = Pair(_same, _same)
TUPLE: Final = Pair(_same, tuple)
"""A repeated scalar field."""
MAPPING: Final = Pair(dict, dict)


def repeated(one: Converter) -> Pair:
    return Pair(
        lambda values: [one.to_message(value) for value in values],
        lambda messages: tuple(one.from_message(message) for message in messages),
    )


def or_else(default: Any) -> Pair:
    """A field that stands for `default` if it is not set."""
    return Pair(_same, lambda value: value or default)


def enumerated(numbers: Mapping[Any, int]) -> Pair:
    """A protobuf enum; its 0 means "not set", so that no value is set by accident, and is None."""
    values = {number: value for value, number in numbers.items()}
    return Pair(lambda value: 0 if value is None else numbers[value], values.get)


ONE_PART: Final = Pair(lambda body: (body,), lambda view: b"" if view is None else view)
"""A large field <-> one buffer."""
OPTIONAL_PART: Final = Pair(lambda body: () if body is None else (body,), _same)
"""A large field <-> one buffer, or None if it is absent."""
PARTS: Final = Pair(_same, lambda view: () if view is None else (view,))
"""A large field <-> any number of buffers."""


class Shape(Generic[V]):
    """A dataclass and its message. Fields of the message that the class lacks are left out."""

    def __init__(
        self,
        name: str,
        value_class: type[V],
        /,
        *,
        renamed: Mapping[str, str] | None = None,
        **converters: Converter,
    ) -> None:
        """`renamed` maps fields to the attributes that have other names."""
        self.name = name
        self.value_class = value_class
        known = {field.name for field in fields(value_class)}  # type: ignore[arg-type]
        self._small: list[tuple[str, str, Converter, bool]] = []
        self._large: list[tuple[int, str, Converter]] = []
        for field in message_class(name).DESCRIPTOR.fields:
            attribute = (renamed or {}).get(field.name, field.name)
            if attribute not in known:
                continue
            converter = converters.get(field.name, SAME)
            if field.number >= SIZES_FIELD:
                self._large.append((field.number, attribute, converter))
            else:
                is_optional = field.has_presence and field.message_type is None
                self._small.append((field.name, attribute, converter, is_optional))

    def to_message(self, value: V) -> Any:
        """The message of a value, without its large fields."""
        return message_class(self.name)(
            **{
                name: converter.to_message(getattr(value, attribute))
                for name, attribute, converter, _ in self._small
            }
        )

    def from_message(self, message: Any, large: Mapping[int, Buffer] | None = None) -> V:
        """The value of a message; `large` holds its large fields."""
        values = {
            attribute: None
            if is_optional and not message.HasField(name)
            else converter.from_message(getattr(message, name))
            for name, attribute, converter, is_optional in self._small
        }
        for number, attribute, converter in self._large:
            values[attribute] = converter.from_message((large or {}).get(number))
        return self.value_class(**values)

    def encode(self, value: V) -> bytes:
        content = serialize(self.to_message(value))
        if not self._large:
            return content
        return join_fields(
            content,
            {
                number: converter.to_message(getattr(value, attribute))
                for number, attribute, converter in self._large
            },
        )

    def parse(self, content: Buffer) -> tuple[Any, Mapping[int, Buffer]]:
        """The message and its large fields. Raises RemoteProtocolError."""
        if not self._large:
            return parse(self.name, content), {}
        small, large = split_fields(content)
        return parse(self.name, small), large

    def decode(self, content: Buffer) -> V:
        """The value of a message in bytes. Raises RemoteProtocolError."""
        return self.from_message(*self.parse(content))


# --- large fields ---------------------------------------------------------------------------


def join_fields(small_fields: bytes, large_fields: Mapping[int, Sequence[Buffer]]) -> bytes:
    """One message of its serialised small fields and of large ones, each copied once."""
    parts: list[Buffer] = [small_fields]
    for number, field in large_fields.items():
        size = sum(buffer_size(part) for part in field)
        if size:
            parts.append(_varint(number << 3 | _LENGTH_DELIMITED) + _varint(size))
            parts.extend(field)
    return b"".join(parts)


def split_fields(message: Buffer) -> tuple[bytes, dict[int, memoryview]]:
    """The serialised small fields of a message, and views of its large ones.

    Raises RemoteProtocolError for bytes that are no protobuf message.
    """
    view = memoryview(message).cast("B")
    small: list[memoryview] = []
    large: dict[int, memoryview] = {}
    for number, start, content, end in _fields(view, MESSAGE_FIELDS_MAX):
        if content is not None and number in (SIZES_FIELD, BODY_FIELD):
            large[number] = view[content:end]
        else:
            small.append(view[start:end])
    return b"".join(small), large


def check_messages(request: Buffer, count_max: int, size_max: int) -> None:
    """Check the messages to send, before protobuf parses them. Raises RemoteProtocolError.

    The request has no other fields. `size_max` is for all that is no body.
    """
    view, size = memoryview(request).cast("B"), 0
    for _, start, content, end in _fields(view, count_max):
        size += end - start
        if content is not None:
            fields = _fields(view[content:end], MESSAGE_FIELDS_MAX)
            size -= sum(after - first for number, first, _, after in fields if number == _BODY)
    if size > size_max:
        raise RemoteProtocolError(
            f"messages with {size} bytes beside their bodies, over {size_max}"
        )


def _fields(view: memoryview, count_max: int) -> Iterator[tuple[int, int, int | None, int]]:
    """Each field: its number, start, the start of its content if it is delimited, and its end."""
    position, count = 0, 0
    while position < len(view):
        count += 1
        if count > count_max:
            raise RemoteProtocolError(f"a message has more than {count_max} fields")
        start = position
        key, position = _read_varint(view, position)
        number, kind = key >> 3, key & 7
        content = None
        if kind == _LENGTH_DELIMITED:
            size, content = _read_varint(view, position)
            position = content + size
        elif kind == _VARINT:
            _, position = _read_varint(view, position)
        elif kind in (_FIXED_64, _FIXED_32):
            position += 8 if kind == _FIXED_64 else 4
        else:
            raise RemoteProtocolError(f"wire type {kind} at byte {start} of a protobuf message")
        if position > len(view):
            raise RemoteProtocolError(
                f"field {number} at byte {start} ends at byte {position} of {len(view)}"
            )
        yield number, start, content, position


def _varint(value: int) -> bytes:
    content = bytearray()
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    content.append(value)
    return bytes(content)


def _read_varint(view: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_VARINT_SIZE_MAX):
        if position + index >= len(view):
            raise RemoteProtocolError(f"a varint is cut off at byte {len(view)}")
        byte = view[position + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    raise RemoteProtocolError(f"a varint at byte {position} has no end")
