"""Calls the listener for the messages that a consumer pulled, concurrently or in order.

Concurrent: free threads consume batches of a queue in any order.

succeeded                          consumed
failed, the group shares queues    sent back to the broker; if that fails, retried here after 5 s
failed, broadcasting               logged and dropped
listener over its time limit       sent back; the listener's later result is ignored

Orderly: one batch of a queue at a time, in order, while the queue is locked.

SUCCESS, COMMIT          consumed; without auto-commit only COMMIT commits
ROLLBACK                 all messages since the last commit are consumed again after a pause
SUSPEND                  the batch is consumed again after a pause; a message without attempts left
                         becomes a dead letter instead
lock lost or too old     the queue pauses until it is locked again
queue is leaving         the queue pauses until it is given up, or stays after all
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from rocketmq_client.consumer.common.io_thread import IoThread, now_ms
from rocketmq_client.consumer.common.listener import ConsumeContext, ConsumeStatus, OrderlyStatus
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.consuming.listener_calls import (
    DEAD_LETTER_LEVEL,
    ListenerCalls,
    send_back,
    split_outcome,
)
from rocketmq_client.consumer.consuming.thread_pool import ConsumePool
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue

_LOG = logging.getLogger(__name__)
LOCAL_RETRY_MS: Final = 5_000
_TIMEOUT_LEVEL: Final = 3
# A queue that never runs empty must leave its thread to other queues at times.
TURN_MS_MAX: Final = 60_000
_TURN_PAUSE_MS: Final = 10
_UNLOCKED_PAUSE_MS: Final = 3_000
_LEAVING_PAUSE_MS: Final = 1_000


@dataclass(eq=False)
class Consumption(ABC):
    """Calls one listener for all queues that a consumer pulls from."""

    io: IoThread
    calls: ListenerCalls
    pool: ConsumePool
    resume_pulls: Callable[[OwnedQueue], None]

    def __post_init__(self) -> None:
        self.settings = self.calls.settings
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
            self.resume_pulls(owned)


@dataclass(slots=True, eq=False)
class _Running:
    owned: OwnedQueue
    messages: list[ReceivedMessage]
    started_ms: int
    is_returned: bool = False
    """The listener returned after the batch had expired."""


class ConcurrentConsumption(Consumption):
    def __post_init__(self) -> None:
        super().__post_init__()
        self._running: set[_Running] = set()
        """The thread that removes a batch decides about it.

        With a lock, taken for every message, two threads wait for each other at every message:
        100,000 messages one by one took 2.3 s instead of 1.0 s.
        """

    def on_messages(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        size = self.settings.consume_batch_size
        for start in range(0, len(messages), size):
            self.pool.submit(partial(self.consume, owned, messages[start : start + size]))

    def consume(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        """Consume one batch, in a thread of the pool."""
        if owned.process.is_dropped:
            return
        running = _Running(owned, messages, now_ms())
        self._running.add(running)
        context = ConsumeContext(owned.queue)
        status, _ = self.calls.call(messages, context)
        owned.process.last_consume_ms = now_ms()
        if not self._claim(running):
            running.is_returned = True
            if not self._claim(running):
                return
        self._apply(owned, messages, status, context)

    def _claim(self, running: _Running) -> bool:
        """Whether the caller decides about the batch; False if another thread does."""
        try:
            self._running.remove(running)
        except KeyError:
            return False
        return True

    def expire(self, time_ms: int) -> None:
        if self.settings.is_broadcasting:
            return
        oldest_ms = time_ms - self.settings.consume_timeout_ms
        for running in self._running.copy():
            if running.started_ms >= oldest_ms or not self._claim(running):
                continue
            if running.owned.process.is_dropped:
                continue
            _LOG.warning(
                "%s: a listener is over its time limit: sending its messages back",
                running.owned.queue,
            )
            failed = send_back(self.io, self.settings, running.messages, _TIMEOUT_LEVEL)
            sent = [message for message in running.messages if message not in failed]
            self._finish(running.owned, sent)
            if failed:
                self._running.add(running)
                # If the listener returned meanwhile, its result was ignored.
                if running.is_returned and self._claim(running):
                    self._retry_here(running.owned, failed)

    def _apply(
        self,
        owned: OwnedQueue,
        messages: list[ReceivedMessage],
        status: object,
        context: ConsumeContext,
    ) -> None:
        consumed, failed = split_outcome(messages, status, context.ack_index)
        self.calls.count(owned.queue, succeeded=len(consumed), failed=len(failed))
        if status is not None and not isinstance(status, ConsumeStatus):
            _LOG.error("%s: %r is no ConsumeStatus: it counts as a failure", owned.queue, status)
        if failed:
            if owned.process.is_dropped:
                return
            if self.settings.is_broadcasting:
                _LOG.warning(
                    "%d failed messages are dropped, the first: %s", len(failed), failed[0]
                )
            else:
                refused = send_back(self.io, self.settings, failed, context.delay_level)
                if refused:
                    self._retry_here(owned, refused)
                    kept = {id(message) for message in refused}
                    messages = [message for message in messages if id(message) not in kept]
        self._finish(owned, messages)

    def _retry_here(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        for message in messages:
            message.reconsume_times += 1
        self.pool.later(partial(self.consume, owned, messages), LOCAL_RETRY_MS)


class OrderlyConsumption(Consumption):
    def on_messages(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        """Consume the queue, unless a thread does so already."""
        del messages
        with owned.lock:
            if owned.is_consuming:
                return
            owned.is_consuming = True
        self.pool.submit(partial(self._consume, owned))

    def _consume(self, owned: OwnedQueue) -> None:
        """Consume until the queue is empty or lost, or its thread is for other queues."""
        with owned.consume_lock:
            end_ms = now_ms() + TURN_MS_MAX
            while not (owned.process.is_dropped or self._is_stopping):
                pause_ms = self._pause_before_batch(owned, end_ms)
                if not pause_ms:
                    batch = self._next_batch(owned)
                    if not batch:
                        return
                    pause_ms = self._consume_batch(owned, batch)
                if pause_ms:
                    self.pool.later(partial(self._consume, owned), pause_ms)
                    return

    def _pause_before_batch(self, owned: OwnedQueue, end_ms: int) -> int:
        """The queue's pause in ms before its next batch; 0 if it may be consumed now."""
        needs_lock = not self.settings.is_broadcasting
        if needs_lock and not owned.process.is_lock_valid(now_ms()):
            return _UNLOCKED_PAUSE_MS
        if owned.is_leaving:
            return _LEAVING_PAUSE_MS
        return _TURN_PAUSE_MS if now_ms() >= end_ms else 0

    def _next_batch(self, owned: OwnedQueue) -> list[ReceivedMessage]:
        """The next messages in order; without any the queue counts as not being consumed."""
        skipped = len(owned.uncommitted)
        with owned.lock:
            batch = owned.process.first(skipped + self.settings.consume_batch_size)[skipped:]
            if not batch:
                owned.is_consuming = False
        return batch

    def _consume_batch(self, owned: OwnedQueue, batch: list[ReceivedMessage]) -> int:
        """Consume one batch; returns the queue's pause in ms."""
        context = ConsumeContext(owned.queue)
        status, _ = self.calls.call(batch, context)
        owned.process.last_consume_ms = now_ms()
        pause_ms = max(10, min(context.suspend_ms or self.settings.suspend_queue_ms, 30_000))
        if status is OrderlyStatus.SUCCESS and not context.auto_commit:
            self.calls.count(owned.queue, succeeded=len(batch))
            owned.uncommitted += batch
            return 0
        if status in (OrderlyStatus.SUCCESS, OrderlyStatus.COMMIT):
            self.calls.count(owned.queue, succeeded=len(batch))
            self._commit(owned, batch)
            return 0
        if status is not None and not isinstance(status, OrderlyStatus):
            _LOG.error("%s: %r is no OrderlyStatus: it counts as a failure", owned.queue, status)
        self.calls.count(owned.queue, failed=len(batch))
        if status is OrderlyStatus.ROLLBACK and not context.auto_commit:
            owned.uncommitted.clear()
            return pause_ms
        if self._give_up_exhausted(owned, batch):
            self._commit(owned, batch)
            return 0
        return pause_ms

    def _commit(self, owned: OwnedQueue, batch: list[ReceivedMessage]) -> None:
        consumed = [*owned.uncommitted, *batch]
        owned.uncommitted.clear()
        self._finish(owned, consumed)

    def _give_up_exhausted(self, owned: OwnedQueue, batch: list[ReceivedMessage]) -> bool:
        """Count the attempt; True if the batch has no message left to retry."""
        limit = self.settings.attempts_max
        exhausted = [m for m in batch if limit is not None and m.reconsume_times >= limit]
        kept = [m for m in batch if limit is None or m.reconsume_times < limit]
        if exhausted and not owned.process.is_dropped:
            kept += send_back(self.io, self.settings, exhausted, DEAD_LETTER_LEVEL)
        for message in kept:
            message.reconsume_times += 1
        return not kept
