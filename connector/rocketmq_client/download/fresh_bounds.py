"""The requests that resolve a doubt about a queue, and the bounds and standing in their replies."""

from __future__ import annotations

import logging
from typing import Any, Final

from rocketmq_client.loss import Standing
from rocketmq_client.routing import standing_of
from rocketmq_wire.errors import BrokerError, RocketMQError, TopicNotFoundError
from rocketmq_wire.model import Bounds, QueueId
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.offsets import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
)
from rocketmq_wire.requests.topics import GetRoute, RouteReply

Answer = Reply | RocketMQError

_logger = logging.getLogger(__name__)

TIMEOUT_MS: Final = 5_000


def requests_for(queue: QueueId) -> tuple[tuple[str | None, Request[Any]], ...]:
    """Each request with the name of its broker, or None for the name server."""
    return (
        # The first offset is asked before the end: retention must not seem to pass the end.
        (queue.broker, GetMinOffset(queue)),
        (queue.broker, GetMaxOffset(queue)),
        (None, GetRoute(queue.topic)),
        (queue.broker, GetEarliestStoreTime(queue)),
    )


def read_answers(
    queue: QueueId, start: Answer, end: Answer, route: Answer, first_time: Answer
) -> tuple[Bounds, Standing] | RocketMQError:
    """Return bounds and standing, or the error because of which they are not known yet.

    The answers are in the order of `requests_for`.
    """
    for answer in (start, end, route, first_time):
        if isinstance(answer, RocketMQError) and (
            answer.retryable or not isinstance(answer, BrokerError)
        ):
            return answer  # A busy broker's refusal is no word about its queue.
    if isinstance(route, RocketMQError) and not isinstance(route, TopicNotFoundError):
        return route
    standing = standing_of(queue, route.route if isinstance(route, RouteReply) else None)
    # Real brokers answer zeros for a queue that they do not have; others refuse.
    bounds = Bounds(0, 0)
    if isinstance(start, OffsetReply) and isinstance(end, OffsetReply):
        is_current = start.is_current and end.is_current
        # RocketMQ reads the time from the message itself, and has none if it is gone.
        has_first = not (isinstance(first_time, OffsetReply) and first_time.value < 0)
        bounds = Bounds(max(0, start.value), max(0, end.value), is_current, has_first)
    _logger.info("%s: fresh bounds [%d,%d), %s", queue, bounds.start, bounds.end, standing.value)
    return bounds, standing
