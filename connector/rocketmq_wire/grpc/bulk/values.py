"""Values of the model <-> their protobuf messages in the bulk service."""

from __future__ import annotations

from typing import Any, Final

from rocketmq_wire.errors import BrokerError, broker_error
from rocketmq_wire.grpc.bulk.shapes import MAPPING, Converter, Pair, Shape, or_else, repeated
from rocketmq_wire.model import (
    BrokerAddresses,
    ClusterInfo,
    CommittedOffset,
    ConsumerInfo,
    QueueId,
    QueueSet,
    QueueStats,
    Route,
    Subscription,
    TopicConfig,
)
from rocketmq_wire.stubs import message_class


def queue_to_message(queue: QueueId) -> Any:
    return message_class("Queue")(topic=queue.topic, broker=queue.broker, index=queue.index)


def queue_from_message(message: Any) -> QueueId:
    return QueueId(message.topic, message.broker, message.index)


def status_to_message(error: BrokerError | None) -> Any:
    return None if error is None else message_class("Status")(code=error.code, remark=error.remark)


def error_from_status(message: Any) -> BrokerError | None:
    """The error that a status stands for; None for success."""
    return broker_error(message.code, message.remark) if message.code else None


# Not shapes: calls carry thousands of queues.
QUEUE: Final = Pair(queue_to_message, queue_from_message)
STATUS: Final = Pair(status_to_message, error_from_status)
SUBSCRIPTION: Final = Shape(
    "Subscription", Subscription, expression=or_else("*"), kind=or_else("TAG")
)
TOPIC: Final = Shape("Topic", TopicConfig, filter_kind=or_else("SINGLE_TAG"), attributes=MAPPING)
_BROKERS: Final = repeated(Shape("BrokerAddresses", BrokerAddresses, addresses=MAPPING))
ROUTE: Final = Shape(
    "GetRouteResponse", Route, queue_sets=repeated(Shape("QueueSet", QueueSet)), brokers=_BROKERS
)
CLUSTER: Final = Shape(
    "GetClusterResponse",
    ClusterInfo,
    brokers=_BROKERS,
    clusters=Pair(
        lambda clusters: [
            message_class("Cluster")(name=name, brokers=brokers)
            for name, brokers in clusters.items()
        ],
        lambda messages: {cluster.name: tuple(cluster.brokers) for cluster in messages},
    ),
)
CONSUMER: Final = Shape(
    "Consumer",
    ConsumerInfo,
    subscriptions=Pair(
        lambda subscriptions: [
            message_class("TopicSubscription")(
                topic=topic, expression=expression, kind=kind, version=version
            )
            for topic, expression, kind, version in subscriptions
        ],
        lambda messages: tuple(
            (entry.topic, entry.expression, entry.kind, entry.version) for entry in messages
        ),
    ),
)


def _by_queue(shape: Shape[Any]) -> Converter:
    """A repeated message with a queue each <-> a dictionary by queue."""

    def to_message(values: Any) -> list[Any]:
        messages = []
        for queue, value in values.items():
            message = shape.to_message(value)
            message.queue.CopyFrom(queue_to_message(queue))
            messages.append(message)
        return messages

    return Pair(
        to_message,
        lambda messages: {
            queue_from_message(message.queue): shape.from_message(message) for message in messages
        },
    )


QUEUE_STATS: Final = _by_queue(Shape("QueueStats", QueueStats))
COMMITTED_OFFSETS: Final = _by_queue(Shape("CommittedOffset", CommittedOffset))
