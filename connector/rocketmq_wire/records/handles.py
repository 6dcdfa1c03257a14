"""The handles that name one delivery of a message, or a delayed message, <-> their text.

A receipt handle ("extraInfo", property POP_CK) is eight fields with one blank between them:

    checkpoint start, pop time, invisible time, revive queue, retry kind, broker, queue, offset

RocketMQ's proxy adds the message's position in the log, or -1. A recall handle is the base64url of
`v1 topic broker timestamp unique-key`, with the timestamp in milliseconds.
"""

from __future__ import annotations

import base64
import binascii
import enum
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.model import RETRY_PREFIX
from rocketmq_wire.numbers import whole_number

RECEIPT: Final = "POP_CK"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
ORDERLY_REVIVE_QUEUE: Final = 999
"""The revive queue in handles of orderly pops, which write no checkpoints to the log."""

_RECEIPT_FIELD_COUNTS: Final = (8, 9)
_RECEIPT_SIZE_MAX: Final = 1_024
_DIGITS_MAX: Final = 20
_RECALL_VERSION: Final = "v1"
_RECALL_FIELD_COUNT: Final = 5
_RECALL_SIZE_MAX: Final = 4_096
_RECALL_DIGITS_MAX: Final = 18


class RetryKind(enum.Enum):
    """The topic that held a popped message: the requested one, or the group's retry topic of it."""

    NONE = "0"
    V1 = "1"
    V2 = "2"

    def topic_of(self, topic: str, group: str) -> str:
        """The topic that holds the messages of this kind."""
        if self is RetryKind.NONE:
            return topic
        separator = "_" if self is RetryKind.V1 else "+"
        return f"{RETRY_PREFIX}{group}{separator}{topic}"


def retry_kind_of(topic: str) -> RetryKind:
    """The kind of a topic by its name alone, as RocketMQ's clients and brokers decide it."""
    if not topic.startswith(RETRY_PREFIX):
        return RetryKind.NONE
    return RetryKind.V2 if "+" in topic else RetryKind.V1


def origin_topic_of(topic: str, group: str) -> str:
    """The topic that a retry topic of the group belongs to; any other topic itself."""
    for kind in (RetryKind.V1, RetryKind.V2):
        prefix = kind.topic_of("", group)
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


class ReceiptHandle(NamedTuple):
    """The name of one delivery of one message. A tuple, because each message gets one."""

    start: int
    """The first offset that the checkpoint covers."""
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    retry: RetryKind
    broker: str
    queue_index: int
    offset: int
    position: int | None = None
    """The record's position in the log; only the proxy's handles carry it."""

    @property
    def is_orderly(self) -> bool:
        return self.revive_queue == ORDERLY_REVIVE_QUEUE

    @property
    def visible_ms(self) -> int:
        """The time at which the message is visible again, unless it is acknowledged before."""
        return self.pop_ms + self.invisible_ms

    def text(self) -> str:
        text = (
            f"{self.start} {self.pop_ms} {self.invisible_ms} {self.revive_queue} "
            f"{self.retry.value} {self.broker} {self.queue_index} {self.offset}"
        )
        return text if self.position is None else f"{text} {self.position}"

    @classmethod
    def parse(cls, text: str) -> ReceiptHandle:
        """Read a handle. Raises RemoteProtocolError."""
        fields = text.split(" ") if len(text) <= _RECEIPT_SIZE_MAX else []
        if len(fields) not in _RECEIPT_FIELD_COUNTS:
            raise RemoteProtocolError(f"not a receipt handle: {text[:80]!r}")
        start, pop_ms, invisible_ms, revive_queue, retry, broker, queue_index, offset = fields[:8]
        kind = _KINDS.get(retry)
        if kind is None or not broker:
            raise RemoteProtocolError(f"not a receipt handle: {text[:80]!r}")
        return cls(
            start=_number(start, text),
            pop_ms=_number(pop_ms, text),
            invisible_ms=_number(invisible_ms, text),
            revive_queue=_number(revive_queue, text),
            retry=kind,
            broker=broker,
            queue_index=_number(queue_index, text),
            offset=_number(offset, text),
            position=_number(fields[8], text) if len(fields) > 8 else None,
        )


_KINDS: Final = {kind.value: kind for kind in RetryKind}


def _number(digits: str, text: str) -> int:
    value = whole_number(digits, digits_max=_DIGITS_MAX, is_signed=True)
    if value is None or value >= 1 << 63:
        raise RemoteProtocolError(f"not a receipt handle: {text[:80]!r}")
    return value


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """The name of a delayed message that its sender may recall."""

    topic: str
    broker: str
    due_ms: int
    unique_key: str

    def text(self) -> str:
        fields = (_RECALL_VERSION, self.topic, self.broker, str(self.due_ms), self.unique_key)
        return base64.urlsafe_b64encode(" ".join(fields).encode()).decode("ascii")

    @classmethod
    def parse(cls, text: str) -> RecallHandle:
        """Read a handle. Raises RemoteProtocolError."""
        raw = b""
        if len(text) <= _RECALL_SIZE_MAX:
            # Java's decoder takes the text with and without padding.
            unpadded = text.rstrip("=")
            try:
                raw = base64.b64decode(unpadded + "=" * (-len(unpadded) % 4), b"-_", True)
            except (binascii.Error, ValueError):
                raw = b""
        fields = str(raw, "utf-8", "replace").split(" ")
        if len(fields) < _RECALL_FIELD_COUNT:
            raise RemoteProtocolError(f"not a recall handle: {text[:80]!r}")
        version, topic, broker, due, unique_key = fields[:_RECALL_FIELD_COUNT]
        due_ms = whole_number(due, digits_max=_RECALL_DIGITS_MAX)
        if version != _RECALL_VERSION or due_ms is None:
            raise RemoteProtocolError(f"not a recall handle: {text[:80]!r}")
        return cls(topic, broker, due_ms, unique_key)
