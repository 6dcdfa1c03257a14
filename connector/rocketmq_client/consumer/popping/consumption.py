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
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from rocketmq_client.consumer.common.io_thread import IoThread, now_ms
from rocketmq_client.consumer.common.listener import ConsumeContext
from rocketmq_client.consumer.common.messages import Popped
from rocketmq_client.consumer.common.settings import ConsumerSettings, PopSettings
from rocketmq_client.consumer.consuming.listener_calls import (
    DEAD_LETTER_LEVEL,
    ListenerCalls,
    send_back,
    split_outcome,
)
from rocketmq_client.consumer.consuming.thread_pool import ConsumePool
from rocketmq_wire.errors import ProtocolError, RocketMQError, UnsupportedRequestError
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.plural import plural
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.pop import (
    AT_ONCE_MS,
    AckMessages,
    ChangeInvisibleTime,
    ack_of,
    ack_spans,
    change_of,
)

_LOG = logging.getLogger(__name__)
_MARGIN_MS: Final = 500
"""The time before a message becomes visible in which no listener begins with it."""
GATHER_MS: Final = 10
_COUNT_MAX: Final = 512
_ATTEMPTS_MAX: Final = 3
_REPEAT_MS: Final = 1_000


@dataclass(slots=True, eq=False)
class PopQueue:
    """A queue that this member pops, or all queues of a broker. `lock` guards `pending`."""

    queue: QueueId
    subscription: Subscription
    lock: threading.Lock = field(default_factory=threading.Lock)
    pending: int = 0
    """The number of messages that wait for listeners or are being consumed."""
    is_dropped: bool = False
    is_step_due: bool = False

    def finish(self, count: int) -> None:
        with self.lock:
            self.pending -= count


@dataclass(eq=False)
class PopConsumption:
    """Calls one listener for all queues that a consumer pops."""

    io: IoThread
    calls: ListenerCalls
    pool: ConsumePool
    pop: PopSettings

    def __post_init__(self) -> None:
        self.settings = self.calls.settings
        self.acks = PopAcks(self.io, self.settings)
        self._waiting: dict[int, tuple[list[Popped], int]] = {}
        """Batches by number that no listener has begun with, and when each is too late."""
        self._numbers = itertools.count()

    def on_popped(self, owned: PopQueue, popped: list[Popped]) -> None:
        size = self.settings.consume_batch_size
        # Counted from now, by our clock: the broker's may differ.
        late_ms = now_ms() + self.pop.invisible_ms
        for start in range(0, len(popped), size):
            batch = popped[start : start + size]
            number = next(self._numbers)
            self._waiting[number] = batch, late_ms
            self.pool.submit(partial(self.consume, owned, number))

    def consume(self, owned: PopQueue, number: int) -> None:
        """Consume one batch, in a thread of the pool."""
        popped, late_ms = self._waiting.pop(number, ([], 0))
        try:
            if now_ms() + _MARGIN_MS >= late_ms:
                return
            if owned.is_dropped:
                self.return_soon(popped)
            else:
                for one in popped:
                    one.message.unpack()
                self._consume(owned, popped, late_ms)
        except ProtocolError as error:
            # The broker redelivers messages without an acknowledgement until they are dead letters.
            _LOG.error("%s: a popped message cannot be read: %s", owned.queue, error)
        finally:
            owned.finish(len(popped))

    def return_soon(self, popped: Iterable[Popped]) -> None:
        """Hand messages back without waiting for the replies."""
        for one in popped:
            self._change(one, AT_ONCE_MS)

    def finish(self) -> None:
        """Hand back the messages that no listener has begun with, and end acknowledgements."""
        waiting, self._waiting = self._waiting, {}
        time_ms = now_ms()
        unread = [one for some, late_ms in waiting.values() if time_ms < late_ms for one in some]
        replies = self.io.call_many(
            [(one.handle.broker, self._change_request(one, AT_ONCE_MS)) for one in unread],
            timeout_ms=self.settings.request_timeout_ms,
        )
        for one, reply in zip(unread, replies, strict=True):
            _note_failure(one, reply)
        self.acks.finish()

    def _change(self, popped: Popped, invisible_ms: int) -> None:
        self.io.submit(
            self._change_request(popped, invisible_ms),
            broker=popped.handle.broker,
            timeout_ms=self.settings.request_timeout_ms,
            on_done=partial(_note_failure, popped),
        )

    def _change_request(self, popped: Popped, invisible_ms: int) -> ChangeInvisibleTime:
        return change_of(self.settings.group, popped.topic, popped.handle.text(), invisible_ms)

    def _consume(self, owned: PopQueue, popped: list[Popped], late_ms: int) -> None:
        messages = [one.message for one in popped]
        context = ConsumeContext(owned.queue)
        status, _ = self.calls.call(messages, context)
        if now_ms() >= late_ms:
            _LOG.warning(
                "%s: a listener took longer than the invisible time: redelivery follows",
                owned.queue,
            )
            return
        consumed, failed = split_outcome(messages, status, context.ack_index)
        self.calls.count(owned.queue, succeeded=len(consumed), failed=len(failed))
        self.acks.add(popped[: len(consumed)])
        if failed:
            self._postpone(popped[len(consumed) :], context.delay_level)

    def _postpone(self, failed: Sequence[Popped], delay_level: int) -> None:
        dead: list[Popped] = []
        for one in failed:
            attempts = one.message.reconsume_times
            if delay_level < 0 or attempts + 1 >= self.settings.attempts:
                dead.append(one)
            else:
                self._change(one, self.pop.retry_ms(attempts, delay_level))
        # Once a message is a dead letter it is acknowledged; the broker redelivers the others.
        messages = [one.message for one in dead]
        failed_messages = send_back(self.io, self.settings, messages, DEAD_LETTER_LEVEL)
        refused = {id(message) for message in failed_messages}
        self.acks.add([one for one in dead if id(one.message) not in refused])


def _note_failure(popped: Popped, reply: object) -> None:
    if isinstance(reply, RocketMQError):
        _LOG.warning("%s keeps its invisible time: %s", popped.message, reply)


class PopAcks:
    """Gathers acknowledgements for a moment, so that one request carries those of many messages.

    Everything but `add` and `finish` runs in the I/O thread. A failed request is repeated a few
    times; then the broker redelivers its messages, as at-least-once delivery allows.
    """

    def __init__(self, io: IoThread, settings: ConsumerSettings) -> None:
        self._io = io
        self._group = settings.group
        self._timeout_ms = settings.request_timeout_ms
        self._waiting: dict[str, list[Popped]] = defaultdict(list)
        self._is_due = False
        self._has_batches = True
        self._changed = threading.Condition()
        self._count = 0
        """The number of acknowledgements without a reply."""

    def add(self, popped: Iterable[Popped]) -> None:
        """Acknowledge messages soon; any thread may call this."""
        some = list(popped)
        if some:
            with self._changed:
                self._count += len(some)
            self._io.post(partial(self._gather, some))

    def finish(self) -> None:
        """Send waiting acknowledgements, and wait for the replies as for those of one request."""
        self._io.post(self._send_all)
        with self._changed:
            self._changed.wait_for(lambda: not self._count, self._timeout_ms / 1_000)

    def _gather(self, popped: list[Popped]) -> None:
        for one in popped:
            self._waiting[one.handle.broker].append(one)
        if any(len(some) >= _COUNT_MAX for some in self._waiting.values()):
            self._send_all()
        elif not self._is_due:
            self._is_due = True
            self._io.at(now_ms() + GATHER_MS, self._send_all)

    def _send_all(self) -> None:
        self._is_due = False
        waiting, self._waiting = self._waiting, defaultdict(list)
        for broker, popped in waiting.items():
            self._send(broker, popped, 1)

    def _send(self, broker: str, popped: list[Popped], attempts: int) -> None:
        requests: list[tuple[Request[Reply], list[Popped]]]
        if self._has_batches:
            spans = ack_spans(self._group, [(one.topic, one.handle) for one in popped])
            requests = [(AckMessages(broker, spans), popped)]
        else:
            requests = [(ack_of(self._group, p.topic, p.handle.text()), [p]) for p in popped]
        for request, some in requests:
            self._io.send(
                request,
                broker=broker,
                timeout_ms=self._timeout_ms,
                on_done=partial(self._on_done, broker, some, attempts),
            )

    def _on_done(
        self, broker: str, popped: list[Popped], attempts: int, reply: Reply | RocketMQError
    ) -> None:
        if isinstance(reply, UnsupportedRequestError) and self._has_batches:
            # Brokers before 5.1.3 take one acknowledgement per request.
            self._has_batches = False
            self._send(broker, popped, attempts)
            return
        if isinstance(reply, RocketMQError):
            if reply.retryable and attempts < _ATTEMPTS_MAX:
                repeat = partial(self._send, broker, popped, attempts + 1)
                self._io.at(now_ms() + _REPEAT_MS, repeat)
                return
            _LOG.warning(
                "broker=%s: %s could not be acknowledged and will be redelivered: %s",
                broker,
                plural(len(popped), "message"),
                reply,
            )
        with self._changed:
            self._count -= len(popped)
            self._changed.notify_all()
