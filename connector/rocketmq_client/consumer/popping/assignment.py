"""Asks brokers at every rebalance which queues of a topic a push consumer pops, and which it pulls.

A broker's reply names queues and a mode: `POP` moves a topic from pulling to popping, `PULL` moves
it back, while the consumer runs. Without a reply nothing changes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.membership.client_instance import ClientInstance
from rocketmq_client.consumer.popping.puller import PopPuller, PopQueue
from rocketmq_wire.errors import RocketMQError, UnsupportedRequestError
from rocketmq_wire.model import MASTER_ID, RETRY_PREFIX, QueueId, Subscription
from rocketmq_wire.requests.assignment import AssignmentReply, ConsumeMode, QueryAssignment

_LOG = logging.getLogger(__name__)
_STRATEGIES: Final = ("AVG", "AVG_BY_CIRCLE")


class PopAssignment:
    """The queues that one member pops; the housekeeping thread uses it."""

    def __init__(
        self, instance: ClientInstance, settings: ConsumerSettings, puller: PopPuller
    ) -> None:
        self._instance = instance
        self._settings = settings
        self._puller = puller
        self.owned: dict[QueueId, PopQueue] = {}
        name = settings.strategy.name
        self._strategy = name if name in _STRATEGIES else _STRATEGIES[0]

    def rebalance(self, subscriptions: Mapping[str, Subscription]) -> dict[str, Subscription]:
        """Gain and lose popped queues; returns the subscriptions of the topics to pull."""
        pulled: dict[str, Subscription] = {}
        wanted: dict[QueueId, Subscription] = {}
        for topic, subscription in subscriptions.items():
            queues = None if topic.startswith(RETRY_PREFIX) else self._queues_of(topic)
            if queues is None:
                pulled[topic] = subscription
            else:
                wanted.update(dict.fromkeys(queues, subscription))
        self._take(wanted)
        return pulled

    def lose_all(self) -> None:
        """Stop popping at shutdown."""
        self._take({})

    def _queues_of(self, topic: str) -> list[QueueId] | None:
        """The topic's queues to pop; None if the topic is to be pulled."""
        popped_now = [queue for queue in self.owned if queue.topic == topic]
        unchanged = popped_now or None
        broker = self._broker_of(topic)
        if broker is None:
            return unchanged
        request = QueryAssignment(
            self._settings.group,
            topic,
            self._instance.client_id,
            self._strategy,
            self._settings.model.value,
        )
        (reply,) = self._instance.io.call_many(
            [(broker, request)], timeout_ms=self._settings.request_timeout_ms
        )
        if isinstance(reply, UnsupportedRequestError):
            # A broker of 4.9 only knows pulling.
            return None
        if isinstance(reply, RocketMQError):
            _LOG.warning("topic=%s: could not get the queues to consume: %s", topic, reply)
            return unchanged
        assert isinstance(reply, AssignmentReply)
        if reply.assignments is None:
            return unchanged
        popped = [one.queue for one in reply.assignments if one.mode is ConsumeMode.POP]
        if popped or not reply.assignments:
            # A member without queues keeps its mode.
            return popped or ([] if popped_now else None)
        return None

    def _broker_of(self, topic: str) -> str | None:
        route = self._instance.route(topic)
        masters = [one.name for one in route.brokers if MASTER_ID in one.addresses] if route else []
        return min(masters, default=None)

    def _take(self, wanted: Mapping[QueueId, Subscription]) -> None:
        for queue in [queue for queue in self.owned if queue not in wanted]:
            self.owned.pop(queue).is_dropped = True
            _LOG.info("group=%s: stopped popping %s", self._settings.group, queue)
        for queue, subscription in wanted.items():
            known = self.owned.get(queue)
            if known is not None:
                known.subscription = subscription
                continue
            self.owned[queue] = PopQueue(queue, subscription)
            self._puller.start(self.owned[queue])
            _LOG.info("group=%s: started popping %s", self._settings.group, queue)
