"""Receipt handles of popped messages <-> their text, and the names of pop's retry topics.

A handle ("extraInfo", property POP_CK) is eight fields with one blank between them:

    checkpoint start, pop time, invisible time, revive queue, retry kind, broker, queue, offset

RocketMQ's proxy adds the message's position in the log, or -1.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.model import RETRY_PREFIX

RECEIPT: Final = "POP_CK"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
ORDERLY_REVIVE_QUEUE: Final = 999
"""In place of a revive queue where messages are popped in order: their state is not in the log."""

_FIELD_COUNTS: Final = (8, 9)
_HANDLE_SIZE_MAX: Final = 1_024
_DIGITS_MAX: Final = 20


class RetryKind(enum.Enum):
    """Which topic a message was popped from: the named one, or the group's retry topic of it."""

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
    """The kind of a topic by its name alone, as RocketMQ's clients and brokers tell it."""
    if not topic.startswith(RETRY_PREFIX):
        return RetryKind.NONE
    return RetryKind.V2 if "+" in topic else RetryKind.V1


def origin_topic_of(topic: str, group: str) -> str:
    """The topic that was popped for: what a retry topic of the group stands for, or itself."""
    for kind in (RetryKind.V1, RetryKind.V2):
        prefix = kind.topic_of("", group)
        if topic.startswith(prefix):
            return topic[len(prefix) :]
    return topic


class ReceiptHandle(NamedTuple):
    """What acknowledges one delivery of one message. A tuple: each message gets one."""

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
    """Where the record is in the log; only the proxy's handles say it."""

    @property
    def is_orderly(self) -> bool:
        return self.revive_queue == ORDERLY_REVIVE_QUEUE

    @property
    def visible_ms(self) -> int:
        """When the message is to be had again, unless it is acknowledged before."""
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
        fields = text.split(" ") if len(text) <= _HANDLE_SIZE_MAX else []
        if len(fields) not in _FIELD_COUNTS:
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
    is_number = digits.isascii() and digits.removeprefix("-").isdecimal()
    # Python's int() reads more than Java's, and numbers of any length.
    if not is_number or len(digits) > _DIGITS_MAX or (value := int(digits)) >= 1 << 63:
        raise RemoteProtocolError(f"not a receipt handle: {text[:80]!r}")
    return value
