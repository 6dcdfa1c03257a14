"""Sends messages back to their group: they come again later, and at last become dead letters.

A request that a broker certainly did not take, or whose connection broke, is sent again while an
outage may last. So a message may come twice, but is never lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rocketmq_client.cluster import Cluster
from rocketmq_client.errors import SendBackRefusedError
from rocketmq_client.retry import Retry
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.requests.messages import SendBack

# In flight together. Brokers take thousands of requests at a time from one connection.
AT_ONCE_MAX: Final = 256


def send_back_all(cluster: Cluster, requests: Sequence[tuple[str, SendBack]]) -> None:
    """Send all messages back. Raises SendBackRefusedError for the first that is refused."""
    for first in range(0, len(requests), AT_ONCE_MAX):
        _send_back(cluster, requests[first : first + AT_ONCE_MAX])


def _send_back(cluster: Cluster, requests: Sequence[tuple[str, SendBack]]) -> None:
    retry = Retry(cluster.settings.request_retry, cluster.clock)
    while requests:
        replies = cluster.transport.call_many(
            requests, timeout_ms=cluster.settings.request_timeout_ms
        )
        failed = [
            (request, reply)
            for request, reply in zip(requests, replies, strict=True)
            if isinstance(reply, RocketMQError)
        ]
        for (broker, request), error in failed:
            if not error.retryable or retry.is_over:
                raise SendBackRefusedError(
                    broker, request.physical_offset, request.group, str(error)
                ) from error
        requests = [request for request, _ in failed]
        if requests:
            retry.pause()
