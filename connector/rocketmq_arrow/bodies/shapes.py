"""The shape of one JSON body: the literal texts that other bodies share, and the slots for values.

    {"id": 7, "name": "Ulm", "size": [3, 4]}

    {"id": [7], "name": "[Ulm]", "size": [[3, 4]]}     three slots between four texts

Bodies of one program differ only in the slots. A slot is a string without its quotes, a value
without quotes, or the items between the brackets of a list of such values. Everything else belongs
to the literal texts: names, braces, and a null where a string, list or struct could be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

import pyarrow as pa

QUOTE: Final = b'"'
# Limits of a shape: nesting of unwanted fields, size of the body, number of slots.
_DEPTH_MAX: Final = 8
_SIZE_MAX: Final = 65_536
_SLOTS_MAX: Final = 256

_SPACE: Final = rb"[ \t\r\n]*"
_OPENING: Final = re.compile(rb"\{" + _SPACE)
_NAME: Final = re.compile(rb'"([^"\\\x00-\x1f]*)"' + _SPACE + b":" + _SPACE)
_COMMA: Final = re.compile(_SPACE + b"," + _SPACE)
_CLOSING: Final = re.compile(_SPACE + rb"\}")
_END: Final = re.compile(_SPACE + rb"\Z")
_TEXT: Final = re.compile(rb'"([^"\\\x00-\x1f]*)"')
_VALUE: Final = re.compile(rb"[-+.0-9A-Za-z]+")
_NULL: Final = b"null"
# Without white space at the brackets, so that the values alone are between them.
_FLAT: Final = re.compile(rb"\[([^\"{}\[\] \t\r\n](?:[^\"{}\[\]]*[^\"{}\[\] \t\r\n])?)?\]")
_SEPARATOR: Final = re.compile(rb",[ \t\r\n]*")
_SEPARATORS: Final = {b",", b", "}
_LIST_OPENING: Final = re.compile(rb"\[" + _SPACE)
_LIST_CLOSING: Final = re.compile(_SPACE + rb"\]")


class Slot(Enum):
    TEXT = "text"
    VALUE = "value"
    LIST = "list"


@dataclass(frozen=True, slots=True)
class Shape:
    """The texts of a body, and the slots between them."""

    literals: tuple[bytes, ...]
    slots: tuple[Slot, ...]
    paths: tuple[tuple[str, ...], ...]
    """For each slot the names of the fields that lead to it; empty for an unwanted field."""
    objects: frozenset[tuple[str, ...]]
    """The paths of wanted structs and lists of strings, unless they are null."""
    separator: bytes
    """Between the values of a list: a comma, maybe a space."""


class _NoShapeError(Exception):
    """No other body can share this body's shape."""


def shape_of(body: bytes, schema: pa.Schema) -> Shape | None:
    """The shape of a body; None when it is no object or slots cannot describe it."""
    if len(body) > _SIZE_MAX:
        return None
    walk = _Walk(body)
    try:
        walk.read_object({field.name: field.type for field in schema}, (), 0)
        shape = walk.finished()
    except _NoShapeError:
        return None
    # A text between two slots is located by its first quote.
    is_distinct = shape.slots and all(QUOTE in literal for literal in shape.literals[1:-1])
    return shape if is_distinct and len(shape.slots) <= _SLOTS_MAX else None


class _Walk:
    """Parses one body from left to right."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0
        self._literal_start = 0
        self._literals: list[bytes] = []
        self._slots: list[Slot] = []
        self._paths: list[tuple[str, ...]] = []
        self._objects: set[tuple[str, ...]] = set()
        self._separators: set[bytes] = set()

    def finished(self) -> Shape:
        self._expect(_END)
        literals = (*self._literals, self._body[self._literal_start :])
        # Lists of one item show no separator: take the one between the members.
        likely = b", " if b', "' in self._body else b","
        separators = self._separators or {likely}
        if len(separators) > 1 or not separators <= _SEPARATORS:
            raise _NoShapeError
        (separator,) = separators
        paths, objects = tuple(self._paths), frozenset(self._objects)
        return Shape(literals, tuple(self._slots), paths, objects, separator)

    def read_object(
        self, wanted: dict[str, pa.DataType], path: tuple[str, ...], depth: int
    ) -> None:
        """Reads an object; only some of its fields are wanted."""
        if depth > _DEPTH_MAX:
            raise _NoShapeError
        self._expect(_OPENING)
        seen = set()
        while name := self._matched(_NAME):
            if name[1] in seen:
                raise _NoShapeError
            seen.add(name[1])
            field = _decoded(name[1])
            kind = wanted.get(field)
            if kind is None:
                self._read_any(depth + 1)
            else:
                self._read_wanted(kind, (*path, field), depth + 1)
            if not self._matched(_COMMA):
                break
            if self._body[self._at : self._at + 1] != QUOTE:
                raise _NoShapeError
        self._expect(_CLOSING)

    def _read_wanted(self, kind: pa.DataType, path: tuple[str, ...], depth: int) -> None:
        is_list, is_struct = pa.types.is_list(kind), pa.types.is_struct(kind)
        item = kind.value_type if is_list else kind
        if is_list and pa.types.is_nested(item):
            raise _NoShapeError
        if not (is_list or is_struct or pa.types.is_string(kind)):
            self._take(Slot.VALUE, self._expect(_VALUE), path)
        elif self._body.startswith(_NULL, self._at):
            self._at += len(_NULL)
        elif is_struct:
            self._objects.add(path)
            self.read_object({field.name: field.type for field in kind}, path, depth)
        elif not is_list:
            self._take(Slot.TEXT, self._expect(_TEXT), path)
        elif pa.types.is_string(item):
            self._objects.add(path)
            self._read_texts(path)
        else:
            self._read_flat(self._expect(_FLAT), path)

    def _read_texts(self, path: tuple[str, ...]) -> None:
        self._expect(_LIST_OPENING)
        while text := self._matched(_TEXT):
            self._take(Slot.TEXT, text, path)
            if not self._matched(_COMMA):
                break
            if self._body[self._at : self._at + 1] != QUOTE:
                raise _NoShapeError
        self._expect(_LIST_CLOSING)

    def _read_flat(self, found: re.Match[bytes], path: tuple[str, ...]) -> None:
        self._separators.update(_SEPARATOR.findall(found[0]))
        self._add(Slot.LIST, found.start() + 1, found.end() - 1, path)

    def _read_any(self, depth: int) -> None:
        """Reads the value of an unwanted field."""
        if text := self._matched(_TEXT):
            self._take(Slot.TEXT, text, ())
        elif value := self._matched(_VALUE):
            self._take(Slot.VALUE, value, ())
        elif flat := self._matched(_FLAT):
            self._read_flat(flat, ())
        elif self._body.startswith(b"[", self._at):
            self._read_texts(())
        else:
            self.read_object({}, (), depth)

    def _take(self, slot: Slot, found: re.Match[bytes], path: tuple[str, ...]) -> None:
        group = 1 if slot is Slot.TEXT else 0
        self._add(slot, found.start(group), found.end(group), path)

    def _add(self, slot: Slot, start: int, end: int, path: tuple[str, ...]) -> None:
        self._literals.append(self._body[self._literal_start : start])
        self._slots.append(slot)
        self._paths.append(path)
        self._literal_start = end

    def _matched(self, pattern: re.Pattern[bytes]) -> re.Match[bytes] | None:
        found = pattern.match(self._body, self._at)
        if found:
            self._at = found.end()
        return found

    def _expect(self, pattern: re.Pattern[bytes]) -> re.Match[bytes]:
        found = self._matched(pattern)
        if not found:
            raise _NoShapeError
        return found


def _decoded(name: bytes) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise _NoShapeError from None
