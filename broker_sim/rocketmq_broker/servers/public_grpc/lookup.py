"""Topics and groups as the public service looks them up, without a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rocketmq_broker.engine.engine import Engine
from rocketmq_wire.grpc.public.messages import DELAY, FIFO, LITE, NORMAL, PRIORITY, TRANSACTION
from rocketmq_wire.model import TopicConfig

_TYPES: Final = {
    "NORMAL": (NORMAL,),
    "FIFO": (FIFO,),
    "DELAY": (DELAY,),
    "TRANSACTION": (TRANSACTION,),
    "MIXED": (NORMAL, FIFO, DELAY, TRANSACTION),
    "LITE": (LITE,),
    "PRIORITY": (PRIORITY,),
}
_ANY: Final = (NORMAL, FIFO, DELAY, TRANSACTION)


@dataclass(frozen=True, slots=True)
class GroupLookup:
    """The settings of a consumer group."""

    is_fifo: bool
    attempts_max: int
    """Deliveries of a message, including the first."""
    backoff: Mapping[str, Any] | None = None
    """The group's own exponential policy; None for RocketMQ's delay levels."""


class Lookup(Protocol):
    """The broker's topics and groups, as the service reads them."""

    broker_name: str
    host: str
    """The host in routes; empty for the address that the client used."""

    def topic(self, name: str) -> TopicConfig | None: ...

    def group(self, name: str) -> GroupLookup: ...


class EngineLookup:
    """Looks up a running engine's tables, on the event loop's thread."""

    def __init__(self, engine: Engine, broker_name: str, host: str) -> None:
        self._tables = engine.tables
        self.broker_name = broker_name
        self.host = host

    def topic(self, name: str) -> TopicConfig | None:
        return self._tables.topics.get(name)

    def group(self, name: str) -> GroupLookup:
        settings = self._tables.groups.settings(name)
        policy = settings.get("groupRetryPolicy")
        backoff = None
        if isinstance(policy, dict) and policy.get("type") == "EXPONENTIAL":
            backoff = dict(policy.get("exponentialRetryPolicy") or {})
        return GroupLookup(
            bool(settings["consumeMessageOrderly"]), int(settings["retryMaxTimes"]) + 1, backoff
        )


def accepted_types(config: TopicConfig) -> tuple[int, ...]:
    """The message types that a topic takes; without a type, all but LITE and PRIORITY."""
    return _TYPES.get(config.attributes.get("message.type", "").upper(), _ANY)
