"""The base of concurrent and orderly consumption, and the send-back of failed messages."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

from rocketmq_client.consumer.common.io_thread import IoThread
from rocketmq_client.consumer.common.listener import ConsumeCounts, ConsumeHook, Listener
from rocketmq_client.consumer.common.messages import ORIGIN_MESSAGE_ID, ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumerSettings, wrapped
from rocketmq_client.consumer.consuming.thread_pool import ConsumePool, Submitter
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.requests.messages import SendBack

_LOG = logging.getLogger(__name__)
DEAD_LETTER_LEVEL: Final = -1
_TIMEOUT_MS: Final = 5_000


class Consumption(ABC):
    """Calls one listener for all queues that a consumer pulls from."""

    def __init__(
        self,
        io: IoThread,
        settings: ConsumerSettings,
        listener: Listener,
        pool: ConsumePool,
        hooks: Sequence[ConsumeHook],
        *,
        resume_pulls: Callable[[OwnedQueue], None],
    ) -> None:
        self._io = io
        self._settings = settings
        self._listener = listener
        self._hooks = hooks
        self._resume_pulls = resume_pulls
        self._submitter = Submitter(pool, io)
        self.counts = ConsumeCounts()
        self._is_stopping = False

    @abstractmethod
    def on_messages(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        """Consume a pull's messages."""

    def stop(self) -> None:
        """Begin no more batches: the pool drops waiting ones, their next owners consume them."""
        self._is_stopping = True

    def expire(self, time_ms: int) -> None:
        """Send back the batches of listeners over their time limit, in the housekeeping thread."""
        del time_ms

    def _finish(self, owned: OwnedQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Remove messages that were consumed or sent back, and pull if limits allow it now."""
        with owned.lock:
            owned.process.remove(messages)
            may_pull = owned.control.on_consumed(owned.process)
        if may_pull:
            self._resume_pulls(owned)


def send_back(
    io: IoThread,
    settings: ConsumerSettings,
    messages: Sequence[ReceivedMessage],
    *,
    delay_level: int,
    attempts_max: int,
) -> list[ReceivedMessage]:
    """Send messages back; returns those that brokers refused, or may have refused."""
    requests = [
        (
            message.broker,
            SendBack(
                settings.group,
                message.physical_offset,
                delay_level,
                message.properties.get(ORIGIN_MESSAGE_ID) or message.message_id,
                wrapped(settings.namespace, message.topic),
                attempts_max,
            ),
        )
        for message in messages
    ]
    replies = io.call_many(requests, timeout_ms=_TIMEOUT_MS)
    failed = []
    for message, reply in zip(messages, replies, strict=True):
        if isinstance(reply, RocketMQError):
            _LOG.warning("%s could not be sent back: %s", message, reply)
            failed.append(message)
    return failed
