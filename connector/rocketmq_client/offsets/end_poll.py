"""Polls the ends of many queues, all at once and at most every 200 ms: pure.

One request for a topic's statistics returns the ends of all its queues at a broker. Single queues
are asked for where that is refused (a proxy does not know it, an account may lack the permission),
and if it leaves a queue out. Any account that may read is allowed to ask for single queues.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from rocketmq_wire.errors import NotAuthorizedError, RocketMQError, UnsupportedRequestError
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.offsets import GetMaxOffset, OffsetReply
from rocketmq_wire.requests.topics import GetTopicStats, TopicStatsReply

INTERVAL_MS: Final = 200
# A thousand queues that are asked for one by one are asked for once a second.
_SINGLE_MS: Final = 1


class PollTarget(NamedTuple):
    """The queues of a topic at a broker, or one of them."""

    topic: str
    broker: str
    queue: QueueId | None = None


class EndPoll:
    """The polling of queues. `demand` is a number that grows with every caller who wants ends."""

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
        """Poll these queues and no others."""
        self._queues = {}
        for queue in queues:
            self._queues.setdefault((queue.topic, queue.broker), []).append(queue)
        self._single &= {queue for at_broker in self._queues.values() for queue in at_broker}

    def is_settled(self, now_ms: int, demand: int) -> bool:
        """Whether no newer answer will come soon for this demand."""
        is_recent = now_ms < self._next_ms
        return not self._in_flight and (is_recent or self._seen_demand >= demand)

    def wake_at_ms(self, demand: int) -> int | None:
        """When the next requests are due; None without demand, or while answers are awaited."""
        is_due = self._seen_demand < demand and not self._in_flight
        return self._next_ms if is_due else None

    def next_requests(self, now_ms: int, demand: int) -> list[tuple[PollTarget, Request[Reply]]]:
        """Return the requests to send now."""
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
