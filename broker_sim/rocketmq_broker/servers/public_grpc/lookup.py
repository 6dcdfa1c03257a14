"""What the public service looks up of topics and groups, without asking a request."""

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
    """How a group consumes."""

    is_fifo: bool
    attempts_max: int
    """Deliveries of a message, the first one included."""
    backoff: Mapping[str, Any] | None = None
    """The group's own exponential policy; None: RocketMQ's levels."""


class Lookup(Protocol):
    """The broker's tables as the service sees them."""

    broker_name: str
    host: str
    """Where clients reach it; empty: by the address that they used."""

    def topic(self, name: str) -> TopicConfig | None: ...

    def group(self, name: str) -> GroupLookup: ...


class EngineLookup:
    """Lookup of a running engine; on the event loop's thread."""

    def __init__(self, engine: Engine, broker_name: str, host: str) -> None:
        self._engine, self.broker_name, self.host = engine, broker_name, host

    def topic(self, name: str) -> TopicConfig | None:
        return self._engine.tables.topics.get(name)

    def group(self, name: str) -> GroupLookup:
        settings = self._engine.tables.groups.settings(name)
        policy = settings.get("groupRetryPolicy")
        backoff = None
        if isinstance(policy, dict) and policy.get("type") == "EXPONENTIAL":
            backoff = dict(policy.get("exponentialRetryPolicy") or {})
        return GroupLookup(
            bool(settings["consumeMessageOrderly"]), int(settings["retryMaxTimes"]) + 1, backoff
        )


def accepted_types(config: TopicConfig) -> tuple[int, ...]:
    """The message types that a topic takes; one that says none takes all but the newest two."""
    attributes = config.attributes
    named = attributes.get("message.type", "")
    return _TYPES.get(named.upper(), _ANY)
