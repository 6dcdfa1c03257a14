"""Gathers acknowledgements for a moment, so that one request carries those of many messages.

Everything but `add` and `finish` runs in the I/O thread. A failed request is repeated a few times;
then the broker redelivers its messages, as at-least-once delivery allows.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Final

from rocketmq_client.consumer.common.io_thread import IoThread, now_ms
from rocketmq_client.consumer.popping.messages import Popped
from rocketmq_wire.errors import RocketMQError, UnsupportedRequestError
from rocketmq_wire.plural import plural
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.pop import AckMessages, ack_of, ack_spans

_LOG = logging.getLogger(__name__)

GATHER_MS: Final = 10
_COUNT_MAX: Final = 512
_ATTEMPTS_MAX: Final = 3
_REPEAT_MS: Final = 1_000


class PopAcks:
    """Acknowledgements of one consumer, by broker."""

    def __init__(self, io: IoThread, group: str, timeout_ms: int) -> None:
        self._io = io
        self._group = group
        self._timeout_ms = timeout_ms
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

    def finish(self, wait_ms: int) -> bool:
        """Send waiting acknowledgements and wait for replies; False if the time is over."""
        self._io.post(self._send_all)
        with self._changed:
            return self._changed.wait_for(lambda: not self._count, wait_ms / 1_000)

    # --- in the I/O thread --------------------------------------------------------------------

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
