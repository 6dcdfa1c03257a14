"""What the numbers in a topic say about how they were written: which are lost, which repeated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark_rocketmq.sink.transactional.decision_log import Decision, DecisionLog
from pyspark_rocketmq.sink.transactional.visibility import Visibility
from rocketmq_client.cluster import Cluster
from rocketmq_client.consumer.common.messages import decode_messages
from rocketmq_client.producer.producer import Producer
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.records.properties import ROW_PROPERTY, WRITE_PROPERTY

_PULL_COUNT = 1_000


@dataclass(frozen=True, slots=True)
class Row:
    """A row as readers see it: its number, and what tells it from others like it."""

    number: int
    row_id: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Count:
    """Numbers that are not there, that are there more than once, and that stay so."""

    lost: tuple[int, ...]
    repeated: tuple[int, ...]
    distinct: tuple[int, ...]
    """Rows repeated with other row ids: `drop_replays` would keep more than one."""

    def is_clean(self, delivery: str) -> bool:
        """Whether no row is lost and every repeated one can be recognised."""
        return not (self.lost or self.distinct or (delivery == "transactional" and self.repeated))


def count_rows(rows: Iterable[Row], wanted: int) -> Count:
    """Hold what is there against the numbers below `wanted`.

    Higher ones were being written when the query ended for good: they may be there or not.
    """
    seen = list(rows)
    copies = Counter(row.number for row in seen)
    row_ids = Counter(row.number for row in set(seen))
    return Count(
        tuple(number for number in range(wanted) if number not in copies),
        tuple(sorted(number for number, count in copies.items() if count > 1)),
        tuple(sorted(number for number, count in row_ids.items() if count > 1)),
    )


def rows_of(cluster: Cluster, topic: str) -> Iterator[Row]:
    """Every row of a topic that readers see."""
    for queue, stats in cluster.topic_stats(topic).items():
        at = stats.start
        while at < stats.end:
            reply = cluster.pull(queue, at, _PULL_COUNT)
            for part in reply.records:
                for message in decode_messages(part, broker=queue.broker, topic=topic):
                    of = message.properties
                    yield Row(int(message.body), (of[WRITE_PROPERTY], of[ROW_PROPERTY]))
            if reply.next_begin <= at:
                raise RocketMQError(f"{queue} offset={at}: {reply.status}")
            at = reply.next_begin


class Decisions:
    """The decisions of the query, seen from outside. `cluster` is the caller's."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self._log = DecisionLog(cluster, topic, Producer(cluster))

    def count(self) -> int:
        """How many records of batches that are decided or finished there are."""
        heads = [queue for queue in self._cluster.queues(self._topic) if queue.index == 0]
        bounds = self._cluster.bounds(heads).values()
        return sum(0 if isinstance(bound, RocketMQError) else bound.end for bound in bounds)

    def cut(self) -> list[Decision]:
        """Decided batches of which not every row is visible."""
        return [one for one in self._log.unfinished() if not self.is_whole(one)]

    def is_whole(self, decision: Decision) -> bool:
        """Every row of a batch is visible."""
        return not Visibility(self._cluster, decision).invisible(decision.half_messages)
