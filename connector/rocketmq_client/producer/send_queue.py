"""Which sends are on their way, which wait, which are tried again: pure.

At most so many of one queue are under way, so that a retry cannot be overtaken by what was to be
stored behind it.
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

# Bodies that wait or are under way; one request may hold 4 MiB.
BYTES_MAX: Final = 64 * 1024 * 1024
CERTAINLY_NOT_STORED: Final = (ConnectError, BrokerBusyError)


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a request: where it was stored, or why it was not, or that nobody knows."""

    index: int
    """Its place among the requests given."""
    request: SendRequest
    result: SendReply | RocketMQError


@dataclass(slots=True)
class _Item:
    index: int
    request: SendRequest
    size: int
    failed_since_ms: int | None = None


@dataclass(slots=True)
class _QueueLine:
    backoff: Backoff
    waiting: deque[_Item] = field(default_factory=deque)
    in_flight: int = 0
    not_before_ms: int = 0


class SendQueue:
    """Requests on their way to many queues; times are milliseconds of one clock."""

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
        self._lines: dict[QueueId, _QueueLine] = {}
        self._under_way: dict[int, _Item] = {}
        self._held_count = 0
        self._held_bytes = 0
        self._count = 0

    @property
    def wants_more(self) -> bool:
        """There is room for another request."""
        return self._held_count < 2 * self._in_flight_max and self._held_bytes < BYTES_MAX

    @property
    def is_empty(self) -> bool:
        """Every request has its outcome."""
        return self._held_count == 0

    def add(self, request: SendRequest) -> int:
        """Take one more request; its size."""
        body = request.records if isinstance(request, SendRecords) else request.body
        item = _Item(self._count, request, len(body))
        self._count += 1
        self._held_count += 1
        self._held_bytes += item.size
        line = self._lines.get(request.queue)
        if line is None:
            line = self._lines[request.queue] = _QueueLine(Backoff(self._retry))
        line.waiting.append(item)
        return item.size

    def next_request(self, now_ms: int) -> tuple[int, SendRequest] | None:
        """A request to send now, with its index, or None."""
        if len(self._under_way) >= self._in_flight_max:
            return None
        for line in self._lines.values():
            is_free = line.in_flight < self._per_queue_max and now_ms >= line.not_before_ms
            if line.waiting and is_free:
                item = line.waiting.popleft()
                line.in_flight += 1
                self._under_way[item.index] = item
                return item.index, item.request
        return None

    def next_requests(self, now_ms: int) -> list[tuple[int, SendRequest]]:
        """All that may be sent now: it can travel together."""
        started = []
        while (one := self.next_request(now_ms)) is not None:
            started.append(one)
        return started

    def request(self, index: int) -> SendRequest:
        """A request that is under way."""
        return self._under_way[index].request

    def on_result(self, index: int, result: SendReply | RocketMQError, now_ms: int) -> Sent | None:
        """A request was answered or failed; None when it will be sent again."""
        item = self._under_way.pop(index)
        line = self._lines[item.request.queue]
        line.in_flight -= 1
        if isinstance(result, self._retried):
            since_ms = item.failed_since_ms if item.failed_since_ms is not None else now_ms
            if not self._retry.is_over(since_ms, now_ms):
                item.failed_since_ms = since_ms
                line.waiting.appendleft(item)
                line.not_before_ms = now_ms + line.backoff.next_delay_ms()
                return None
        else:
            line.backoff.reset()
        self._held_count -= 1
        self._held_bytes -= item.size
        if not line.waiting and not line.in_flight:
            del self._lines[item.request.queue]
        return Sent(item.index, item.request, result)

    def wait_ms(self, now_ms: int, wait_ms_max: int) -> int:
        """How long to wait for an answer before looking at the line again."""
        if len(self._under_way) >= self._in_flight_max:
            return wait_ms_max
        pauses = [
            line.not_before_ms - now_ms
            for line in self._lines.values()
            if line.waiting and line.in_flight < self._per_queue_max
        ]
        return max(0, min([wait_ms_max, *pauses]))
