"""A producer of transactional messages: sent half, then committed or rolled back.

Between the two the sender does what the message is about, in a data base for instance. Should it
die there, the broker asks another member of its group, or itself when it is back: the listener's
`check` has to know from what was done.
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
    """What a producer does between the halves, and what it knows of it later."""

    def execute(self, message: Message, half: HalfMessage) -> Resolution:
        """Do what the message is about, now that the broker holds it. An exception: unknown."""
        ...

    def check(self, message: ReceivedMessage) -> Resolution:
        """What became of it? Asked by brokers, in another thread. An exception: unknown."""
        ...


@dataclass(frozen=True, slots=True)
class TransactionSent:
    """A transaction as its sender left it."""

    half: HalfMessage
    resolution: Resolution
    error: RocketMQError | None = None
    """Why it is not known to be ended; the broker will ask."""


class TransactionProducer:
    """Use it in `with`. Several threads may call its methods; one of them at a time works."""

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
        """Brokers of `topics` can ask from the start, others from the first message on.

        `immunity_seconds` is for how long after a message's birth nobody is asked about it; None
        leaves that to the broker (6 s).
        """
        self.group, self._listener = group, listener
        self._immunity_seconds = immunity_seconds
        self._producer = Producer(settings, group)
        self._lock = threading.Lock()
        self._checks = CheckService(
            settings, group, topics, self._check, thread_count=check_threads
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
        """Send half, have the listener execute, and end it as that says.

        Raises what a send raises: then the listener was not called, and the message, should the
        broker have it all the same, is asked about.
        """
        half = self.send_half(message, queue)
        try:
            resolution = self._listener.execute(message, half)
        except Exception:  # noqa: BLE001 - whatever a listener does, the broker will ask
            _LOG.exception("the listener of group %s failed", self.group)
            resolution = Resolution.UNKNOWN
        try:
            self.end_transaction(half, resolution)
        except RocketMQError as error:
            _LOG.warning("%s was not ended: %s", half, error)
            return TransactionSent(half, resolution, error)
        return TransactionSent(half, resolution)

    def send_half(self, message: Message, queue: QueueId | None = None) -> HalfMessage:
        """Send half, for `end_transaction` to end; without a queue, queues take turns."""
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
        """Commit or roll back. Raises EndOutcomeUnknownError, and what the broker refuses.

        With `UNKNOWN` nothing is sent: the broker will ask.
        """
        if resolution is Resolution.UNKNOWN:
            return
        with self._lock:
            ((_, error),) = end_many(self._producer.cluster, [(half, resolution)])
        if error is not None:
            raise error

    def wait_known(self, timeout_seconds: float = 10.0) -> bool:
        """Wait until a broker knows this member; False if none does in that time."""
        return self._checks.wait_known(timeout_seconds)

    def _check(self, message: ReceivedMessage) -> Resolution:
        return self._listener.check(message)
