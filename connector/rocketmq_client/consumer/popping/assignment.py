"""What a push consumer pops and what it pulls: the brokers say it, topic by topic, at every turn.

A broker's answer names queues and a mode. `POP` moves a topic from pulling to popping and `PULL`
back, while the consumer runs; no answer leaves things as they are.
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
    """The queues that one member pops. Used by the housekeeping thread."""

    def __init__(
        self, instance: ClientInstance, settings: ConsumerSettings, puller: PopPuller
    ) -> None:
        self._instance, self._settings, self._puller = instance, settings, puller
        self.owned: dict[QueueId, PopQueue] = {}
        name = settings.strategy.name
        self._strategy = name if name in _STRATEGIES else _STRATEGIES[0]

    def rebalance(self, subscriptions: Mapping[str, Subscription]) -> dict[str, Subscription]:
        """Gain and lose popped queues; the subscriptions of those topics that are to be pulled."""
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
        """The end: pop no more."""
        self._take({})

    def _queues_of(self, topic: str) -> list[QueueId] | None:
        """What of the topic is to be popped; None: it is to be pulled."""
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
            # A broker of 4.9: there is nothing but pulling.
            return None
        if isinstance(reply, RocketMQError):
            _LOG.warning("topic=%s: what to consume is not known: %s", topic, reply)
            return unchanged
        assert isinstance(reply, AssignmentReply)
        if reply.assignments is None:
            return unchanged
        popped = [one.queue for one in reply.assignments if one.mode is ConsumeMode.POP]
        if popped or not reply.assignments:
            # A member without a share keeps its way of consuming, with nothing to consume.
            return popped or ([] if popped_now else None)
        return None

    def _broker_of(self, topic: str) -> str | None:
        route = self._instance.route(topic)
        masters = [one.name for one in route.brokers if MASTER_ID in one.addresses] if route else []
        return min(masters, default=None)

    def _take(self, wanted: Mapping[QueueId, Subscription]) -> None:
        for queue in [queue for queue in self.owned if queue not in wanted]:
            self.owned.pop(queue).is_dropped = True
            _LOG.info("group=%s: %s is popped no more", self._settings.group, queue)
        for queue, subscription in wanted.items():
            known = self.owned.get(queue)
            if known is not None:
                known.subscription = subscription
                continue
            self.owned[queue] = PopQueue(queue, subscription)
            self._puller.start(self.owned[queue])
            _LOG.info("group=%s: %s is popped from now on", self._settings.group, queue)
