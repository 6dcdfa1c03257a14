"""A producer of transactional messages: it sends a half message, then commits it or rolls it back.

Between the two the sender does its own work, in a database for instance. If it dies there, the
broker asks another member of its group, or the same sender after its restart. The listener's
`check` must find out from what was done.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.producer.half_messages import (
    HalfMessage,
    as_half,
    end_many,
    half_message,
    half_of,
)
from rocketmq_client.producer.producer import Producer
from rocketmq_client.producer.transaction_checks import CheckService
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Message, QueueId
from rocketmq_wire.records.properties import UNIQUE_KEY, decode_properties
from rocketmq_wire.requests.transactions import Resolution

_LOG = logging.getLogger(__name__)


class TransactionListener(Protocol):
    """A producer's own work, and what it knows of that work later."""

    def execute(self, message: Message, half: HalfMessage) -> Resolution:
        """Do the work after the broker has stored the half message. An exception means UNKNOWN."""
        ...

    def check(self, message: ReceivedMessage) -> Resolution:
        """Return the work's outcome to a broker, in another thread. An exception means UNKNOWN."""
        ...


@dataclass(frozen=True, slots=True)
class TransactionSent:
    """The outcome of a transaction for its sender."""

    half: HalfMessage
    """The stored half message."""
    resolution: Resolution
    """How the transaction ended."""
    error: RocketMQError | None = None
    """The error that leaves the end unknown; the broker will ask."""


class TransactionProducer:
    """Sends transactions; use it in `with`. Threads may share it, and take turns at sending.

    Args:
        settings: The addresses of the cluster, credentials and time-outs.
        group: The producer group, whose members answer checks.
        listener: Does the work of a transaction, and answers checks.
        topics: Topics whose brokers learn of this member at once.
        immunity_seconds: The time before a broker checks a message; None: the broker's default.
        check_threads: The threads that call `listener.check`.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        group: str,
        listener: TransactionListener,
        *,
        topics: Iterable[str] = (),
        immunity_seconds: int | None = None,
        check_threads: int = 1,
    ) -> None:
        """Register at the brokers of `topics` at once, at others with the first message.

        Brokers send no check of a message before `immunity_seconds`; None is the broker's default
        (6 s).
        """
        self.group = group
        self._listener = listener
        self._immunity_seconds = immunity_seconds
        self._producer = Producer(settings, group)
        self._lock = threading.Lock()
        self._checks = CheckService(
            settings, group, topics, listener.check, thread_count=check_threads
        )

    def __enter__(self) -> TransactionProducer:
        self._checks.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the group, and close the connections."""
        self._checks.stop()
        with self._lock:
            self._producer.close()

    @property
    def client_id(self) -> str:
        return self._checks.client_id

    def send_in_transaction(
        self, message: Message, queue: QueueId | None = None
    ) -> TransactionSent:
        """Send a half message, call the listener, and end the message with its resolution.

        Raises as `Producer.send`; then the listener was not called, and the broker asks about the
        message if it has stored it.
        """
        half = self.send_half(message, queue)
        try:
            resolution = self._listener.execute(message, half)
        except Exception:  # noqa: BLE001 - the broker will ask
            _LOG.exception("the listener of group %s failed", self.group)
            resolution = Resolution.UNKNOWN
        try:
            self.end_transaction(half, resolution)
        except RocketMQError as error:
            _LOG.warning("%s was not ended: %s", half, error)
            return TransactionSent(half, resolution, error)
        return TransactionSent(half, resolution)

    def send_half(self, message: Message, queue: QueueId | None = None) -> HalfMessage:
        """Send a half message for `end_transaction`; without a queue, queues take turns."""
        self._checks.add_topic(message.topic)
        prepared = half_message(message, self.group, self._immunity_seconds)
        with self._lock:
            chosen = queue or self._producer.next_queue(message.topic)
            request = as_half(self._producer.message_request(prepared, chosen))
            (sent,) = self._producer.send_many([request])
        if isinstance(sent.result, RocketMQError):
            raise sent.result
        return half_of(request, sent.result, decode_properties(request.properties)[UNIQUE_KEY])

    def end_transaction(self, half: HalfMessage, resolution: Resolution) -> None:
        """Commit or roll back. Raises EndOutcomeUnknownError, and the broker's refusal.

        For `UNKNOWN` nothing is sent: the broker will ask.
        """
        if resolution is Resolution.UNKNOWN:
            return
        with self._lock:
            ((_, error),) = end_many(self._producer.cluster, [(half, resolution)])
        if error is not None:
            raise error

    def wait_known(self, timeout_seconds: float = 10.0) -> bool:
        """Wait until a broker knows this member; False after the time-out."""
        return self._checks.wait_known(timeout_seconds)
