"""Orderly consumption: of each queue one batch at a time, in order, while its lock is held.

SUCCESS, COMMIT          done; without auto-commit only COMMIT is progress
ROLLBACK                 all since the last commit comes again after a rest
SUSPEND                  the batch comes again after a rest; a message whose attempts are used
                         up goes to the dead letters instead
lock lost or too old     nothing is consumed until it is had again
another is to have it    nothing is consumed: it is given up, or stays after all
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from rocketmq_client.consumer.common.io_thread import IoThread, now_ms
from rocketmq_client.consumer.common.listener import (
    ConsumeContext,
    ConsumeCounts,
    ConsumeHook,
    OrderlyListener,
    OrderlyStatus,
)
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.consuming.listener_calls import call_listener
from rocketmq_client.consumer.consuming.send_backs import send_back
from rocketmq_client.consumer.consuming.thread_pool import ConsumePool, Submitter
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue

_LOG = logging.getLogger(__name__)
# A queue that never runs empty lets others have the thread now and then.
TURN_MS_MAX: Final = 60_000
_TURN_PAUSE_MS: Final = 10
_UNLOCKED_PAUSE_MS: Final = 3_000
_LEAVING_PAUSE_MS: Final = 1_000
_DEAD_LETTER_LEVEL: Final = -1


class OrderlyConsumption:
    """Calls one listener for all the queues of a consumer."""

    def __init__(
        self,
        io: IoThread,
        settings: ConsumerSettings,
        listener: OrderlyListener,
        pool: ConsumePool,
        hooks: Sequence[ConsumeHook],
        *,
        pull_again: Callable[[OwnedQueue], None],
    ) -> None:
        self._io, self._settings, self._listener = io, settings, listener
        self._hooks, self._pull_again = hooks, pull_again
        self._submitter = Submitter(pool, io)
        self.counts = ConsumeCounts()
        self._is_stopping = False

    def stop(self) -> None:
        """Begin no other batch: what waits here is consumed by whoever owns its queue next."""
        self._is_stopping = True

    def on_messages(self, owned: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        """Have the queue consumed, unless a thread is at it already."""
        del messages
        with owned.lock:
            if owned.is_consuming:
                return
            owned.is_consuming = True
        self._submitter.put(partial(self._consume, owned))

    def expire(self, time_ms: int) -> None:
        """There is no limit to how long an orderly listener may take."""

    def _consume(self, owned: OwnedQueue) -> None:
        """Consume until the queue is empty, lost, or others shall have the thread."""
        with owned.consume_lock:
            end_ms = now_ms() + TURN_MS_MAX
            while True:
                if owned.process.is_dropped or self._is_stopping:
                    return
                needs_lock = not self._settings.is_broadcasting
                if needs_lock and not owned.process.is_lock_valid(now_ms()):
                    self._later(owned, _UNLOCKED_PAUSE_MS)
                    return
                if owned.is_leaving:
                    self._later(owned, _LEAVING_PAUSE_MS)
                    return
                if now_ms() >= end_ms:
                    self._later(owned, _TURN_PAUSE_MS)
                    return
                batch = self._next_batch(owned)
                if not batch:
                    return
                pause_ms = self._consume_batch(owned, batch)
                if pause_ms:
                    self._later(owned, pause_ms)
                    return

    def _next_batch(self, owned: OwnedQueue) -> list[ReceivedMessage]:
        """The next messages in order; with none the queue counts as not being consumed."""
        skipped = len(owned.uncommitted)
        with owned.lock:
            batch = owned.process.first(skipped + self._settings.consume_batch_size)[skipped:]
            if not batch:
                owned.is_consuming = False
        return batch

    def _consume_batch(self, owned: OwnedQueue, batch: list[ReceivedMessage]) -> int:
        """Have one batch consumed; how long the queue is to rest."""
        context = ConsumeContext(owned.queue)
        status, _, spent_ns = call_listener(
            self._listener, batch, context, self._hooks, slow_ns=2**62
        )
        self.counts.spent_ns += spent_ns
        owned.process.last_consume_ms = now_ms()
        rest_ms = max(10, min(context.suspend_ms or self._settings.suspend_queue_ms, 30_000))
        if status is OrderlyStatus.SUCCESS and not context.auto_commit:
            self.counts.succeeded += len(batch)
            owned.uncommitted += batch
            return 0
        if status in (OrderlyStatus.SUCCESS, OrderlyStatus.COMMIT):
            self.counts.succeeded += len(batch)
            self._commit(owned, batch)
            return 0
        if status is not None and not isinstance(status, OrderlyStatus):
            _LOG.error("%s: %r is no OrderlyStatus: taken as a failure", owned.queue, status)
        self.counts.failed += len(batch)
        if status is OrderlyStatus.ROLLBACK and not context.auto_commit:
            owned.uncommitted.clear()
            return rest_ms
        if self._give_up_what_failed_too_often(owned, batch):
            self._commit(owned, batch)
            return 0
        return rest_ms

    def _commit(self, owned: OwnedQueue, batch: list[ReceivedMessage]) -> None:
        done = [*owned.uncommitted, *batch]
        owned.uncommitted.clear()
        with owned.lock:
            owned.process.remove(done)
            is_worth_a_look = owned.control.on_consumed(owned.process)
        if is_worth_a_look:
            self._pull_again(owned)

    def _give_up_what_failed_too_often(
        self, owned: OwnedQueue, batch: list[ReceivedMessage]
    ) -> bool:
        """Count the attempt; True if nothing of the batch is left to try again."""
        limit = self._settings.attempts_max
        worn = [m for m in batch if limit is not None and m.reconsume_times >= limit]
        kept = [m for m in batch if limit is None or m.reconsume_times < limit]
        if worn and not owned.process.is_dropped:
            kept += send_back(
                self._io,
                self._settings,
                worn,
                delay_level=_DEAD_LETTER_LEVEL,
                attempts_max=limit or 0,
            )
        for message in kept:
            message.reconsume_times += 1
        return not kept

    def _later(self, owned: OwnedQueue, pause_ms: int) -> None:
        self._submitter.later(partial(self._consume, owned), pause_ms)
