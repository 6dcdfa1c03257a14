"""Parses lines of text or JSON into messages, each with its queue target and its size: pure.

A line of JSON is an object with `body` or `bodyBase64`, and optionally `tags`, `keys` (text, or a
list of texts), `properties` (an object), `queue` and `broker`. A wrong value is refused with
the line's number. Other fields are ignored; a name that looks misspelt is reported once.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rocketmq_cli.usage import UsageError
from rocketmq_wire.errors import LocalProtocolError
from rocketmq_wire.filters.tags import sent_tag_problem
from rocketmq_wire.model import Message
from rocketmq_wire.records.batch import ENTRY_SIZE_MIN
from rocketmq_wire.records.properties import (
    KEYS,
    LITE_TOPIC,
    MESSAGE_GROUP,
    TAGS,
    UNIQUE_KEY,
    WAIT_STORED,
    encode_properties,
)
from rocketmq_wire.suggest import nearest

_READ_FIELDS: Final = (
    *("body", "bodyBase64", "tags", "keys", "properties"),
    *("queue", "broker"),
)
_TAILED_FIELDS: Final = ("topic", "offset", "id", "born", "stored")
"""Further fields of `rmq tail --json`, which a new message gets from its broker."""
_SILENT_FIELDS: Final = frozenset((*_READ_FIELDS, *_TAILED_FIELDS))
# Properties with fields of their own, or with a new value for every message.
_OWN_FIELDS: Final = (TAGS, KEYS, UNIQUE_KEY, WAIT_STORED)
_ALONE: Final = ("DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS")
# UNIQ_KEY and WAIT with their separators, as the producer adds them to every message.
_ADDED_SIZE: Final = 64


class QueueTarget(NamedTuple):
    """The queues that a message may go to; None stands for any."""

    broker: str | None = None
    queue: int | None = None
    group: str | None = None
    """A message group, whose hash chooses the queue."""


class Outgoing(NamedTuple):
    message: Message
    target: QueueTarget
    size: int
    """Its bytes in a batch."""

    @property
    def is_alone(self) -> bool:
        """True for delayed messages: in a batch, brokers deliver them at once or refuse them."""
        return any(name in self.message.properties for name in _ALONE)


@dataclass(frozen=True, slots=True)
class MessageDefaults:
    """The fields of messages whose lines do not give their own."""

    tags: str | None = None
    keys: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    key_separator: bytes | None = None
    """The text between the keys and the body of a line."""
    group: str | None = None
    """The message group; `%k` in it is the message's keys."""
    warn: Callable[[str, str], None] = field(default=lambda *_: None, compare=False)
    """Called with the line and a text for each field whose name looks misspelt."""


def outgoing_lines(
    lines: Iterable[bytes], topic: str, defaults: MessageDefaults, *, first: int, is_json: bool
) -> Iterator[Outgoing]:
    """Yield the lines' messages; `first` is the number of the first line. Raises UsageError."""
    if is_json:
        for number, line in enumerate(lines, first):
            yield _from_json(line, number, topic, defaults)
        return
    if defaults.key_separator is not None:
        for number, line in enumerate(lines, first):
            yield _keyed(line, number, topic, defaults)
        return
    sample = _message(topic, b"", defaults, {}, f"line {first}")
    shared = _size_of(sample, f"line {first}")
    fields = (sample.tags, sample.keys, sample.properties)
    anywhere = QueueTarget(group=defaults.group and sample.properties[MESSAGE_GROUP])
    for line in lines:
        yield Outgoing(Message(topic, line, *fields), anywhere, shared + len(line))


def batches(
    messages: Iterable[Outgoing], count_max: int, bytes_max: int
) -> Iterator[list[Outgoing]]:
    """Yield batches of consecutive messages for one target, within both limits.

    A message that is delayed, or larger than a batch, is a batch of its own.
    """
    run: list[Outgoing] = []
    size = 0
    for each in messages:
        is_alone = each.is_alone or bool(run and run[-1].is_alone)
        is_full = len(run) >= count_max or size + each.size > bytes_max
        if run and (is_alone or is_full or each.target != run[-1].target):
            yield run
            run, size = [], 0
        run.append(each)
        size += each.size
    if run:
        yield run


def parse_line(line: bytes, number: int) -> Mapping[str, object]:
    """Parse a line's JSON object. Raises UsageError with the line's number."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise UsageError(f"line {number} is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise UsageError(f'line {number} is no JSON object: write {{"body": "..."}}')
    return fields


def body_of(fields: Mapping[str, object], number: int) -> bytes:
    """The body of a JSON object. Raises UsageError if it has none."""
    body, encoded = fields.get("body"), fields.get("bodyBase64")
    if isinstance(body, str) and body:
        return body.encode()
    if isinstance(encoded, str) and encoded:
        try:
            return b64decode(encoded, validate=True)
        except ValueError as error:
            raise UsageError(f"line {number}: bodyBase64 is no base64: {error}") from None
    if body is not None and not isinstance(body, str):
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    misspelt = next((text for text in _misspelt(fields) if "'body" in text), "")
    raise UsageError(f"line {number} has no body; {misspelt or 'RocketMQ has no empty messages'}")


def _keyed(line: bytes, number: int, topic: str, defaults: MessageDefaults) -> Outgoing:
    where, separator = f"line {number}", defaults.key_separator or b""
    keys, found, body = line.partition(separator)
    if not found:
        raise UsageError(f"{where} has no {separator.decode()!r} behind its keys (--key-separator)")
    if not body:
        raise UsageError(f"{where} has no body: RocketMQ has no empty messages")
    try:
        fields = {"keys": keys.decode()}
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: the keys are no UTF-8: {error}") from None
    message = _message(topic, body, defaults, fields, where)
    target = QueueTarget(group=defaults.group and message.properties[MESSAGE_GROUP])
    return Outgoing(message, target, _size_of(message, where) + len(body))


def _from_json(line: bytes, number: int, topic: str, defaults: MessageDefaults) -> Outgoing:
    fields = parse_line(line, number)
    where = f"line {number}"
    body = body_of(fields, number)
    if not fields.keys() <= _SILENT_FIELDS:
        for text in _misspelt(fields):
            defaults.warn(where, text)
    message = _message(topic, body, defaults, fields, where)
    target = QueueTarget(
        _field(fields, "broker", where, _text, "the broker's name"),
        _field(fields, "queue", where, _index, "a number from 0"),
        message.properties.get(MESSAGE_GROUP) if defaults.group is not None else None,
    )
    if target.group is not None and target != QueueTarget(group=target.group):
        raise UsageError(f"{where} names its queue, which --group-key chooses: leave out one")
    return Outgoing(message, target, _size_of(message, where) + len(body))


def _misspelt(fields: Mapping[str, object]) -> Iterator[str]:
    """Yield a warning for each ignored field whose name is similar to a known one."""
    known = [name for name in _READ_FIELDS if name not in fields]
    for name in fields:
        if name not in _SILENT_FIELDS and (near := nearest(name, known)):
            yield f"the field {name!r} is ignored: did you mean {near!r}?"


def _message(
    topic: str, body: bytes, defaults: MessageDefaults, fields: Mapping[str, object], where: str
) -> Message:
    properties = dict(defaults.properties)
    properties.update(
        _field(fields, "properties", where, _properties, "an object of names and texts") or {}
    )
    for name in _OWN_FIELDS:
        properties.pop(name, None)
    if properties.get(LITE_TOPIC):
        raise UsageError(f"{where} has the property {LITE_TOPIC}: lite topics are not supported")
    tags = _field(fields, "tags", where, _text, "text")
    keys = _field(fields, "keys", where, _keys, "text, or a list of texts without blanks")
    keys = defaults.keys if "keys" not in fields else keys
    if defaults.group is not None:
        properties[MESSAGE_GROUP] = group = defaults.group.replace("%k", keys or "")
        if not group:
            raise UsageError(f"{where} has no keys, of which --group-key makes its message group")
    tags = defaults.tags if "tags" not in fields else tags
    if problem := sent_tag_problem(tags):
        raise UsageError(f"{where}: the tag {problem}")
    return Message(topic, body, tags, keys, properties)


def _size_of(message: Message, where: str) -> int:
    """The bytes of a message in a batch, without its body. Raises UsageError."""
    own = {TAGS: message.tags or "", KEYS: message.keys or ""}
    try:
        return ENTRY_SIZE_MIN + _ADDED_SIZE + len(encode_properties({**message.properties, **own}))
    except LocalProtocolError as error:
        raise UsageError(f"{where}: {error}") from None


def _field(
    fields: Mapping[str, object], name: str, where: str, read: Callable[[object], Any], what: str
) -> Any:
    """A field as `read` returns it, None if it is absent.

    Raises UsageError if `read` refuses it.
    """
    value = fields.get(name)
    if value is None:
        return None
    found = read(value)
    if found is None:
        shown = json.dumps(value, ensure_ascii=False)[:80]
        raise UsageError(f"{where}: {name} is {what}, not {shown}")
    return found


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _index(value: object) -> int | None:
    is_index = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_index and isinstance(value, int) else None


def _keys(value: object) -> str | None:
    if isinstance(value, list):
        # A blank separates keys, so that a key with a blank would become two.
        is_sound = all(isinstance(key, str) and key and len(key.split()) == 1 for key in value)
        return " ".join(value) if is_sound else None
    return _text(value)


def _properties(value: object) -> dict[str, str] | None:
    """Properties as texts: numbers and booleans as JSON writes them, without nulls."""
    if not isinstance(value, dict):
        return None
    found: dict[str, str] = {}
    for name, text in value.items():
        if isinstance(text, (list, dict)):
            return None
        if text is not None:
            found[name] = text if isinstance(text, str) else json.dumps(text)
    return found
