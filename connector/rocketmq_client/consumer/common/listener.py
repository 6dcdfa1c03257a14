"""The contract of listeners and of the hooks around their calls."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_wire.model import QueueId

_LOG = logging.getLogger(__name__)
_ALL: Final = 2**31 - 1


class ConsumeStatus(enum.Enum):
    """The result of a concurrent listener; None and an exception mean RECONSUME_LATER."""

    SUCCESS = "CONSUME_SUCCESS"
    """The messages count as consumed."""
    RECONSUME_LATER = "RECONSUME_LATER"
    """The broker delivers the messages again, later."""


class OrderlyStatus(enum.Enum):
    """The result of an orderly listener; None and an exception mean SUSPEND."""

    SUCCESS = "SUCCESS"
    """The messages count as consumed."""
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"
    """The queue pauses, and the listener gets the same messages again."""
    COMMIT = "COMMIT"
    """Only without auto-commit: commit all messages consumed so far."""
    ROLLBACK = "ROLLBACK"
    """Only without auto-commit: redeliver all messages since the last commit."""


class ReturnType(enum.Enum):
    """The outcome of a listener's call, for hooks."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURN_NULL = 3
    FAILED = 4


@dataclass(slots=True)
class ConsumeContext:
    """The context of one listener call; the listener may set the fields after `queue`."""

    queue: QueueId
    """The queue of the messages."""
    delay_level: int = 0
    """Concurrent: the delay level of failed messages; 0 by their attempts, -1 for dead letters."""
    ack_index: int = _ALL
    """Concurrent: with SUCCESS, the index of the last consumed message; later ones failed."""
    auto_commit: bool = True
    """Orderly: whether SUCCESS alone commits."""
    suspend_ms: int | None = None
    """Orderly: the queue's pause after SUSPEND; None: as in the settings."""
    properties: dict[str, object] = field(default_factory=dict)
    """Values that hooks pass on."""
    group: str = ""
    """For hooks: the consumer group, by the name that brokers know."""
    namespace: str | None = None
    """For hooks: the namespace of the group and the topics."""
    is_success: bool = False
    """For hooks: whether the listener consumed the messages; False before the call."""


ConcurrentListener = Callable[[list[ReceivedMessage], ConsumeContext], "ConsumeStatus | None"]
OrderlyListener = Callable[[list[ReceivedMessage], ConsumeContext], "OrderlyStatus | None"]
Listener = Callable[[list[ReceivedMessage], ConsumeContext], object]
"""A listener of either kind, whose status is checked when it is used."""


class ConsumeHook(Protocol):
    """Called around each call of a listener; an exception that it raises is logged."""

    def before(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None: ...

    def after(
        self, messages: Sequence[ReceivedMessage], context: ConsumeContext, result: ReturnType
    ) -> None: ...
