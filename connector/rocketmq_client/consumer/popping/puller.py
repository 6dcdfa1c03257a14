"""Pops from the queues that brokers assigned to a consumer, in the I/O thread."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from rocketmq_client.consumer.common.io_thread import IoThread, now_ms
from rocketmq_client.consumer.common.messages import tags_of
from rocketmq_client.consumer.common.settings import (
    ConsumeFrom,
    ConsumerSettings,
    PopSettings,
    unwrapped,
)
from rocketmq_client.consumer.popping.acks import PopAcks
from rocketmq_client.consumer.popping.messages import Popped, popped_messages
from rocketmq_wire.errors import ProtocolError, RocketMQError
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.pop import InitMode, PopMessages, PopReply, PopStatus

_LOG = logging.getLogger(__name__)

_GRACE_MS: Final = 10_000
_ERROR_PAUSE_MS: Final = 3_000
_FULL_PAUSE_MS: Final = 50
_SUSPENDED_PAUSE_MS: Final = 1_000
_EMPTY_PAUSE_MS: Final = 20


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
        """Count messages as no longer pending."""
        with self.lock:
            self.pending -= count


class PopPuller:
    """One consumer's pops. Any thread may call `start`; the rest runs in the I/O thread."""

    def __init__(
        self,
        io: IoThread,
        pop: PopSettings,
        acks: PopAcks,
        settings: ConsumerSettings,
        *,
        on_popped: Callable[[PopQueue, list[Popped]], None],
        on_unowned: Callable[[list[Popped]], None],
        is_suspended: Callable[[], bool],
    ) -> None:
        self._io = io
        self._pop = pop
        self._acks = acks
        self._settings = settings
        is_last = settings.consume_from is ConsumeFrom.LAST
        self._init_mode = InitMode.MAX if is_last else InitMode.MIN
        self._on_popped = on_popped
        self._on_unowned = on_unowned
        self._is_suspended = is_suspended

    def start(self, owned: PopQueue) -> None:
        """Pop the queue until it is dropped."""
        self._io.post(partial(self._step, owned))

    # --- in the I/O thread --------------------------------------------------------------------

    def _step(self, owned: PopQueue) -> None:
        if owned.is_dropped:
            return
        if self._is_suspended():
            self._step_later(owned, _SUSPENDED_PAUSE_MS)
        elif owned.pending > self._pop.pending_max:
            self._step_later(owned, _FULL_PAUSE_MS)
        else:
            self._ask(owned)

    def _step_later(self, owned: PopQueue, pause_ms: int) -> None:
        if not owned.is_step_due:
            owned.is_step_due = True
            self._io.at(now_ms() + pause_ms, partial(self._step_now, owned))

    def _step_now(self, owned: PopQueue) -> None:
        owned.is_step_due = False
        self._step(owned)

    def _ask(self, owned: PopQueue) -> None:
        request = PopMessages(
            group=self._settings.group,
            queue=owned.queue,
            count_max=self._pop.batch_size,
            invisible_ms=self._pop.invisible_ms,
            poll_ms=self._pop.poll_ms,
            init_mode=self._init_mode,
            subscription=owned.subscription,
        )
        self._io.send(
            request,
            broker=owned.queue.broker,
            timeout_ms=self._pop.poll_ms + _GRACE_MS,
            on_done=partial(self._on_reply, owned, now_ms()),
        )

    def _on_reply(self, owned: PopQueue, asked_ms: int, reply: Reply | RocketMQError) -> None:
        if isinstance(reply, PopReply):
            if reply.status is PopStatus.FOUND:
                self._take(owned, reply)
                self._step(owned)
            elif reply.status is PopStatus.POLLING_FULL:
                self._step_later(owned, _SUSPENDED_PAUSE_MS)
            else:
                # A broker that does not hold the request must not be asked without a pause.
                is_quick = now_ms() - asked_ms < _EMPTY_PAUSE_MS
                self._step_later(owned, _EMPTY_PAUSE_MS if is_quick else 0)
            return
        if not owned.is_dropped:
            _LOG.warning("%s: a pop failed: %s", owned.queue, reply)
        self._step_later(owned, _ERROR_PAUSE_MS)

    def _take(self, owned: PopQueue, reply: PopReply) -> None:
        tags = tags_of(owned.subscription)
        try:
            wanted, unwanted = popped_messages(
                reply, broker=owned.queue.broker, topic=owned.queue.topic, tags=tags
            )
        except ProtocolError as error:
            # The broker redelivers messages without an acknowledgement until they are dead letters.
            _LOG.error("%s: popped messages cannot be read: %s", owned.queue, error)
            return
        self._acks.add(unwanted)
        if owned.is_dropped:
            # The queue was given up meanwhile: its new owner pops them again.
            self._on_unowned(wanted)
            return
        if not wanted:
            return
        for popped in wanted:
            popped.message.topic = unwrapped(self._settings.namespace, popped.message.topic)
        with owned.lock:
            owned.pending += len(wanted)
        self._on_popped(owned, wanted)
