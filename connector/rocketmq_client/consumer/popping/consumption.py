"""Concurrent consumption of popped messages, and what the broker gets for each:

succeeded                    acknowledged
failed                       invisible for longer, by its attempts
failed at the last attempt   sent to the group's dead letters, then acknowledged
too late                     nothing: the broker redelivers the message
not begun at shutdown        handed back: visible to other consumers at once
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from rocketmq_client.consumer.common.io_thread import IoThread, now_ms
from rocketmq_client.consumer.common.listener import (
    ConcurrentListener,
    ConsumeContext,
    ConsumeCounts,
    ConsumeHook,
)
from rocketmq_client.consumer.common.settings import ConsumerSettings, PopSettings
from rocketmq_client.consumer.consuming.concurrent import split_outcome
from rocketmq_client.consumer.consuming.consumption import DEAD_LETTER_LEVEL, send_back
from rocketmq_client.consumer.consuming.listener_calls import call_listener
from rocketmq_client.consumer.consuming.thread_pool import ConsumePool, Submitter
from rocketmq_client.consumer.popping.acks import PopAcks
from rocketmq_client.consumer.popping.messages import Popped
from rocketmq_client.consumer.popping.puller import PopQueue
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.requests.pop import AT_ONCE_MS, ChangeInvisibleTime, change_of

_LOG = logging.getLogger(__name__)
_MARGIN_MS: Final = 500
"""The time before a message becomes visible in which no listener begins with it."""


class PopConsumption:
    """Calls one listener for all queues that a consumer pops."""

    def __init__(
        self,
        io: IoThread,
        settings: ConsumerSettings,
        pop: PopSettings,
        listener: ConcurrentListener,
        pool: ConsumePool,
        hooks: Sequence[ConsumeHook],
        *,
        acks: PopAcks,
        counts: ConsumeCounts,
    ) -> None:
        self._io = io
        self._settings = settings
        self._pop = pop
        self._listener = listener
        self._hooks = hooks
        self._acks = acks
        self._submitter = Submitter(pool, io)
        self._counts = counts
        self._waiting: dict[int, tuple[list[Popped], int]] = {}
        """Batches by number that no listener has begun with, and when each is too late."""
        self._numbers = itertools.count()

    def on_popped(self, owned: PopQueue, popped: list[Popped]) -> None:
        """Give a pop's messages to the threads in batches."""
        size = self._settings.consume_batch_size
        # Counted from now, by our clock: the broker's may differ.
        late_ms = now_ms() + self._pop.invisible_ms
        for start in range(0, len(popped), size):
            batch = popped[start : start + size]
            number = next(self._numbers)
            self._waiting[number] = batch, late_ms
            self._submitter.put(partial(self.consume, owned, number))

    def consume(self, owned: PopQueue, number: int) -> None:
        """Consume one batch, in a thread of the pool."""
        popped, late_ms = self._waiting.pop(number, ([], 0))
        try:
            if now_ms() + _MARGIN_MS >= late_ms:
                return
            if owned.is_dropped:
                self.return_soon(popped)
            else:
                self._consume(owned, popped, late_ms)
        finally:
            owned.finish(len(popped))

    def return_soon(self, popped: Iterable[Popped]) -> None:
        """Hand messages back without waiting for the replies."""
        for one in popped:
            self._change(one, AT_ONCE_MS)

    def hand_back(self) -> None:
        """Hand back the messages that no listener has begun with, and wait for the replies."""
        waiting, self._waiting = self._waiting, {}
        time_ms = now_ms()
        unread = [one for some, late_ms in waiting.values() if time_ms < late_ms for one in some]
        replies = self._io.call_many(
            [(one.handle.broker, self._change_request(one, AT_ONCE_MS)) for one in unread],
            timeout_ms=self._settings.request_timeout_ms,
        )
        for one, reply in zip(unread, replies, strict=True):
            _note_failure(one, reply)

    def _change(self, popped: Popped, invisible_ms: int) -> None:
        self._io.submit(
            self._change_request(popped, invisible_ms),
            broker=popped.handle.broker,
            timeout_ms=self._settings.request_timeout_ms,
            on_done=partial(_note_failure, popped),
        )

    def _change_request(self, popped: Popped, invisible_ms: int) -> ChangeInvisibleTime:
        return change_of(self._settings.group, popped.topic, popped.handle.text(), invisible_ms)

    def _consume(self, owned: PopQueue, popped: list[Popped], late_ms: int) -> None:
        messages = [one.message for one in popped]
        started_ms = time.time_ns() // 1_000_000
        for message in messages:
            message.consume_start_ms = started_ms
        context = ConsumeContext(owned.queue)
        status, _, spent_ns = call_listener(
            self._listener,
            messages,
            context,
            self._hooks,
            slow_ns=self._settings.consume_timeout_ms * 1_000_000,
        )
        self._counts.spent_ns += spent_ns
        if now_ms() >= late_ms:
            _LOG.warning(
                "%s: a listener took longer than the invisible time: redelivery follows",
                owned.queue,
            )
            return
        consumed, failed = split_outcome(messages, status, context.ack_index)
        self._counts.succeeded += len(consumed)
        self._counts.failed += len(failed)
        self._acks.add(popped[: len(consumed)])
        if failed:
            self._postpone(popped[len(consumed) :], context.delay_level)

    def _postpone(self, failed: Sequence[Popped], delay_level: int) -> None:
        dead: list[Popped] = []
        for one in failed:
            attempts = one.message.reconsume_times
            if delay_level < 0 or attempts + 1 >= self._settings.attempts:
                dead.append(one)
            else:
                self._change(one, self._pop.retry_ms(attempts, delay_level))
        if dead:
            self._send_to_dead_letters(dead)

    def _send_to_dead_letters(self, dead: Sequence[Popped]) -> None:
        """Acknowledge messages once they are dead letters; the broker redelivers the others."""
        failed = send_back(
            self._io,
            self._settings,
            [one.message for one in dead],
            delay_level=DEAD_LETTER_LEVEL,
            attempts_max=self._settings.attempts,
        )
        refused = {id(message) for message in failed}
        self._acks.add([one for one in dead if id(one.message) not in refused])


def _note_failure(popped: Popped, reply: object) -> None:
    if isinstance(reply, RocketMQError):
        _LOG.warning("%s keeps its invisible time: %s", popped.message, reply)
