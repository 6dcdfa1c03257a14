"""The client's own errors; the network's and the brokers' are in `rocketmq_wire.errors`.

RocketMQError
    SendOutcomeUnknownError        messages may or may not be stored
    EndOutcomeUnknownError         a transaction may or may not be ended
    SendBackRefusedError           a broker refused to take a message back
    LookupIncompleteError          the key index does not return all messages with a key
    RangeLostError                 wanted offsets are gone
    WatchDiedError                 the thread that watches the ends of queues has ended
    TooManyRequestsError           the limit of requests without a reply; retryable
    ClientStateError               a consumer's state does not allow the call
    ProgressFileError              a broadcasting member's offset file is damaged
"""

from __future__ import annotations

from typing import Final

from rocketmq_client.loss import Loss, LossReason
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId
from rocketmq_wire.plural import plural
from rocketmq_wire.requests.transactions import Resolution


class SendOutcomeUnknownError(RocketMQError):
    """The messages may or may not be stored: the answer to their request was lost."""

    def __init__(self, queue: QueueId, count: int, reason: str) -> None:
        super().__init__(queue, count, reason)
        self.queue = queue
        self.count = count
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_SEND.OUTCOME_UNKNOWN] {self.queue}: {plural(self.count, 'message')} may "
            f"or may not be stored: {self.reason}. Sending them again may store them twice."
        )


class EndOutcomeUnknownError(RocketMQError):
    """The transaction may or may not be ended: the answer was lost."""

    def __init__(
        self, queue: QueueId, transaction_id: str, resolution: Resolution, reason: str
    ) -> None:
        super().__init__(queue, transaction_id, resolution, reason)
        self.queue = queue
        self.transaction_id = transaction_id
        self.resolution = resolution
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_TRANSACTION.OUTCOME_UNKNOWN] {self.queue}: transaction "
            f"{self.transaction_id} may or may not be ended with {self.resolution.name}: "
            f"{self.reason}. If it is open, the broker asks the producer group about it."
        )


class SendBackRefusedError(RocketMQError):
    def __init__(self, broker: str, position: int, group: str, reason: str) -> None:
        super().__init__(broker, position, group, reason)
        self.broker = broker
        self.position = position
        self.group = group
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_SEND.BACK_REFUSED] broker={self.broker} physicalOffset={self.position} "
            f"group={self.group}: {self.reason.rstrip('.')}. Rows must come from this cluster and "
            "still be stored there, and its brokers know only groups that have read."
        )


class LookupIncompleteError(RocketMQError):
    """More messages with one hash have one store time than a broker returns in an answer."""

    def __init__(self, topic: str, key: str, broker: str, found: int) -> None:
        super().__init__(topic, key, broker, found)
        self.topic = topic
        self.key = key
        self.broker = broker
        self.found = found

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_LOOKUP.INCOMPLETE] topic={self.topic} broker={self.broker}: the key index "
            f"returned {self.found} messages with key {self.key!r}, and cannot return older ones."
            " Read the topic without messageKey, and filter by the column keys."
        )


_TEXTS: Final = {
    LossReason.EXPIRED: "retention removed them",
    LossReason.TRUNCATED: "the queue ends before them",
    LossReason.TOPIC_DELETED: "the topic was deleted",
    LossReason.TOPIC_RECREATED: "the topic was deleted and created again",
    LossReason.QUEUE_REMOVED: "the topic has fewer queues now",
    LossReason.HOLE: "the queue lists them, but their messages are gone",
}


class RangeLostError(RocketMQError):
    """Offsets to download are gone; `loss` says which, and why."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss)
        self.loss = loss

    def __str__(self) -> str:
        loss = self.loss
        there = f"[{loss.bounds.start},{loss.bounds.end})" if loss.bounds else "nothing"
        gone = "1 offset" if loss.count == 1 else f"{loss.count} offsets"
        verb = "is" if loss.count == 1 else "are"
        return (
            f"[ROCKETMQ_DATA_LOSS.{loss.reason.value}] {loss.queue} requested={loss.start} "
            f"available={there}: {gone} up to {loss.end} {verb} gone, {_TEXTS[loss.reason]}."
        )


class WatchDiedError(RocketMQError):
    """The thread ended by an error of its own, so the ends that it knows are out of date."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_WATCH.DIED] the watch for new messages ended by {self.reason}. "
            "Restart the query, which resumes from its checkpoint; the log has the traceback."
        )


class TooManyRequestsError(RocketMQError):
    retryable = True

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_CONNECTION.TOO_MANY_REQUESTS] {self.count} requests wait for their "
            "replies: repeat the request when some have arrived."
        )


class ClientStateError(RocketMQError):
    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"[ROCKETMQ_GROUP.STATE] {self.what}"


class ProgressFileError(RocketMQError):
    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_GROUP.PROGRESS_FILE] {self.path} and its backup (.bak) cannot be read: "
            f"{self.reason}. Restore one of them, or remove both to start where consume_from says."
        )
