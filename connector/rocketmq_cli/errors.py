"""The command's errors, each with its facts.

RocketMQError                  rocketmq_wire.errors
    ConfigUnknownError         a broker did not report a topic's settings
    IncompleteOffsetsError     brokers did not report a group's offsets
    LinesRefusedError          lines were not stored
    MessageNotFoundError       MessagesGoneError
    MovedOtherwiseError        brokers moved other queues than requested
    UnknownGroupError          no broker knows a group
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId
from rocketmq_wire.plural import plural

_LINES_NAMED = 5


@dataclass(eq=False, repr=False)
class MessageNotFoundError(RocketMQError):
    what: str

    def __str__(self) -> str:
        return f"no message {self.what}: it may have expired, or never have been stored there"


@dataclass(eq=False, repr=False)
class ConfigUnknownError(RocketMQError):
    """A broker that has the topic did not report its settings."""

    topic: str
    broker: str

    def __str__(self) -> str:
        return (
            f"broker {self.broker} has topic {self.topic} and does not report its settings, "
            "which would be lost: nothing was changed"
        )


@dataclass(eq=False, repr=False)
class UnknownGroupError(RocketMQError):
    """No broker of the cluster knows the group."""

    group: str
    hint: str

    def __str__(self) -> str:
        return (
            f"no broker knows the group {self.group!r}.{self.hint}"
            " `rmq group list` lists them; a group is known once it has committed or subscribed"
        )


@dataclass(eq=False, repr=False)
class IncompleteOffsetsError(RocketMQError):
    """Some brokers did not report a group's offsets: its lag may be larger than the others say."""

    group: str
    missing: Mapping[str, str]
    """The reasons by the broker's name."""

    def __str__(self) -> str:
        reasons = "; ".join(f"{broker}: {why}" for broker, why in self.missing.items())
        return (
            f"the offsets of group {self.group!r} at {', '.join(self.missing)} are unknown, and so "
            f"is its lag. {reasons}"
        )


@dataclass(eq=False, repr=False)
class MovedOtherwiseError(RocketMQError):
    """Brokers moved other queues than the request named."""

    missing: tuple[QueueId, ...]
    added: tuple[QueueId, ...]

    def __str__(self) -> str:
        parts = [
            f"{what}: {', '.join(map(str, queues))}"
            for what, queues in (("not moved", self.missing), ("moved, too", self.added))
            if queues
        ]
        return f"the brokers moved other queues than the request named. {'; '.join(parts)}"


@dataclass(eq=False, repr=False)
class MessagesGoneError(RocketMQError):
    """A queue lists messages that its broker does not return."""

    queue: QueueId
    start: int
    end: int
    count: int

    def __str__(self) -> str:
        return (
            f"{plural(self.count, 'message')} of {self.queue} between offsets {self.start:,} and "
            f"{self.end:,} {'is' if self.count == 1 else 'are'} gone: listed by the broker, but "
            "not returned"
        )


@dataclass(eq=False, repr=False)
class LinesRefusedError(RocketMQError):
    """Some lines were not stored; those before, between and behind them may be."""

    lines: Sequence[int]
    error: RocketMQError

    def __str__(self) -> str:
        return (
            f"{self.error}. Not stored, not counting empty ones: line {_line_numbers(self.lines)}"
        )


def _line_numbers(lines: Sequence[int]) -> str:
    """`7`, `7 to 12`, or `7, 9, 11`."""
    first, last = lines[0], lines[-1]
    if last - first + 1 == len(lines):
        return f"{first} to {last}" if last > first else f"{first}"
    more = len(lines) - _LINES_NAMED
    named = ", ".join(map(str, lines[:_LINES_NAMED]))
    return f"{named} and {more} more, up to {last}" if more > 0 else named
