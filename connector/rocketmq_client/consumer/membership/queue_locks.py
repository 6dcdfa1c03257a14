"""The locks of queues at their brokers, by which one member of a group consumes one in order."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable

from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.membership.client_instance import ClientInstance
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.groups import LockQueues, QueuesReply, UnlockQueues

_LOG = logging.getLogger(__name__)


class QueueLocks:
    """Asks for them and returns them, a request a broker."""

    def __init__(self, instance: ClientInstance, settings: ConsumerSettings) -> None:
        self._instance, self._settings = instance, settings

    def acquire(self, queues: Iterable[QueueId]) -> list[QueueId]:
        """Lock queues, or renew their locks; those that were granted."""
        group, client_id = self._settings.group, self._instance.client_id
        granted: list[QueueId] = []
        by_broker = _by_broker(queues)
        requests = [
            (broker, LockQueues(group, client_id, some)) for broker, some in by_broker.items()
        ]
        replies = self._instance.wire.call_many(
            requests, timeout_ms=self._settings.request_timeout_ms
        )
        for broker, reply in zip(by_broker, replies, strict=True):
            if isinstance(reply, QueuesReply):
                granted += reply.queues
            else:
                _LOG.warning("broker=%s: queues could not be locked: %s", broker, reply)
        return granted

    def release(self, queues: Iterable[QueueId]) -> None:
        """Let others have them."""
        group, client_id = self._settings.group, self._instance.client_id
        requests = [
            (broker, UnlockQueues(group, client_id, some))
            for broker, some in _by_broker(queues).items()
        ]
        # A lock that is not returned expires by itself.
        self._instance.wire.call_many(requests, timeout_ms=self._settings.request_timeout_ms)


def _by_broker(queues: Iterable[QueueId]) -> dict[str, tuple[QueueId, ...]]:
    by_broker: dict[str, list[QueueId]] = defaultdict(list)
    for queue in queues:
        by_broker[queue.broker].append(queue)
    return {broker: tuple(some) for broker, some in by_broker.items()}
