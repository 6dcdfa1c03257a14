"""JSON as RocketMQ's servers write it <-> Python values.

fastjson does not quote map keys that are no strings: it writes `{0:"10.0.0.1:10911"}` and, for maps
keyed by queues, `{{"brokerName":"a","queueId":0,"topic":"T"}:{…}}`. `loads` reads both: an integer
key becomes its text, a flat object its canonical JSON text. `dumps` writes them for old peers.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Final

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.limits import LENIENT_ANSWER_SIZE_MAX, LENIENT_KEYS_MAX
from rocketmq_wire.model import Buffer

Json = object
"""None, bool, int, float, str, list or dict[str, Json]."""

_TEXT: Final = r'"[^"\\]*(?:\\.[^"\\]*){0,65535}'
"""A text without its last quote. Each escape takes memory while it is matched."""
_TOKENS: Final = re.compile(
    # Texts are skipped: what is in them is no key. A number or an object before a colon is a key.
    rf'{_TEXT}(?P<end>"?)|(?<![-0-9])(?P<integer>-?[0-9]{{1,20}})(?=[ \t\r\n]*:)'
    rf'|(?P<object>\{{[^{{}}"]*(?:{_TEXT}"[^{{}}"]*){{0,64}}\}})(?=[ \t\r\n]*:)',
    re.DOTALL,
)
"""A match ends where the next one begins to look, so the time is linear."""
_DECODER = json.JSONDecoder()
_LEAF = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_LEAVES: Final = {str, int, float, bool}
_CANONICAL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


class ObjectKeyed(dict[str, Json]):
    """A map whose keys are JSON objects: canonical text in memory, unquoted when written."""


def loads(text: str | Buffer, *, is_trusted: bool = False) -> Json:
    """Parse strict or fastjson's JSON. Raises RemoteProtocolError.

    Text that is not strict takes up to 0.2 s for each MiB, and so has limits unless it is trusted.
    """
    if not isinstance(text, str):
        text = str(text, "utf-8", "replace")
    value: Json
    try:
        try:
            value = json.loads(text)
        except ValueError:
            if len(text) > LENIENT_ANSWER_SIZE_MAX and not is_trusted:
                raise RemoteProtocolError(
                    f"{len(text)} characters of JSON that is not strict"
                ) from None
            keys_max = sys.maxsize if is_trusted else LENIENT_KEYS_MAX
            value = json.loads(_with_quoted_keys(text, keys_max))
    except ValueError as error:
        raise RemoteProtocolError(f"not JSON: {error}; it begins {text[:20]!r}") from None
    except RecursionError:
        raise RemoteProtocolError("JSON is nested too deeply") from None
    return value


def _with_quoted_keys(text: str, keys_max: int) -> str:
    """Raises ValueError for too many keys, and for a key that is an object and not JSON."""
    key_count = 0

    def quoted(token: re.Match[str]) -> str:
        nonlocal key_count
        integer, key = token["integer"], token["object"]
        if integer is None and key is None:
            if not token["end"]:
                raise ValueError("a text has no end, or too many escapes")
            return token[0]
        key_count += 1
        if key_count > keys_max:
            raise ValueError(f"more than {keys_max} keys without quotes")
        return f'"{integer}"' if integer else _LEAF.encode(canonical(_DECODER.decode(key)))

    return _TOKENS.sub(quoted, text)


def is_strict(text: str) -> bool:
    """True for JSON that `loads` parses at the speed of C."""
    try:
        json.loads(text)
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
        if {*map(type, value)} <= {str} and {*map(type, value.values())} <= _LEAVES:
            return _CANONICAL.encode(value)
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
