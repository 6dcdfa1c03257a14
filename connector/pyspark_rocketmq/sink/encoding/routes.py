"""The queues of a topic, retried during an outage.

When a topic's only broker goes down, its route disappears. So the sink waits for a topic that was
seen before, and for any topic while the name server knows no broker at all.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark_rocketmq.sink.encoding.batches import Queues
from rocketmq_client.cluster import Cluster
from rocketmq_client.retry import Retry
from rocketmq_client.retry_schedules import TASK
from rocketmq_wire.errors import RocketMQError, TopicNotFoundError, TransportError
from rocketmq_wire.model import QueueId

_log = logging.getLogger("pyspark_rocketmq")


class _RouteMissingError(TransportError):
    """The name server knows no route to a topic that was there."""

    def __str__(self) -> str:
        return (
            f"topic {self.address} {self.reason}: its broker is unavailable, or the topic was "
            "deleted"
        )


class RetryingQueues:
    """A producer's queues and keys; waits while the name server has no route."""

    def __init__(self, producer: Queues, cluster: Cluster, *, had_topics: bool) -> None:
        """`had_topics`: the topics were seen before: a missing route is an outage, not a typo."""
        self._producer, self._cluster = producer, cluster
        self._had_topics = had_topics
        self.group = producer.group

    def queues(self, topic: str) -> Sequence[QueueId]:
        """The writable queues. Raises the last error after `retry.outageMs`."""
        policy = self._cluster.settings.over_outage(TASK)
        return Retry(policy, self._cluster.clock, log=_log).call(
            lambda: self._producer.queues(topic), lambda error: self._judged(topic, error)
        )

    def first_unique_key(self, count: int) -> str:
        return self._producer.first_unique_key(count)

    def _judged(self, topic: str, error: RocketMQError) -> RocketMQError:
        if not isinstance(error, TopicNotFoundError):
            return error
        is_outage = self._had_topics or is_without_brokers(self._cluster)
        return _RouteMissingError(topic, "has no route") if is_outage else error


def is_without_brokers(cluster: Cluster) -> bool:
    """Whether the name server knows no broker, so that a missing route proves nothing."""
    if cluster.settings.endpoints is not None:
        return False
    try:
        return not cluster.masters()
    except RocketMQError:
        return True
