"""What can be set on a consumer, with RocketMQ's defaults, checked when it is made."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rocketmq_client.consumer.allocation.strategies import Average, Strategy
from rocketmq_client.consumer.common.flow_limits import FlowLimits
from rocketmq_client.consumer.common.namespaces import wrapped
from rocketmq_client.consumer.offset_store.start_offset import ConsumeFrom
from rocketmq_wire.model import (
    GROUP_SIZE_MAX,
    NAME_PATTERN,
    SYSTEM_NAME_SIZE_MAX,
    Subscription,
)

_RESERVED_GROUPS: Final = frozenset({"DEFAULT_CONSUMER", "CLIENT_INNER_PRODUCER"})
_NAMESPACE: Final = re.compile(r"[a-zA-Z0-9_-]+")
_BATCH_SIZE_MAX: Final = 1_024
_ATTEMPTS_MAX: Final = 16


class MessageModel(enum.Enum):
    """Who gets a message; the values are the wire's names."""

    CLUSTERING = "CLUSTERING"
    """One member of the group."""
    BROADCASTING = "BROADCASTING"
    """Every member."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Raises ValueError for what cannot be used."""

    group: str
    subscriptions: Mapping[str, Subscription] = field(default_factory=dict)
    """What is wanted, by topic."""
    namespace: str | None = None
    """Prefixed to the names of the group and of topics, and taken off those of messages."""
    model: MessageModel = MessageModel.CLUSTERING
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    """Of a group without progress. A queue of which nothing is gone yet it consumes from 0, as in
    RocketMQ; not so by `TIMESTAMP`, unless the broker is of 4.9."""
    consume_timestamp_ms: int | None = None
    """Where `TIMESTAMP` begins; None: half an hour before the start."""
    strategy: Strategy = field(default_factory=Average)
    pull_batch_size: int = 512
    """RocketMQ asks for 32, and a real broker gives no more at once; the bundled one does."""
    pull_interval_ms: int = 0
    limits: FlowLimits = field(default_factory=FlowLimits)
    suspend_ms: int = 15_000
    pull_timeout_ms: int = 30_000
    request_timeout_ms: int = 3_000
    consume_batch_size: int = 1
    threads: int = 20
    consume_timeout_ms: int = 15 * 60_000
    attempts_max: int | None = None
    """None: 16 in concurrent consumption, without end in orderly."""
    suspend_queue_ms: int = 1_000
    """How long an orderly queue rests after SUSPEND_CURRENT_QUEUE_A_MOMENT."""
    heartbeat_ms: int = 30_000
    route_ms: int = 30_000
    rebalance_ms: int = 20_000
    persist_ms: int = 5_000
    lock_ms: int = 20_000
    shutdown_wait_ms: int = 5_000
    """How long listeners that are at work may go on at the end."""

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
        for topic in self.subscriptions:
            if not NAME_PATTERN.fullmatch(topic) or len(topic) > SYSTEM_NAME_SIZE_MAX:
                raise ValueError(f"no topic can be called {topic!r}")
        for name, low, high in (
            ("pull_batch_size", 1, 32_768),
            ("pull_interval_ms", 0, 65_535),
            ("consume_batch_size", 1, _BATCH_SIZE_MAX),
            ("threads", 1, 1_000),
            ("suspend_queue_ms", 10, 30_000),
            ("request_timeout_ms", 1, 60_000),
            *((name, 1, 24 * 3_600_000) for name in _PERIODS),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} must be {low} to {high}, got {value}")

    @property
    def on_the_wire(self) -> ConsumerSettings:
        """The same with the names that brokers know."""
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
        return self.model is MessageModel.BROADCASTING

    @property
    def attempts(self) -> int:
        """After how many attempts a message of concurrent consumption is a dead letter."""
        return _ATTEMPTS_MAX if self.attempts_max is None else self.attempts_max


_PERIODS: Final = (
    *("suspend_ms", "pull_timeout_ms", "consume_timeout_ms", "heartbeat_ms", "route_ms"),
    *("rebalance_ms", "persist_ms", "lock_ms", "shutdown_wait_ms"),
)
