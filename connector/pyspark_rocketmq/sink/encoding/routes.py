"""The queues that a task's rows may go to, asked for over an outage.

A broker that is away has taken its topics' routes with it. So a topic that was there before is
waited for as a broker is, and so is any while no broker at all is there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from pyspark_rocketmq.sink.encoding.requests import Queues
from rocketmq_client.cluster import Cluster
from rocketmq_client.retry import TASK, Retry
from rocketmq_wire.errors import RocketMQError, TopicNotFoundError, TransportError
from rocketmq_wire.model import QueueId

_log = logging.getLogger("pyspark_rocketmq")


class _RouteAwayError(TransportError):
    """The name server knows no route to a topic that was there."""

    def __str__(self) -> str:
        return f"topic {self.address} {self.reason}: its broker is away, or somebody deleted it"


class PatientQueues:
    """What requests need of a producer, which may not know where queues are for a while."""

    def __init__(self, producer: Queues, cluster: Cluster, *, had_topics: bool) -> None:
        """`had_topics`: somebody saw the topics, so one without a route is away, not misspelt."""
        self._producer, self._cluster = producer, cluster
        self._had_topics = had_topics
        self.group = producer.group

    def queues(self, topic: str) -> Sequence[QueueId]:
        """The queues that can be written to. Raises what asking raises, after `retry.outageMs`."""
        policy = self._cluster.settings.over_outage(TASK)
        return Retry(policy, self._cluster.clock, log=_log).call(
            lambda: self._producer.queues(topic), lambda error: self._judged(topic, error)
        )

    def first_unique_key(self, count: int) -> str:
        """The first of `count` unique keys."""
        return self._producer.first_unique_key(count)

    def _judged(self, topic: str, error: RocketMQError) -> RocketMQError:
        if not isinstance(error, TopicNotFoundError):
            return error
        is_away = self._had_topics or is_without_brokers(self._cluster)
        return _RouteAwayError(topic, "has no route") if is_away else error


def is_without_brokers(cluster: Cluster) -> bool:
    """Whether a topic that has no route tells nothing, since no broker has told of its topics."""
    if cluster.settings.endpoints is not None:
        # A broker itself has answered.
        return False
    try:
        return not cluster.masters()
    except RocketMQError:
        return True
