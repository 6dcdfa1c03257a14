"""What to ask to know where many queues end, all at once and not too often: pure.

One statistics question a topic and broker tells the ends of all queues there. Where it is refused
(a proxy does not know it, an account may lack the permission), and for queues that it leaves out,
the ends are asked for one by one, which whoever may read is allowed to.
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

_At = tuple[str, str]


class Place(NamedTuple):
    """Whom an answer is for: the queues of a topic at a broker, or one of them."""

    topic: str
    broker: str
    queue: QueueId | None = None


class EndPoll:
    """The polling of queues; `demand` is a number that grows whenever somebody wants to know."""

    def __init__(self, queues: Iterable[QueueId] = ()) -> None:
        self._queues: dict[_At, list[QueueId]] = {}
        self._single: set[QueueId] = set()
        """Queues that statistics say nothing of."""
        self._under_way: set[Place] = set()
        self._next_ms = 0
        self._seen_demand = 0
        self.set_queues(queues)

    def set_queues(self, queues: Iterable[QueueId]) -> None:
        """Ask for these and no others; what was learned of their brokers is kept."""
        self._queues = {}
        for queue in queues:
            self._queues.setdefault((queue.topic, queue.broker), []).append(queue)
        self._single &= {queue for of_broker in self._queues.values() for queue in of_broker}

    def is_settled(self, now_ms: int, demand: int) -> bool:
        """Nothing newer is to be had for this demand soon."""
        is_recent = now_ms < self._next_ms
        return not self._under_way and (is_recent or self._seen_demand >= demand)

    def wake_at_ms(self, demand: int) -> int | None:
        """When the next questions are due, if somebody wants to know and no answer comes before."""
        is_due = self._seen_demand < demand and not self._under_way
        return self._next_ms if is_due else None

    def questions(self, now_ms: int, demand: int) -> list[tuple[Place, Request[Reply]]]:
        """What to ask now."""
        if self._seen_demand >= demand or now_ms < self._next_ms or self._under_way:
            return []
        self._seen_demand = demand
        questions: list[tuple[Place, Request[Reply]]] = []
        for (topic, broker), queues in self._queues.items():
            if not self._single.issuperset(queues):
                questions.append((Place(topic, broker), GetTopicStats(topic)))
            questions += [
                (Place(topic, broker, queue), GetMaxOffset(queue))
                for queue in queues
                if queue in self._single
            ]
        self._under_way.update(place for place, _ in questions)
        self._next_ms = now_ms + max(INTERVAL_MS, len(self._single) * _SINGLE_MS)
        return questions

    def take(
        self, place: Place, result: Reply | RocketMQError
    ) -> dict[QueueId, int | RocketMQError]:
        """What an answer says: ends, or why they cannot be had."""
        self._under_way.discard(place)
        if place.queue is not None:
            if isinstance(result, OffsetReply):
                return {place.queue: result.value}
            return {place.queue: result} if isinstance(result, RocketMQError) else {}
        queues = self._queues.get((place.topic, place.broker), [])
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
            # Whoever wanted to know still does.
            self._seen_demand, self._next_ms = 0, 0
