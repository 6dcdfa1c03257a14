"""JSON as RocketMQ's servers write it <-> Python values.

fastjson does not quote map keys that are no strings: it writes `{0:"10.0.0.1:10911"}` and, for maps
keyed by queues, `{{"brokerName":"a","queueId":0,"topic":"T"}:{…}}`. `loads` reads both: an integer
key becomes its text, an object key its canonical JSON text. `dumps` writes them for old peers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.limits import LENIENT_ANSWER_SIZE_MAX
from rocketmq_wire.model import Buffer

Json = object
"""None, bool, int, float, str, list or dict[str, Json]."""

NESTING_MAX: Final = 64
"""The deepest body of the protocol has seven levels; a peer must not exhaust the stack."""

_BLANKS = re.compile(r"[ \t\r\n]*")
_INTEGER_KEY = re.compile(r"-?[0-9]{1,20}")
_DECODER = json.JSONDecoder()
_LEAF = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_CANONICAL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


class ObjectKeyed(dict[str, Json]):
    """A map whose keys are JSON objects: canonical text in memory, unquoted when written."""


def loads(text: str | Buffer) -> Json:
    """Parse strict or fastjson's JSON. Raises RemoteProtocolError."""
    if not isinstance(text, str):
        text = str(text, "utf-8", "replace")
    try:
        value: Json = json.loads(text)
    except ValueError:
        if len(text) > LENIENT_ANSWER_SIZE_MAX:
            raise RemoteProtocolError(
                f"{len(text)} characters of JSON that is not strict"
            ) from None
        return _parse_leniently(text)
    except RecursionError:
        raise RemoteProtocolError("JSON is nested too deeply") from None
    return value


def is_strict(text: Buffer) -> bool:
    """True for JSON that `loads` parses at the speed of C."""
    try:
        json.loads(str(text, "utf-8", "replace"))
    except (ValueError, RecursionError):
        return False
    return True


def canonical(value: Json) -> str:
    """The canonical text of a value: sorted keys, no blanks. Object keys become this text.

    Raises RemoteProtocolError.
    """
    try:
        return _CANONICAL.encode(value)
    except RecursionError:
        raise RemoteProtocolError("JSON is nested too deeply") from None


def dumps(value: Json, *, quotes_integer_keys: bool = True) -> str:
    """Write JSON in fastjson's style: no blanks, keys sorted, None in an object left out."""
    if isinstance(value, ObjectKeyed):
        items = (
            f"{key}:{dumps(item, quotes_integer_keys=quotes_integer_keys)}"
            for key, item in value.items()
        )
        return "{" + ",".join(items) + "}"
    if isinstance(value, Mapping):
        return "{" + ",".join(_dump_items(value, quotes_integer_keys)) + "}"
    if isinstance(value, (list, tuple)):
        parts = (dumps(item, quotes_integer_keys=quotes_integer_keys) for item in value)
        return "[" + ",".join(parts) + "]"
    return _LEAF.encode(value)


def _dump_items(value: Mapping[str | int, Json], quotes_integer_keys: bool) -> list[str]:
    items: list[str] = []
    for key in sorted(value):
        item = value[key]
        if item is None:
            continue
        name = (
            str(key) if isinstance(key, int) and not quotes_integer_keys else _LEAF.encode(str(key))
        )
        items.append(f"{name}:{dumps(item, quotes_integer_keys=quotes_integer_keys)}")
    return items


def _parse_leniently(text: str) -> Json:
    parser = _Parser(text)
    value, at = parser.value(parser.skip(0), 0)
    if parser.skip(at) != len(text):
        raise parser.error(at, "more text than one value")
    return value


class _Parser:
    """Recursive descent over one text; methods take and return character indexes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def error(self, at: int, reason: str) -> RemoteProtocolError:
        found = self._text[at : at + 20]
        return RemoteProtocolError(f"not JSON at character {at} ({found!r}): {reason}")

    def skip(self, at: int) -> int:
        match = _BLANKS.match(self._text, at)
        return match.end() if match else at

    def value(self, at: int, depth: int) -> tuple[Json, int]:
        if depth > NESTING_MAX:
            raise self.error(at, f"nested deeper than {NESTING_MAX}")
        first = self._text[at : at + 1]
        if first == "{":
            return self._object(at, depth)
        if first == "[":
            return self._array(at, depth)
        return self._strict(at)

    def _array(self, at: int, depth: int) -> tuple[Json, int]:
        items: list[Json] = []
        at = self.skip(at + 1)
        while self._text[at : at + 1] != "]":
            item, at = self.value(at, depth + 1)
            items.append(item)
            at = self._next_item(at, "]")
        return items, at + 1

    def _object(self, at: int, depth: int) -> tuple[Json, int]:
        items: dict[str, Json] = {}
        at = self.skip(at + 1)
        while self._text[at : at + 1] != "}":
            key, at = self._key(at)
            at = self.skip(at)
            if self._text[at : at + 1] != ":":
                raise self.error(at, "':' expected")
            items[key], at = self.value(self.skip(at + 1), depth + 1)
            at = self._next_item(at, "}")
        return items, at + 1

    def _next_item(self, at: int, close: str) -> int:
        at = self.skip(at)
        if self._text[at : at + 1] == close:
            return at
        if self._text[at : at + 1] != ",":
            raise self.error(at, f"',' or '{close}' expected")
        at = self.skip(at + 1)
        if self._text[at : at + 1] == close:
            raise self.error(at, "a value expected")
        return at

    def _key(self, at: int) -> tuple[str, int]:
        number = _INTEGER_KEY.match(self._text, at)
        if number:
            return number.group(), number.end()
        if self._text[at : at + 1] not in ('"', "{"):
            raise self.error(at, "a key expected")
        # Strict: a key that had objects as keys itself would double in length with each level.
        key, end = self._strict(at)
        return (key if isinstance(key, str) else canonical(key)), end

    def _strict(self, at: int) -> tuple[Json, int]:
        try:
            value: Json
            value, end = _DECODER.raw_decode(self._text, at)
        except (ValueError, RecursionError) as error:
            raise self.error(at, str(error)) from None
        return value, end


def json_object(body: Buffer) -> dict[str, Json]:
    """The JSON object in a body; empty if there is no body."""
    if not len(body):
        return {}
    value = loads(body)
    if not isinstance(value, dict):
        raise RemoteProtocolError("a JSON object was expected")
    return value


def as_object(value: Json, name: str) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"{name} is no JSON object")
    return value


def member_object(owner: Mapping[str, Json], name: str) -> dict[str, Json]:
    """A member that is an object; empty if absent."""
    value = owner.get(name)
    return {} if value is None else as_object(value, name)


def member_list(owner: Mapping[str, Json], name: str) -> list[Json]:
    """A member that is a list; empty if absent."""
    value = owner.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise RemoteProtocolError(f"{name} is no JSON list")
    return value


def member_objects(owner: Mapping[str, Json], name: str) -> list[dict[str, Json]]:
    return [as_object(item, name) for item in member_list(owner, name)]


def member_texts(owner: Mapping[str, Json], name: str) -> tuple[str, ...]:
    texts = []
    for item in member_list(owner, name):
        if not isinstance(item, str):
            raise RemoteProtocolError(f"{name} holds {str(item)[:40]!r}, no text")
        texts.append(item)
    return tuple(texts)


def member_text(owner: Mapping[str, Json], name: str, default: str | None = None) -> str:
    value = owner.get(name)
    if value is None:
        value = default
    if not isinstance(value, str):
        raise RemoteProtocolError(f"{name} is {str(value)[:40]!r}, no text")
    return value


def member_int(owner: Mapping[str, Json], name: str, default: int | None = None) -> int:
    value = owner.get(name)
    if value is None:
        value = default
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise RemoteProtocolError(f"{name} is {str(value)[:40]!r}, no number")
    return value


def member_float(owner: Mapping[str, Json], name: str) -> float:
    """A member that is a number; 0 if absent."""
    value = owner.get(name)
    if value is None:
        return 0.0
    if type(value) not in (int, float) or not -1e18 < value < 1e18:  # type: ignore[operator]
        raise RemoteProtocolError(f"{name} is no number, or a huge one")
    return float(value)  # type: ignore[arg-type]


def member_bool(owner: Mapping[str, Json], name: str, default: bool) -> bool:
    value = owner.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise RemoteProtocolError(f"{name} is {str(value)[:40]!r}, not true or false")
    return value
