"""What three fresh answers say about a queue in doubt: its bounds, and whether it is served."""

from __future__ import annotations

from rocketmq_client.loss import Standing
from rocketmq_client.routes import standing_of
from rocketmq_wire.errors import BrokerError, RocketMQError, TopicNotFoundError
from rocketmq_wire.model import Bounds, QueueId
from rocketmq_wire.requests import OffsetReply, Reply, RouteReply

Answer = Reply | RocketMQError


def read_answers(
    queue: QueueId, start: Answer, end: Answer, route: Answer
) -> tuple[Bounds, Standing] | RocketMQError:
    """Bounds and standing; or the error for which nothing can be said yet.

    The first offset must have been asked before the next one: retention must not seem to pass the
    queue's end.
    """
    for answer in (start, end, route):
        if isinstance(answer, RocketMQError) and not isinstance(answer, BrokerError):
            return answer
    if isinstance(route, RouteReply):
        standing = standing_of(queue, route.route)
    elif isinstance(route, TopicNotFoundError):
        standing = Standing.TOPIC_GONE
    else:
        assert isinstance(route, RocketMQError)
        return route
    # Real brokers answer zeros for a queue that they do not have, others refuse.
    bounds = Bounds(0, 0)
    if isinstance(start, OffsetReply) and isinstance(end, OffsetReply):
        is_current = start.is_current and end.is_current
        bounds = Bounds(max(0, start.value), max(0, end.value), is_current)
    return bounds, standing
