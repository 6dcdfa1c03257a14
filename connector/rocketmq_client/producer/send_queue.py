"""Which sends are in flight, which wait, and which are sent again: pure.

The count in flight to one queue is limited, so that no later message overtakes one sent again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from rocketmq_client.retry import Backoff, RetryPolicy
from rocketmq_wire.errors import BrokerBusyError, ConnectError, RocketMQError
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.messages import SendBatch, SendMessage, SendRecords, SendReply

SendRequest = SendMessage | SendBatch | SendRecords

# Bodies that wait or are in flight; one request may hold 4 MiB.
BYTES_MAX: Final = 64 * 1024 * 1024
CERTAINLY_NOT_STORED: Final = (ConnectError, BrokerBusyError)


@dataclass(frozen=True, slots=True)
class Sent:
    """A request's outcome: the reply, or the error, which may leave it unknown."""

    index: int
    """The number of the request, counted from 0."""
    request: SendRequest
    result: SendReply | RocketMQError


@dataclass(slots=True)
class _Item:
    index: int
    request: SendRequest
    size: int
    failed_since_ms: int | None = None


@dataclass(slots=True)
class _Queue:
    backoff: Backoff
    waiting: deque[_Item] = field(default_factory=deque)
    in_flight: int = 0
    not_before_ms: int = 0


class SendQueue:
    """Requests for many queues; times are milliseconds of one clock."""

    def __init__(
        self,
        *,
        in_flight_max: int,
        in_flight_per_queue_max: int,
        retry: RetryPolicy,
        retried: tuple[type[RocketMQError], ...] = CERTAINLY_NOT_STORED,
    ) -> None:
        self._in_flight_max = max(1, in_flight_max)
        self._per_queue_max = max(1, in_flight_per_queue_max)
        self._retry = retry
        self._retried = retried
        self._queues: dict[QueueId, _Queue] = {}
        self._in_flight: dict[int, _Item] = {}
        self._held_count = 0
        self._held_bytes = 0
        self._count = 0

    @property
    def wants_more(self) -> bool:
        return self._held_count < 2 * self._in_flight_max and self._held_bytes < BYTES_MAX

    @property
    def is_empty(self) -> bool:
        """Whether every request has its outcome."""
        return self._held_count == 0

    def add(self, request: SendRequest) -> int:
        """Add a request, and return its size."""
        body = request.records if isinstance(request, SendRecords) else request.body
        item = _Item(self._count, request, len(body))
        self._count += 1
        self._held_count += 1
        self._held_bytes += item.size
        queue = self._queues.get(request.queue)
        if queue is None:
            queue = self._queues[request.queue] = _Queue(Backoff(self._retry))
        queue.waiting.append(item)
        return item.size

    def next_requests(self, now_ms: int) -> list[tuple[int, SendRequest]]:
        """Start all requests that may be sent now, and return them with their indices."""
        started = []
        for queue in self._queues.values():
            while (
                queue.waiting
                and queue.in_flight < self._per_queue_max
                and now_ms >= queue.not_before_ms
                and len(self._in_flight) < self._in_flight_max
            ):
                item = queue.waiting.popleft()
                queue.in_flight += 1
                self._in_flight[item.index] = item
                started.append((item.index, item.request))
        return started

    def request(self, index: int) -> SendRequest:
        return self._in_flight[index].request

    def on_result(self, index: int, result: SendReply | RocketMQError, now_ms: int) -> Sent | None:
        """Note an answer or an error. Returns the outcome; None if the request is sent again."""
        item = self._in_flight.pop(index)
        queue = self._queues[item.request.queue]
        queue.in_flight -= 1
        if isinstance(result, self._retried):
            since_ms = item.failed_since_ms if item.failed_since_ms is not None else now_ms
            if not self._retry.is_over(since_ms, now_ms):
                item.failed_since_ms = since_ms
                queue.waiting.appendleft(item)
                queue.not_before_ms = now_ms + queue.backoff.next_delay_ms()
                return None
        else:
            queue.backoff.reset()
        self._held_count -= 1
        self._held_bytes -= item.size
        if not queue.waiting and not queue.in_flight:
            del self._queues[item.request.queue]
        return Sent(item.index, item.request, result)

    def wait_ms(self, now_ms: int, wait_ms_max: int) -> int:
        """How long to wait for an answer until the next request may be due."""
        if len(self._in_flight) >= self._in_flight_max:
            return wait_ms_max
        pauses = [
            queue.not_before_ms - now_ms
            for queue in self._queues.values()
            if queue.waiting and queue.in_flight < self._per_queue_max
        ]
        return max(0, min([wait_ms_max, *pauses]))
