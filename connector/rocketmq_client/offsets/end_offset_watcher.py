"""A thread that knows the ends of queues, so that a planner's calls take next to no time.

Up to 64 queues are watched one by one, by pulls that brokers hold while a caller waits. More queues
are polled, at most every 200 ms. Without a caller nothing is asked but the pulls that expire
(`queue_ends`).
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from rocketmq_client.errors import WatchDiedError
from rocketmq_client.offsets.queue_ends import (
    ASK_TIMEOUT_MS,
    HOLD_MS,
    EndPoll,
    PollTarget,
    QueueWatch,
    WatchState,
)
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.contract import Transport, open_transport
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.contract import Reply, Request

_logger = logging.getLogger(__name__)

HELD_QUEUES_MAX: Final = 64
# How long `ends` waits for an answer. A broker in the same network takes 2 ms.
_REFRESH_MS_MAX: Final = 40
# How long `resolve_doubts` asks again: behind a failure, and in each call of a longer outage.
_DOUBT_MS_MAX: Final = 1_000
_DOUBT_CALL_MS: Final = 250
_IDLE_WAIT_MS: Final = 5_000
_JOIN_SECONDS: Final = 5.0


class _Ask(NamedTuple):
    target: QueueId | PollTarget
    broker: str
    request: Request[Reply]
    timeout_ms: int


class EndOffsetWatcher:
    """Ends of queues, watched by a thread that starts with the first call."""

    def __init__(
        self,
        settings: ConnectionSettings,
        queues: Iterable[QueueId] = (),
        *,
        hold_ms: int = HOLD_MS,
    ) -> None:
        self._hold_ms = hold_ms
        self._transport: Transport = open_transport(settings)
        self._changed = threading.Condition()
        self._watches = {queue: QueueWatch(queue, hold_ms) for queue in queues}
        self._poll = EndPoll(self._watches)
        self._tickets: dict[int, QueueId | PollTarget] = {}
        """The requests in flight; only the thread uses it."""
        self._returned: dict[QueueId, int] = {}
        """The last result of `ends`."""
        self._demand = 0
        self._waiters = 0
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._death: Exception | None = None

    def set_queues(self, queues: Iterable[QueueId]) -> None:
        """Watch these queues and no others. Known ends of queues that stay are kept."""
        with self._changed:
            wanted = tuple(dict.fromkeys(queues))
            self._watches = {
                queue: self._watches.get(queue) or QueueWatch(queue, self._hold_ms)
                for queue in wanted
            }
            self._poll.set_queues(wanted)

    def ends(self) -> dict[QueueId, int]:
        """Return the last known end of every queue, after a short wait for fresh answers.

        Raises WatchDiedError.
        """
        deadline_ms = _now_ms() + _REFRESH_MS_MAX
        with self._changed:
            demand = self._ask()
            while not self._is_settled(demand):
                left_ms = deadline_ms - _now_ms()
                if left_ms <= 0 or self._is_closed or self._death is not None:
                    break
                self._changed.wait(left_ms / 1_000)
            self._raise_if_dead()
            self._returned = self._known()
            return dict(self._returned)

    def wait(self, beyond: Mapping[QueueId, int], timeout_ms: int) -> bool:
        """Wait until a queue ends behind its offset in `beyond`; False after `timeout_ms`.

        Raises WatchDiedError.
        """
        deadline_ms = _now_ms() + timeout_ms
        with self._changed:
            self._waiters += 1
            try:
                return self._wait(beyond, deadline_ms)
            finally:
                self._waiters -= 1

    def _wait(self, beyond: Mapping[QueueId, int], deadline_ms: int) -> bool:
        while not self._is_closed:
            if self._is_polling() or any(watch.is_stale for watch in self._watches.values()):
                self._ask()
            elif any(watch.state is WatchState.KNOWN for watch in self._watches.values()):
                self._transport.wake()  # The thread sends pulls that are held.
            self._raise_if_dead()
            if self._is_beyond(beyond):
                return True
            left_ms = deadline_ms - _now_ms()
            if left_ms <= 0:
                return False
            self._changed.wait(left_ms / 1_000)
        return False

    def resolve_doubts(self, beyond: Mapping[QueueId, int]) -> bool:
        """Ask until each end is known or its broker down, or a queue ends behind `beyond`.

        True if `ends` returns others then. Waits up to `_DOUBT_MS_MAX` behind a failure, and
        `_DOUBT_CALL_MS` while it lasts. Raises WatchDiedError.
        """
        began_ms = _now_ms()
        with self._changed:
            demand = self._demand
            while not self._is_closed:
                self._raise_if_dead()
                now_ms = _now_ms()
                since_ms = self._doubted_since_ms(demand, now_ms)
                if since_ms is None or self._is_beyond(beyond):
                    break
                left_ms = max(since_ms + _DOUBT_MS_MAX, began_ms + _DOUBT_CALL_MS) - now_ms
                if left_ms <= 0:
                    break
                if self._has_failed(self._demand):
                    self._ask()
                self._changed.wait(left_ms / 1_000)
            return self._known() != self._returned

    def errors(self) -> dict[QueueId, RocketMQError]:
        """Return the errors of queues whose ends are unknown at the moment."""
        with self._changed:
            return {q: watch.error for q, watch in self._watches.items() if watch.error}

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread, self._thread = self._thread, None
        if thread is None:
            self._transport.close()
            return
        self._transport.wake()
        thread.join(_JOIN_SECONDS)

    # --- with the lock held -------------------------------------------------------------------

    def _ask(self) -> int:
        """Count a demand, and wake the thread for it."""
        self._demand += 1
        if self._thread is None and not self._is_closed:
            self._thread = threading.Thread(
                target=self._run, name="rocketmq-end-offsets", daemon=True
            )
            self._thread.start()
        elif self._is_polling() or not all(
            watch.has_answer(self._demand) for watch in self._watches.values()
        ):
            self._transport.wake()
        return self._demand

    def _raise_if_dead(self) -> None:
        if self._death is not None:
            raise WatchDiedError(repr(self._death)) from self._death

    def _is_polling(self) -> bool:
        return len(self._watches) > HELD_QUEUES_MAX

    def _is_settled(self, demand: int) -> bool:
        if self._is_polling():
            return self._poll.is_settled(_now_ms(), demand)
        return all(watch.is_settled(demand) for watch in self._watches.values())

    def _has_answer(self, watch: QueueWatch, demand: int) -> bool:
        if self._is_polling():
            # An answer of the last interval is older than the demand: messages may have come since.
            return self._poll.has_answer(demand)
        return watch.has_answer(demand)

    def _has_failed(self, demand: int) -> bool:
        """Whether an error is what came for this demand."""
        return any(
            watch.error is not None and self._has_answer(watch, demand)
            for watch in self._watches.values()
        )

    def _doubted_since_ms(self, demand: int, now_ms: int) -> int | None:
        """When the last end came into doubt; None if there is no doubt for this demand."""
        doubts = (
            watch.doubted_since_ms(now_ms, has_answer=self._has_answer(watch, demand))
            for watch in self._watches.values()
        )
        return max((since_ms for since_ms in doubts if since_ms is not None), default=None)

    def _is_beyond(self, offsets: Mapping[QueueId, int]) -> bool:
        known = self._known()
        return any(known.get(queue, offset) > offset for queue, offset in offsets.items())

    def _known(self) -> dict[QueueId, int]:
        return {q: watch.end for q, watch in self._watches.items() if watch.end is not None}

    def _asks(self, now_ms: int) -> list[_Ask]:
        if self._is_polling():
            return [
                _Ask(target, target.broker, request, ASK_TIMEOUT_MS)
                for target, request in self._poll.next_requests(now_ms, self._demand)
            ]
        asks = []
        for queue, watch in self._watches.items():
            asked = watch.next_request(now_ms, self._demand, is_awaited=self._waiters > 0)
            if asked is not None:
                asks.append(_Ask(queue, queue.broker, *asked))
        return asks

    def _take(self, ticket: int, result: Reply | RocketMQError, now_ms: int) -> None:
        target = self._tickets.pop(ticket, None)
        if isinstance(target, QueueId):
            watch = self._watches.get(target)
            if watch is not None:
                watch.on_answer(result, now_ms)
        elif target is not None:
            for queue, end in self._poll.on_answer(target, result).items():
                watch = self._watches.get(queue)
                if watch is None:
                    continue
                if isinstance(end, RocketMQError):
                    watch.fail(end, now_ms)
                else:
                    watch.know(end)

    def _wait_ms(self, now_ms: int) -> int:
        wakes = [watch.wake_at_ms(self._demand) for watch in self._watches.values()]
        if self._is_polling():
            wakes = [self._poll.wake_at_ms(self._demand)]
        pauses = [wake - now_ms for wake in wakes if wake is not None]
        return max(1, min([_IDLE_WAIT_MS, *pauses]))

    # --- the thread ---------------------------------------------------------------------------

    def _send(self, asks: Sequence[_Ask]) -> None:
        # Requests with one time-out share a call over gRPC, and a packet over TCP.
        for timeout_ms, group in itertools.groupby(asks, lambda asked: asked.timeout_ms):
            if self._is_closed:
                return
            together = list(group)
            tickets = self._transport.submit_many(
                [(asked.broker, asked.request) for asked in together], timeout_ms=timeout_ms
            )
            self._tickets.update(zip(tickets, (asked.target for asked in together), strict=True))

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    if self._is_closed:
                        return
                    now_ms = _now_ms()
                    asks = self._asks(now_ms)
                    wait_ms = self._wait_ms(now_ms)
                # Without the lock: a connection to an unreachable machine takes seconds.
                self._send(asks)
                done = self._transport.completed(timeout_ms=wait_ms)
                with self._changed:
                    now_ms = _now_ms()
                    for ticket, result in done:
                        self._take(ticket, result, now_ms)
                    if done:
                        self._changed.notify_all()
        except Exception as error:
            _logger.exception("the watch for new messages ended by an error of its own")
            with self._changed:
                self._death = error
                self._changed.notify_all()
        finally:
            self._transport.close()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
