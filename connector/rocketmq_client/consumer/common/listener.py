"""What listeners are given and may answer, and the hooks around them."""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_wire.model import QueueId

_LOG = logging.getLogger(__name__)
_ALL: Final = 2**31 - 1


class ConsumeStatus(enum.Enum):
    """What a concurrent listener returns; None and an exception mean RECONSUME_LATER."""

    SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class OrderlyStatus(enum.Enum):
    """What an orderly listener returns; None and an exception mean SUSPEND."""

    SUCCESS = "SUCCESS"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
    COMMIT = "COMMIT"
    """Only without auto-commit: all that was consumed so far counts."""
    ROLLBACK = "ROLLBACK"
    """Only without auto-commit: all since the last commit comes again."""


class ReturnType(enum.Enum):
    """How a listener came back, for hooks."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


@dataclass(slots=True)
class ConsumeContext:
    """Of one call of a listener, which may set the first fields."""

    queue: QueueId
    delay_level: int = 0
    """Concurrent: how long failed messages wait; 0 by their attempts, -1 for the dead letters."""
    ack_index: int = _ALL
    """Concurrent: with SUCCESS, the last message that was consumed; those behind it failed."""
    auto_commit: bool = True
    """Orderly: whether SUCCESS alone is progress."""
    suspend_ms: int | None = None
    """Orderly: how long the queue rests after SUSPEND; None as the settings say."""
    properties: dict[str, object] = field(default_factory=dict)
    """For hooks."""


ConcurrentListener = Callable[[list[ReceivedMessage], ConsumeContext], "ConsumeStatus | None"]
OrderlyListener = Callable[[list[ReceivedMessage], ConsumeContext], "OrderlyStatus | None"]


class ConsumeHook(Protocol):
    """Called around each call of a listener; what it raises is logged."""

    def before(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None: ...

    def after(
        self, messages: Sequence[ReceivedMessage], context: ConsumeContext, result: ReturnType
    ) -> None: ...


@dataclass(slots=True)
class ConsumeCounts:
    """What listeners did since the start. Threads add to it, so it may miss a few."""

    succeeded: int = 0
    failed: int = 0
    spent_ns: int = 0
    started_ns: int = field(default_factory=time.monotonic_ns)

    @property
    def success_rate(self) -> float:
        """Messages a second."""
        return self.succeeded * 1e9 / max(time.monotonic_ns() - self.started_ns, 1)

    @property
    def failure_rate(self) -> float:
        """Messages a second."""
        return self.failed * 1e9 / max(time.monotonic_ns() - self.started_ns, 1)
