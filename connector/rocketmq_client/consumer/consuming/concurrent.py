"""Concurrent consumption: free threads consume batches of a queue in any order.

succeeded                          consumed
failed, the group shares queues    sent back to the broker; if that fails, retried here after 5 s
failed, broadcasting               logged and dropped
listener over its time limit       sent back; the listener's later result is ignored
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from rocketmq_client.consumer.common.io_thread import IoThread, now_ms
from rocketmq_client.consumer.common.listener import (
    ConsumeContext,
    ConsumeHook,
    ConsumeStatus,
    Listener,
)
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.consuming.consumption import Consumption, send_back
from rocketmq_client.consumer.consuming.listener_calls import call_listener
from rocketmq_client.consumer.consuming.thread_pool import ConsumePool
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue

_LOG = logging.getLogger(__name__)
LOCAL_RETRY_MS: Final = 5_000
_TIMEOUT_LEVEL: Final = 3


def split_outcome(
    messages: Sequence[ReceivedMessage], status: object, ack_index: int
) -> tuple[list[ReceivedMessage], list[ReceivedMessage]]:
    """The consumed and the failed messages, by the listener's result."""
    if status is not ConsumeStatus.SUCCESS:
        return [], list(messages)
    cut = max(0, min(ack_index + 1, len(messages)))
    return list(messages[:cut]), list(messages[cut:])


@dataclass(slots=True, eq=False)
class _Running:
    owned: OwnedQueue
    messages: list[ReceivedMessage]
    started_ms: int
    is_expired: bool = False


class ConcurrentConsumption(Consumption):
    """See the module."""

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
        super().__init__(io, settings, listener, pool, hooks, resume_pulls=resume_pulls)
        self._running: dict[int, _Running] = {}
        self._running_lock = threading.Lock()

    def on_messages(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        """Give a pull's messages to the threads in batches."""
        size = self._settings.consume_batch_size
        put, consume = self._submitter.put, self.consume
        if len(messages) <= size:
            put(partial(consume, owned, messages))
            return
        for start in range(0, len(messages), size):
            put(partial(consume, owned, messages[start : start + size]))

    def consume(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        """Consume one batch, in a thread of the pool."""
        process = owned.process
        if process.is_dropped:
            return
        running = _Running(owned, messages, now_ms())
        epoch_ms = time.time_ns() // 1_000_000
        for message in messages:
            message.consume_start_ms = epoch_ms
        key = id(running)
        self._running[key] = running
        context = ConsumeContext(owned.queue)
        status, _, spent_ns = call_listener(
            self._listener,
            messages,
            context,
            self._hooks,
            slow_ns=self._settings.consume_timeout_ms * 1_000_000,
        )
        with self._running_lock:
            del self._running[key]
            is_expired = running.is_expired
        self.counts.spent_ns += spent_ns
        process.last_consume_ms = now_ms()
        if not is_expired:
            self._apply(owned, messages, status, context)

    def expire(self, time_ms: int) -> None:
        """Send back the batches of listeners over their time limit, in the housekeeping thread."""
        if self._settings.is_broadcasting:
            return
        oldest_ms = time_ms - self._settings.consume_timeout_ms
        with self._running_lock:
            expired = [
                running
                for running in list(self._running.values())
                if running.started_ms < oldest_ms and not running.is_expired
            ]
            for running in expired:
                running.is_expired = True
        for running in expired:
            if running.owned.process.is_dropped:
                continue
            _LOG.warning(
                "%s: a listener is over its time limit: sending its messages back",
                running.owned.queue,
            )
            failed = self._send_back(running.messages, _TIMEOUT_LEVEL)
            sent = [message for message in running.messages if message not in failed]
            self._finish(running.owned, sent)
            if failed:
                with self._running_lock:
                    is_running = id(running) in self._running
                    running.is_expired = not is_running
                if not is_running:
                    # The listener returned meanwhile, and its result was ignored.
                    self._retry_here(running.owned, failed)

    def _apply(
        self,
        owned: OwnedQueue,
        messages: list[ReceivedMessage],
        status: object,
        context: ConsumeContext,
    ) -> None:
        consumed, failed = split_outcome(messages, status, context.ack_index)
        self.counts.succeeded += len(consumed)
        if status is not None and not isinstance(status, ConsumeStatus):
            _LOG.error("%s: %r is no ConsumeStatus: it counts as a failure", owned.queue, status)
        if failed:
            self.counts.failed += len(failed)
            if owned.process.is_dropped:
                return
            if self._settings.is_broadcasting:
                _LOG.warning(
                    "%d failed messages are dropped, the first: %s", len(failed), failed[0]
                )
            else:
                refused = self._send_back(failed, context.delay_level)
                if refused:
                    self._retry_here(owned, refused)
                    kept = {id(message) for message in refused}
                    messages = [message for message in messages if id(message) not in kept]
        self._finish(owned, messages)

    def _send_back(
        self, messages: Sequence[ReceivedMessage], delay_level: int
    ) -> list[ReceivedMessage]:
        return send_back(
            self._io,
            self._settings,
            messages,
            delay_level=delay_level,
            attempts_max=self._settings.attempts,
        )

    def _retry_here(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        for message in messages:
            message.reconsume_times += 1
        self._submitter.later(partial(self.consume, owned, messages), LOCAL_RETRY_MS)
