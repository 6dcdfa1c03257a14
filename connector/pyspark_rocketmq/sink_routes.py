"""The queues that a task's rows may go to, asked for over an outage.

A broker that is away has taken its topics' routes with it: a topic that was there before is waited
for as a broker is.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_rocketmq.outages import Outage
from pyspark_rocketmq.sink_requests import Queues
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError, TopicNotFoundError, TransportError
from rocketmq_wire.model import QueueId


class _RouteAwayError(TransportError):
    """The name server knows no route to a topic that was there."""

    def __str__(self) -> str:
        return f"topic {self.address} {self.reason}: its broker is away, or somebody deleted it"


class PatientQueues:
    """What requests need of a producer, which may not know where queues are for a while."""

    def __init__(self, producer: Queues, settings: ConnectionSettings, *, had_topics: bool) -> None:
        """`had_topics`: somebody saw the topics, so one without a route is away, not misspelt."""
        self._producer, self._settings = producer, settings
        self._had_topics = had_topics
        self.group = producer.group

    def queues(self, topic: str) -> Sequence[QueueId]:
        """The queues that can be written to. Raises what asking raises, after `retry.outageMs`."""
        outage = Outage(self._settings.outage_ms, self._settings.retry_delay_ms_max)
        while True:
            try:
                found = self._producer.queues(topic)
            except RocketMQError as error:  # noqa: PERF203 - each try takes a network's time.
                if not outage.endure(self._judged(topic, error)):
                    raise
            else:
                outage.end()
                return found

    def first_unique_key(self, count: int) -> str:
        """The first of `count` unique keys."""
        return self._producer.first_unique_key(count)

    def _judged(self, topic: str, error: RocketMQError) -> RocketMQError:
        if self._had_topics and isinstance(error, TopicNotFoundError):
            return _RouteAwayError(topic, "has no route")
        return error
