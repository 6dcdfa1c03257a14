"""Orderly consumption: one batch of a queue at a time, in order, while the queue is locked.

SUCCESS, COMMIT          consumed; without auto-commit only COMMIT commits
ROLLBACK                 all messages since the last commit are consumed again after a pause
SUSPEND                  the batch is consumed again after a pause; a message without attempts left
                         becomes a dead letter instead
lock lost or too old     the queue pauses until it is locked again
queue is leaving         the queue pauses until it is given up, or stays after all
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from rocketmq_client.consumer.common.io_thread import now_ms
from rocketmq_client.consumer.common.listener import (
    ConsumeContext,
    OrderlyStatus,
)
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.consuming.consumption import (
    DEAD_LETTER_LEVEL,
    Consumption,
    send_back,
)
from rocketmq_client.consumer.consuming.listener_calls import call_listener
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue

_LOG = logging.getLogger(__name__)
# A queue that never runs empty must leave its thread to other queues at times.
TURN_MS_MAX: Final = 60_000
_TURN_PAUSE_MS: Final = 10
_UNLOCKED_PAUSE_MS: Final = 3_000
_LEAVING_PAUSE_MS: Final = 1_000


class OrderlyConsumption(Consumption):
    """See the module."""

    def on_messages(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        """Consume the queue, unless a thread does so already."""
        del messages
        with owned.lock:
            if owned.is_consuming:
                return
            owned.is_consuming = True
        self._submitter.put(partial(self._consume, owned))

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
                    self._later(owned, pause_ms)
                    return

    def _pause_before_batch(self, owned: OwnedQueue, end_ms: int) -> int:
        """The queue's pause in ms before its next batch; 0 if it may be consumed now."""
        needs_lock = not self._settings.is_broadcasting
        if needs_lock and not owned.process.is_lock_valid(now_ms()):
            return _UNLOCKED_PAUSE_MS
        if owned.is_leaving:
            return _LEAVING_PAUSE_MS
        return _TURN_PAUSE_MS if now_ms() >= end_ms else 0

    def _next_batch(self, owned: OwnedQueue) -> list[ReceivedMessage]:
        """The next messages in order; without any the queue counts as not being consumed."""
        skipped = len(owned.uncommitted)
        with owned.lock:
            batch = owned.process.first(skipped + self._settings.consume_batch_size)[skipped:]
            if not batch:
                owned.is_consuming = False
        return batch

    def _consume_batch(self, owned: OwnedQueue, batch: list[ReceivedMessage]) -> int:
        """Consume one batch; returns the queue's pause in ms."""
        context = ConsumeContext(owned.queue)
        status, _, spent_ns = call_listener(
            self._listener, batch, context, self._hooks, slow_ns=2**62
        )
        self.counts.spent_ns += spent_ns
        owned.process.last_consume_ms = now_ms()
        pause_ms = max(10, min(context.suspend_ms or self._settings.suspend_queue_ms, 30_000))
        if status is OrderlyStatus.SUCCESS and not context.auto_commit:
            self.counts.succeeded += len(batch)
            owned.uncommitted += batch
            return 0
        if status in (OrderlyStatus.SUCCESS, OrderlyStatus.COMMIT):
            self.counts.succeeded += len(batch)
            self._commit(owned, batch)
            return 0
        if status is not None and not isinstance(status, OrderlyStatus):
            _LOG.error("%s: %r is no OrderlyStatus: it counts as a failure", owned.queue, status)
        self.counts.failed += len(batch)
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
        limit = self._settings.attempts_max
        exhausted = [m for m in batch if limit is not None and m.reconsume_times >= limit]
        kept = [m for m in batch if limit is None or m.reconsume_times < limit]
        if exhausted and not owned.process.is_dropped:
            kept += send_back(
                self._io,
                self._settings,
                exhausted,
                delay_level=DEAD_LETTER_LEVEL,
                attempts_max=limit or 0,
            )
        for message in kept:
            message.reconsume_times += 1
        return not kept

    def _later(self, owned: OwnedQueue, pause_ms: int) -> None:
        self._submitter.later(partial(self._consume, owned), pause_ms)
