"""The kinds of value that an option may have: text as users write it -> a checked value."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from rocketmq_wire.addresses import NAME_SERVER_PORT, split_addresses
from rocketmq_wire.errors import SqlSyntaxError
from rocketmq_wire.filters.sql92 import parse_selector
from rocketmq_wire.filters.tags import separator_problem
from rocketmq_wire.model import GROUP_SIZE_MAX, NAME_PATTERN, NAME_SIZE_MAX

_DURATION: Final = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?", re.IGNORECASE)
_DURATION_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_SIZE: Final = re.compile(r"(\d+)\s*(b|k|kb|m|mb|g|gb)?", re.IGNORECASE)
_SIZE_BYTES: Final = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_COUNT_MAX: Final = 2**63 - 1
# Numbers that are times of today in seconds; in milliseconds they are before 1974.
_SECONDS_NOW: Final = 1_000_000_000
_SECONDS_MAX: Final = 100_000_000_000
_TIME: Final = "milliseconds since 1970, or a time with its zone such as 2026-01-31T08:00:00Z"


@dataclass(frozen=True, slots=True)
class Kind:
    takes: str
    """The description in the reference page."""
    parse: Callable[[str], object]
    """Returns the value; raises ValueError with the reason."""
    is_secret: bool = False
    """True if error messages must not show the text."""


@dataclass(frozen=True, slots=True)
class PerQueue:
    """A number for every queue: topic -> broker (None: the topic's only broker) -> queue -> n."""

    values: Mapping[str, Mapping[str | None, Mapping[int, int]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assigned:
    """Queues by name: topic -> broker (None: the topic's only broker) -> queue ids."""

    queues: Mapping[str, Mapping[str | None, tuple[int, ...]]]


# --- kinds with parameters ----------------------------------------------------------------------


def word(why: str) -> Kind:
    """Text without blanks inside; `why`: the reason, and what to give instead."""

    def parse(text: str) -> str:
        text = _parse_text(text)
        if len(text.split()) > 1:
            raise ValueError(f"must have no blanks, {why}")
        return text

    return Kind("text without blanks", parse)


def _name(takes: str, size_max: int) -> Kind:
    def parse(text: str) -> str:
        text = _parse_text(text)
        if not NAME_PATTERN.fullmatch(text):
            raise ValueError("must have letters, digits, '_', '-', '%' and '|' only")
        if len(text) > size_max:
            raise ValueError(f"must have at most {size_max} characters")
        return text

    return Kind(takes, parse)


def choice(*words: str) -> Kind:
    def parse(text: str) -> str:
        for known in words:
            if text.strip().lower() == known.lower():
                return known
        raise ValueError(f"must be one of {', '.join(words)}")

    return Kind(" | ".join(words), parse)


def count(minimum: int = 1, maximum: int = _COUNT_MAX) -> Kind:
    takes = f"number from {minimum}" + ("" if maximum == _COUNT_MAX else f" to {maximum}")

    def parse(text: str) -> int:
        try:
            number = int(text.strip())
        except ValueError:
            raise ValueError("must be a whole number") from None
        if not minimum <= number <= maximum:
            raise ValueError(f"must be a {takes}")
        return number

    return Kind(takes, parse)


def duration(minimum_ms: int = 0, maximum_ms: int = 24 * 3_600_000) -> Kind:
    """Milliseconds, or a number with a unit: `5s`, `15m`, `1h`."""
    takes = f"milliseconds ({minimum_ms:,} to {maximum_ms:,}) or a duration: 5s, 15m"

    def parse(text: str) -> int:
        match = _DURATION.fullmatch(text.strip())
        unit = (match.group(2) or "ms").lower() if match else ""
        if match is None or unit not in _DURATION_MS:
            raise ValueError(f"must be {takes}")
        value_ms = int(match.group(1)) * _DURATION_MS[unit]
        if not minimum_ms <= value_ms <= maximum_ms:
            raise ValueError(f"must be {takes}")
        return value_ms

    return Kind(takes, parse)


def offsets(*words: str) -> Kind:
    """A word, or offsets per queue as JSON (-2 earliest, -1 latest)."""

    def parse(text: str) -> str | PerQueue:
        stripped = text.strip()
        if stripped.startswith("{"):
            return _parse_per_queue(stripped, minimum=-2)
        word = stripped.lower().replace(" ", "")
        if word not in words:
            raise ValueError(f"must be {', '.join(words)} or JSON per queue")
        return word

    return Kind(" | ".join((*words, 'JSON like {"orders":{"broker-a":{"0":100}}}')), parse)


def _parse_text(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text.strip()


def _parse_tags(text: str) -> str:
    text = _parse_text(text)
    if problem := separator_problem(text):
        raise ValueError(problem)
    return text


def _parse_sql(text: str) -> str:
    """Brokers must parse the expression to its end: otherwise they filter by half of it."""
    text = text.strip()
    try:
        problem = parse_selector(text).problem
    except SqlSyntaxError as error:
        raise ValueError(str(error)) from error
    if problem is not None:
        raise ValueError(problem)
    return text


def _parse_secret(text: str) -> str:
    text = text.strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be printable ASCII without spaces, and not empty")
    return text


def _parse_names(text: str, separators: str = ",") -> tuple[str, ...]:
    parts = (part.strip() for part in re.split(f"[{separators}]", text))
    names = tuple(dict.fromkeys(part for part in parts if part))
    if not names:
        raise ValueError("must name at least one")
    return names


def _parse_addresses(text: str) -> tuple[str, ...]:
    addresses = _parse_names(text, ",;")
    try:
        return split_addresses(";".join(addresses), NAME_SERVER_PORT)
    except ValueError as error:
        which = f": {error}" if len(addresses) > 1 else ""
        raise ValueError(f"must be host:port{which}") from error


def _parse_pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from error
    return _parse_text(text)


def _parse_flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("must be true or false")
    return word == "true"


def _parse_time(text: str) -> int:
    number = _milliseconds(text.strip())
    if _SECONDS_NOW <= number < _SECONDS_MAX:
        raise ValueError(
            f"must be milliseconds since 1970, and {number} looks like seconds: write {number}000"
        )
    if not 0 <= number < 2**63:
        raise ValueError(f"must be {_TIME}")
    return number


def _milliseconds(text: str) -> int:
    if re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError:
        raise ValueError(f"must be {_TIME}") from None
    if moment.tzinfo is None:
        raise ValueError("must name its time zone, such as 2026-01-31T08:00:00Z or …+01:00")
    return round(moment.timestamp() * 1_000)


def _parse_size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError("must be bytes or a size like 64k, 100m, 1g")
    value = int(match.group(1)) * _SIZE_BYTES[(match.group(2) or "b").lower()[0]]
    if value < 1:
        raise ValueError("must be at least 1 bytes")
    return value


def _parse_address_map(text: str) -> tuple[tuple[str, str], ...]:
    """Read pairs, or the same as a JSON object."""
    pairs: list[tuple[Any, ...]]
    if text.strip().startswith("{"):
        pairs = list(_json_object(text).items())
    else:
        pairs = [tuple(pair.split("=", 1)) for pair in text.split(",") if pair.strip()]
    if not pairs or any(len(pair) != 2 or not all(map(_is_text, pair)) for pair in pairs):
        raise ValueError("must be pairs like 10.0.0.5:10911=127.0.0.1:10911")
    return tuple(sorted((str(key).strip(), str(value).strip()) for key, value in pairs))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _json_object(text: str) -> dict[str, Any]:
    def refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # json keeps the last of two equal keys: a queue named twice is a user's mistake.
        names = [name for name, _ in pairs]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise ValueError(f"names {repeated!r} twice")
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=refuse_repeats)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(value, dict) or not value:
        raise ValueError("must be a JSON object that names at least one topic")
    return value


def _parse_per_queue(text: str, *, minimum: int) -> PerQueue:
    """Read `{"orders":{"broker-a":{"0":100}}}`, or the same without the broker level."""
    topics: dict[str, dict[str | None, dict[int, int]]] = {}
    for topic, inner in _json_object(text).items():
        if not isinstance(inner, dict) or not inner:
            raise ValueError(f"must hold an object for topic {topic!r}")
        nested = {isinstance(value, dict) for value in inner.values()}
        if nested == {True}:
            topics[topic] = {
                broker: _queue_numbers(topic, queues, minimum) for broker, queues in inner.items()
            }
        elif nested == {False}:
            if not any(name.isdecimal() for name in inner):
                broker, value = next(iter(inner.items()))
                raise ValueError(
                    f"leaves out the queues of topic {topic!r}: write "
                    f'{{"{topic}":{{"{broker}":{{"0":{value}}}}}}}'
                )
            topics[topic] = {None: _queue_numbers(topic, inner, minimum)}
        else:
            raise ValueError(f"mixes queues with and without a broker for topic {topic!r}")
    return PerQueue(topics)


def _queue_numbers(topic: str, queues: dict[str, Any], minimum: int) -> dict[int, int]:
    numbers: dict[int, int] = {}
    for index, value in queues.items():
        if not index.isdecimal():
            raise ValueError(f"has {index!r} where a queue id of topic {topic!r} belongs")
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ValueError(
                f"has {value!r} for queue {index} of topic {topic!r}, "
                f"which must be a whole number from {minimum}"
            )
        numbers[int(index)] = value
    return numbers


def _parse_assignment(text: str) -> Assigned:
    """Read `{"orders":{"broker-a":[0,1]}}`, or `{"orders":[0,1]}` for a topic on one broker."""
    topics: dict[str, dict[str | None, tuple[int, ...]]] = {}
    for topic, inner in _json_object(text).items():
        by_broker: dict[str | None, Any] = {None: inner} if isinstance(inner, list) else inner
        if not isinstance(by_broker, dict) or not by_broker:
            raise ValueError(f"must hold a list of queue ids for topic {topic!r}")
        topics[topic] = {
            broker: _queue_ids(topic, indexes) for broker, indexes in by_broker.items()
        }
    return Assigned(topics)


def _queue_ids(topic: str, indexes: object) -> tuple[int, ...]:
    if not isinstance(indexes, list) or not indexes:
        raise ValueError(f"must hold a list of queue ids for topic {topic!r}")
    for index in indexes:
        if isinstance(index, bool) or not isinstance(index, int) or index < 0:
            raise ValueError(f"has {index!r} where a queue id of topic {topic!r} belongs")
    return tuple(sorted(set(indexes)))


def _parse_timestamps(text: str) -> PerQueue:
    return _parse_per_queue(text, minimum=0)


# --- kinds --------------------------------------------------------------------------------------

TEXT: Final = Kind("text", _parse_text)
SECRET: Final = Kind("text", _parse_secret, is_secret=True)
FLAG: Final = Kind("true | false", _parse_flag)
NAMES: Final = Kind("names, comma-separated", _parse_names)
GROUP_NAME: Final = _name("name of a group", GROUP_SIZE_MAX)
TOPIC_NAME: Final = _name("name of a topic", NAME_SIZE_MAX)
SIZE: Final = Kind("size in bytes (64k, 100m, 1g)", _parse_size)
TIME: Final = Kind(_TIME, _parse_time)
TIMESTAMPS: Final = Kind('JSON like {"orders":{"broker-a":{"0":1700000000000}}}', _parse_timestamps)
ASSIGNMENT: Final = Kind('JSON like {"orders":{"broker-a":[0,1]}}', _parse_assignment)
PATTERN: Final = Kind("regular expression", _parse_pattern)
TAGS: Final = Kind("tags, joined by ||", _parse_tags)
SQL_EXPRESSION: Final = Kind("SQL92 expression", _parse_sql)
ADDRESSES: Final = Kind("host:port, separated by ; or ,", _parse_addresses)
ADDRESS_MAP: Final = Kind("advertised=reachable pairs, comma-separated", _parse_address_map)
