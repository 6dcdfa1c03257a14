"""The settings of a consumer with RocketMQ's defaults, checked when they are created."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rocketmq_client.consumer.allocation import Average, Strategy
from rocketmq_wire.model import (
    DEAD_LETTER_PREFIX,
    GROUP_SIZE_MAX,
    NAME_PATTERN,
    RETRY_PREFIX,
    SYSTEM_NAME_SIZE_MAX,
    Subscription,
    is_system_topic,
)

_RESERVED_GROUPS: Final = frozenset({"DEFAULT_CONSUMER", "CLIENT_INNER_PRODUCER"})
_NAMESPACE: Final = re.compile(r"[a-zA-Z0-9_-]+")
_PREFIXES: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
_ATTEMPTS_MAX: Final = 16
_DAY_MS: Final = 24 * 3_600_000
# fmt: off
_RETRY_SECONDS: Final = (
    10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200,
)
_BOUNDS: Final = (
    ("pull_batch_size", 1, 32_768), ("pull_interval_ms", 0, 65_535),
    ("consume_batch_size", 1, 1_024), ("threads", 1, 1_000), ("suspend_queue_ms", 10, 30_000),
    ("request_timeout_ms", 1, 60_000), ("suspend_ms", 1, _DAY_MS), ("pull_timeout_ms", 1, _DAY_MS),
    ("consume_timeout_ms", 1, _DAY_MS), ("heartbeat_ms", 1, _DAY_MS), ("route_ms", 1, _DAY_MS),
    ("rebalance_ms", 1, _DAY_MS), ("persist_ms", 1, _DAY_MS), ("lock_ms", 1, _DAY_MS),
    ("shutdown_wait_ms", 1, _DAY_MS),
)
_POP_BOUNDS: Final = (
    ("invisible_ms", 1_000, 300_000), ("batch_size", 1, 32), ("pending_max", 1, 100_000),
    ("poll_ms", 0, 60_000),
)
# fmt: on


class MessageModel(enum.Enum):
    """Which members receive a message; the values are the wire's names."""

    CLUSTERING = "CLUSTERING"
    """One member of the group."""
    BROADCASTING = "BROADCASTING"
    """Every member."""


class ConsumeFrom(enum.Enum):
    """Where a group without committed offsets starts; the values are the wire's names."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    """At the end."""
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    """At the first message."""
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"
    """At the first message stored at a time or later."""


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Limits of one queue's messages that wait for consumption. Raises ValueError."""

    count_max: int = 1_000
    """The limit of messages."""
    size_max: int = 100 * 1024 * 1024
    """The limit of bytes."""
    span_max: int | None = 2_000
    """The limit of the offsets' span; None in orderly consumption, which starts at the oldest."""
    topic_count_max: int | None = None
    """The limit of a topic, divided equally among its queues here; it replaces `count_max`."""
    topic_size_max: int | None = None
    """The limit of a topic, divided equally among its queues here; it replaces `size_max`."""

    def __post_init__(self) -> None:
        optional = (self.span_max, self.topic_count_max, self.topic_size_max)
        limits = [self.count_max, self.size_max, *(one for one in optional if one is not None)]
        if min(limits) < 1:
            raise ValueError(f"limits of a queue must be at least 1, got {limits}")

    def shared_by(self, queue_count: int) -> FlowLimits:
        """The limits of one of a topic's queues; each queue may have one message or byte."""
        count_max, size_max = self.count_max, self.size_max
        if self.topic_count_max is not None:
            count_max = max(1, self.topic_count_max // queue_count)
        if self.topic_size_max is not None:
            size_max = max(1, self.topic_size_max // queue_count)
        return replace(self, count_max=count_max, size_max=size_max)


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The group of a consumer, its subscriptions and limits, with RocketMQ's defaults.

    Raises ValueError for invalid settings.
    """

    group: str
    """The consumer group."""
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    """Subscriptions by topic."""
    namespace: str | None = None
    """The prefix of the group's and the topics' names; received messages show names without it."""
    model: MessageModel = MessageModel.CLUSTERING
    """Which members receive a message."""
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    """The start of a group without committed offsets. As in RocketMQ, a queue from which nothing
    has expired starts at 0; with `TIMESTAMP` only if the broker is of version 4.9."""
    consume_timestamp_ms: int | None = None
    """The time where `TIMESTAMP` starts; None: half an hour before the consumer's start."""
    strategy: Strategy = field(default_factory=Average)
    """How members divide the queues of a topic."""
    pull_batch_size: int = 512
    """Messages per pull. RocketMQ asks for 32, and a real broker returns at most 32; the bundled
    broker returns more."""
    pull_interval_ms: int = 0
    """The pause of a queue behind a pull that found messages."""
    post_subscription_when_pull: bool = False
    """Whether a push consumer sends its filter with each pull. As in RocketMQ it does not: brokers
    filter by the group's heartbeats, of which the newest counts for all members."""
    limits: FlowLimits = field(default_factory=FlowLimits)
    """The limits of messages that wait for the listener."""
    suspend_ms: int = 15_000
    """How long a broker holds a pull without messages."""
    pull_timeout_ms: int = 30_000
    """The limit for the answer to a pull."""
    request_timeout_ms: int = 3_000
    """The limit for the answer to another request."""
    consume_batch_size: int = 1
    """The most messages of one call of the listener."""
    threads: int = 20
    """The threads that call the listener."""
    consume_timeout_ms: int = 15 * 60_000
    """The limit for a call of the listener; later its messages go back to the broker."""
    attempts_max: int | None = None
    """The attempts per message; None: 16 in concurrent consumption, unlimited in orderly."""
    suspend_queue_ms: int = 1_000
    """The pause of an orderly queue after SUSPEND_CURRENT_QUEUE_A_MOMENT."""
    heartbeat_ms: int = 30_000
    """The period of heartbeats."""
    route_ms: int = 30_000
    """The period of route refreshes."""
    rebalance_ms: int = 20_000
    """The period of rebalances."""
    persist_ms: int = 5_000
    """The period of offset commits."""
    lock_ms: int = 20_000
    """The period of lock renewals of orderly queues."""
    shutdown_wait_ms: int = 5_000
    """The time that running listeners have to finish at shutdown."""

    def __post_init__(self) -> None:
        if not NAME_PATTERN.fullmatch(self.group) or len(self.group) > GROUP_SIZE_MAX:
            raise ValueError(
                f"a group's name has 1 to {GROUP_SIZE_MAX} of {NAME_PATTERN.pattern}, "
                f"got {self.group!r}"
            )
        if self.group in _RESERVED_GROUPS:
            raise ValueError(f"the group name {self.group!r} is reserved: choose another one")
        if self.namespace is not None and not _NAMESPACE.fullmatch(self.namespace):
            raise ValueError(f"a namespace is {_NAMESPACE.pattern}, got {self.namespace!r}")
        if self.attempts_max is not None and self.attempts_max < 0:
            raise ValueError(f"attempts_max must be 0 or more, got {self.attempts_max}")
        if not isinstance(self.subscriptions, Mapping):
            raise ValueError("subscriptions maps topics: {'orders': Subscription()}")
        for topic, wanted in self.subscriptions.items():
            if not isinstance(wanted, Subscription):
                raise ValueError(f"the subscription of {topic!r} is Subscription({wanted!r})")
            if not NAME_PATTERN.fullmatch(topic) or len(topic) > SYSTEM_NAME_SIZE_MAX:
                raise ValueError(f"no topic can be called {topic!r}")
        for bounds in _BOUNDS:
            _check(self, *bounds)

    @property
    def on_the_wire(self) -> ConsumerSettings:
        """The same settings with the names that brokers know."""
        if self.namespace is None:
            return self
        return replace(
            self,
            group=wrapped(self.namespace, self.group),
            subscriptions={
                wrapped(self.namespace, topic): wanted
                for topic, wanted in self.subscriptions.items()
            },
        )

    @property
    def is_broadcasting(self) -> bool:
        """Whether every member receives every message."""
        return self.model is MessageModel.BROADCASTING

    @property
    def attempts(self) -> int:
        """The attempts after which concurrent consumption makes a message a dead letter."""
        return _ATTEMPTS_MAX if self.attempts_max is None else self.attempts_max


@dataclass(frozen=True, slots=True)
class PopSettings:
    """How a push consumer pops. Raises ValueError for invalid settings."""

    invisible_ms: int = 60_000
    """The time that listeners have for a message before the broker redelivers it."""
    batch_size: int = 32
    """The most messages of one pop."""
    pending_max: int = 96
    """The limit of waiting messages per popped queue, above which pops pause."""
    poll_ms: int = 15_000
    """How long a broker holds a pop without messages."""
    retry_seconds: tuple[int, ...] = _RETRY_SECONDS
    """The waits after a message's first, second, ... failure."""

    def __post_init__(self) -> None:
        for bounds in _POP_BOUNDS:
            _check(self, *bounds)
        if not self.retry_seconds or min(self.retry_seconds) < 0:
            raise ValueError("retry_seconds must name a wait for each failure, 0 or more")

    def retry_ms(self, attempts: int, delay_level: int = 0) -> int:
        """How long a failed message waits: by the listener's delay level, else by its attempts."""
        step = delay_level if delay_level > 0 else attempts
        return self.retry_seconds[min(step, len(self.retry_seconds) - 1)] * 1_000


def _check(settings: ConsumerSettings | PopSettings, name: str, low: int, high: int) -> None:
    value = getattr(settings, name)
    if not low <= value <= high:
        raise ValueError(f"{name} must be {low} to {high}, got {value}")


def wrapped(namespace: str | None, name: str) -> str:
    """The name that brokers know: topic `orders` of namespace `a` is `a%orders` there.

    System topics belong to no namespace.
    """
    if not namespace:
        return name
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix + wrapped(namespace, name.removeprefix(prefix))
    if is_system_topic(name) or name.startswith(f"{namespace}%"):
        return name
    return f"{namespace}%{name}"


def unwrapped(namespace: str | None, name: str) -> str:
    """The name that users of the namespace know."""
    if not namespace:
        return name
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return prefix + unwrapped(namespace, name.removeprefix(prefix))
    return name.removeprefix(f"{namespace}%")
