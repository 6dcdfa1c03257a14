"""Which requests bring the ends of queues, and what their answers say: pure.

The end of a single queue is asked for when a caller wants to know it. While a caller waits for
messages, a pull is held at the broker until one arrives; the end is known for as long as the pull
is held. (Without a waiting caller no pull is held: a busy query asks for ends at every batch, and
would receive each queue's next message twice.) A held pull that expires is sent again, also without
a caller: one small request in `hold_ms` for an idle queue. After an arrival nothing is asked until
the next caller.

Many queues are polled, all at once and at most every 200 ms. One request for a topic's statistics
returns the ends of all its queues at a broker. Single queues are asked for where that is refused (a
proxy does not know it, an account may lack the permission), and if it leaves a queue out. Any
account that may read is allowed to ask for single queues.

A `demand` is a number that grows with every caller who wants ends.

Behind a failure an end is in doubt until the queue's next answer: a message may be stored that no
held pull reports. A caller does not wait for the pause that follows a failure, so that broker is
asked again for it after 50 ms. A refused connection ends the doubt of its demand: the broker is
down.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rocketmq_client.retry import Backoff
from rocketmq_client.retry_schedules import END_OFFSET
from rocketmq_client.settings import READER_GROUP
from rocketmq_wire.errors import (
    ConnectError,
    NotAuthorizedError,
    RocketMQError,
    UnsupportedRequestError,
)
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus
from rocketmq_wire.requests.offsets import GetMaxOffset, OffsetReply
from rocketmq_wire.requests.topics import GetTopicStats, TopicStatsReply

HOLD_MS: Final = 15_000
# A real broker looks for expired pulls every five seconds only.
_HOLD_GRACE_MS: Final = 10_000
ASK_TIMEOUT_MS: Final = 5_000
# The pause if a broker does not hold pulls, or keeps calling the end illegal.
_PAUSE_MS: Final = 200
INTERVAL_MS: Final = 200
# The pause between requests to a broker that fails, while a caller is in doubt.
_DOUBT_PAUSE_MS: Final = 50
# A thousand queues that are asked for one by one are asked for once a second.
_SINGLE_MS: Final = 1


class WatchState(enum.Enum):
    STALE = "a message arrived since the end was asked for, or the end was never asked for"
    ASKING = "the end is being asked for"
    KNOWN = "the end was asked for and answered"
    HELD = "a pull is held: nothing has arrived"


@dataclass(slots=True)
class QueueWatch:
    queue: QueueId
    hold_ms: int = HOLD_MS
    """How long a broker may hold a pull."""
    end: int | None = None
    state: WatchState = WatchState.STALE
    error: RocketMQError | None = None
    _seen_demand: int = 0
    """The demand that the last request was sent for."""
    _is_in_flight: bool = False
    _not_before_ms: int = 0
    _demanded_from_ms: int = 0
    """When a demand may be answered: before `_not_before_ms`, if the last request failed."""
    _asked_ms: int = 0
    _failing_since_ms: int | None = None
    _backoff: Backoff = field(default_factory=lambda: Backoff(END_OFFSET))

    def next_request(
        self, now_ms: int, demand: int, *, is_awaited: bool = False
    ) -> tuple[Request[Reply], int] | None:
        """Return a request to send now and its time-out; `is_awaited` while a caller waits."""
        if self._is_in_flight or now_ms < self._due_ms(demand):
            return None
        if is_awaited and self.state is WatchState.KNOWN and demand <= self._seen_demand:
            self.state = WatchState.HELD
        if self.state is WatchState.HELD and self.end is not None:
            self._note_request(now_ms)
            pull = PullMessages(READER_GROUP, self.queue, self.end, 1, suspend_ms=self.hold_ms)
            return pull, self.hold_ms + _HOLD_GRACE_MS
        if demand <= self._seen_demand and self.error is None:
            return None
        self._note_request(now_ms)
        self._seen_demand = demand
        self.state = WatchState.ASKING
        return GetMaxOffset(self.queue), ASK_TIMEOUT_MS

    def on_answer(self, result: Reply | RocketMQError, now_ms: int) -> None:
        """Note the answer, or the error, of the request in flight."""
        self._is_in_flight = False
        if isinstance(result, OffsetReply):
            self.know(result.value)
            self.state = WatchState.KNOWN
        elif isinstance(result, PullReply):
            self._on_pull(result, now_ms)
        else:
            assert isinstance(result, RocketMQError)
            self.fail(result, now_ms)
            self.state = WatchState.STALE
            self._not_before_ms = now_ms + self._backoff.next_delay_ms()
            self._demanded_from_ms = self._not_before_ms
            if result.retryable:
                self._demanded_from_ms = min(self._not_before_ms, now_ms + _DOUBT_PAUSE_MS)

    def know(self, end: int) -> None:
        self.end = end
        self.error = None
        self._failing_since_ms = None
        self._backoff.reset()

    def fail(self, error: RocketMQError, now_ms: int) -> None:
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        self.error = error

    @property
    def is_stale(self) -> bool:
        """Whether a message arrived behind the known end, and the end can be asked for again."""
        return self.state is WatchState.STALE and self.error is None

    def is_settled(self, demand: int) -> bool:
        """Whether no newer answer will come soon for this demand."""
        return self.error is not None or self.has_answer(demand)

    def has_answer(self, demand: int) -> bool:
        """Whether an answer or an error came for this demand, or a pull is held."""
        is_answered = self._seen_demand >= demand and not self._is_in_flight
        return is_answered or self.state is WatchState.HELD

    def doubted_since_ms(self, now_ms: int, *, has_answer: bool) -> int | None:
        """When the end came into doubt; None if it is known, or if its broker is down."""
        if self.error is None:
            asked_ms = self._asked_ms if self._is_in_flight else now_ms
            return None if has_answer else asked_ms
        is_down = has_answer and isinstance(self.error, ConnectError)
        return self._failing_since_ms if self.error.retryable and not is_down else None

    def wake_at_ms(self, demand: int) -> int | None:
        """When a pause ends after which a request is due."""
        is_waiting = self.error is not None or self.state is WatchState.HELD
        return self._due_ms(demand) if is_waiting and not self._is_in_flight else None

    def _due_ms(self, demand: int) -> int:
        is_demanded = self.error is not None and demand > self._seen_demand
        return self._demanded_from_ms if is_demanded else self._not_before_ms

    def _note_request(self, now_ms: int) -> None:
        self._is_in_flight = True
        self._asked_ms = now_ms

    def _on_pull(self, reply: PullReply, now_ms: int) -> None:
        if reply.status is PullStatus.FOUND or reply.end > (self.end or 0):
            self.state = WatchState.STALE
        elif now_ms - self._asked_ms < _PAUSE_MS:
            self._not_before_ms = now_ms + _PAUSE_MS
        self.know(reply.end)


class PollTarget(NamedTuple):
    """The queues of a topic at a broker, or one of them."""

    topic: str
    broker: str
    queue: QueueId | None = None


class EndPoll:
    def __init__(self, queues: Iterable[QueueId] = ()) -> None:
        self._queues: dict[tuple[str, str], list[QueueId]] = {}
        """By topic and broker."""
        self._single: set[QueueId] = set()
        """Queues that are missing in statistics."""
        self._in_flight: set[PollTarget] = set()
        self._next_ms = 0
        self._seen_demand = 0
        self.set_queues(queues)

    def set_queues(self, queues: Iterable[QueueId]) -> None:
        self._queues = {}
        for queue in queues:
            self._queues.setdefault((queue.topic, queue.broker), []).append(queue)
        self._single &= {queue for at_broker in self._queues.values() for queue in at_broker}

    def is_settled(self, now_ms: int, demand: int) -> bool:
        """Whether no newer answer will come soon for this demand."""
        is_recent = now_ms < self._next_ms
        return self.has_answer(demand) or (is_recent and not self._in_flight)

    def has_answer(self, demand: int) -> bool:
        """Whether answers or errors came for this demand."""
        return self._seen_demand >= demand and not self._in_flight

    def wake_at_ms(self, demand: int) -> int | None:
        """When the next requests are due; None without demand, or while answers are awaited."""
        is_due = self._seen_demand < demand and not self._in_flight
        return self._next_ms if is_due else None

    def next_requests(self, now_ms: int, demand: int) -> list[tuple[PollTarget, Request[Reply]]]:
        if self._seen_demand >= demand or now_ms < self._next_ms or self._in_flight:
            return []
        self._seen_demand = demand
        requests: list[tuple[PollTarget, Request[Reply]]] = []
        for (topic, broker), queues in self._queues.items():
            if not self._single.issuperset(queues):
                requests.append((PollTarget(topic, broker), GetTopicStats(topic)))
            requests += [
                (PollTarget(topic, broker, queue), GetMaxOffset(queue))
                for queue in queues
                if queue in self._single
            ]
        self._in_flight.update(target for target, _ in requests)
        self._next_ms = now_ms + max(INTERVAL_MS, len(self._single) * _SINGLE_MS)
        return requests

    def on_answer(
        self, target: PollTarget, result: Reply | RocketMQError
    ) -> dict[QueueId, int | RocketMQError]:
        """Return the ends in an answer, or the errors of their queues."""
        self._in_flight.discard(target)
        if target.queue is not None:
            if isinstance(result, OffsetReply):
                return {target.queue: result.value}
            return {target.queue: result} if isinstance(result, RocketMQError) else {}
        queues = self._queues.get((target.topic, target.broker), [])
        if isinstance(result, TopicStatsReply):
            self._ask_singly(queue for queue in queues if queue not in result.queues)
            return {queue: result.queues[queue].end for queue in queues if queue in result.queues}
        if isinstance(result, UnsupportedRequestError | NotAuthorizedError):
            self._ask_singly(queues)
            return {}
        return dict.fromkeys(queues, result) if isinstance(result, RocketMQError) else {}

    def _ask_singly(self, queues: Iterable[QueueId]) -> None:
        before = len(self._single)
        self._single.update(queues)
        if len(self._single) > before:
            # The demand is not met yet.
            self._seen_demand = 0
            self._next_ms = 0
