"""The values of the model <-> their protobuf messages in the bulk service."""

from __future__ import annotations

from typing import Any, Final

from rocketmq_wire.errors import BrokerError, broker_error
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
from rocketmq_wire.requests.messages import PullStatus, SendStatus
from rocketmq_wire.requests.offsets import Boundary
from rocketmq_wire.stubs import message_class

# The 0 of a protobuf enum means "not set", so that no value is set by accident.
PULL_STATUS_NUMBERS: Final = {
    PullStatus.FOUND: 1,
    PullStatus.NO_NEW_MESSAGE: 2,
    PullStatus.NO_MATCHED_MESSAGE: 3,
    PullStatus.OFFSET_ILLEGAL: 4,
}
SEND_STATUS_NUMBERS: Final = {
    SendStatus.OK: 1,
    SendStatus.FLUSH_DISK_TIMEOUT: 2,
    SendStatus.SLAVE_NOT_AVAILABLE: 3,
    SendStatus.FLUSH_SLAVE_TIMEOUT: 4,
}
BOUNDARY_NUMBERS: Final = {Boundary.LOWER: 1, Boundary.UPPER: 2}
PULL_STATUSES: Final = {number: status for status, number in PULL_STATUS_NUMBERS.items()}
SEND_STATUSES: Final = {number: status for status, number in SEND_STATUS_NUMBERS.items()}
# An absent boundary means LOWER.
BOUNDARIES: Final = {0: Boundary.LOWER, 1: Boundary.LOWER, 2: Boundary.UPPER}


def queue_to_message(queue: QueueId) -> Any:
    return message_class("Queue")(topic=queue.topic, broker=queue.broker, index=queue.index)


def queue_from_message(message: Any) -> QueueId:
    return QueueId(message.topic, message.broker, message.index)


def status_to_message(error: BrokerError) -> Any:
    return message_class("Status")(code=error.code, remark=error.remark)


def error_from_status(message: Any) -> BrokerError | None:
    """The error that a status stands for; None for success."""
    return broker_error(message.code, message.remark) if message.code else None


def subscription_to_message(subscription: Subscription) -> Any:
    return message_class("Subscription")(expression=subscription.expression, kind=subscription.kind)


def subscription_from_message(message: Any) -> Subscription:
    return Subscription(message.expression or "*", message.kind or "TAG")


def topic_to_message(config: TopicConfig) -> Any:
    return message_class("Topic")(
        name=config.name,
        read_queue_count=config.read_queue_count,
        write_queue_count=config.write_queue_count,
        permission=config.permission,
        filter_kind=config.filter_kind,
        sys_flag=config.sys_flag,
        is_ordered=config.is_ordered,
        attributes=dict(config.attributes),
    )


def topic_from_message(message: Any) -> TopicConfig:
    """A topic; counts and permission of 0 hold, because they close a topic."""
    return TopicConfig(
        name=message.name,
        read_queue_count=message.read_queue_count,
        write_queue_count=message.write_queue_count,
        permission=message.permission,
        filter_kind=message.filter_kind or "SINGLE_TAG",
        sys_flag=message.sys_flag,
        is_ordered=message.is_ordered,
        attributes=dict(message.attributes),
    )


def broker_to_message(broker: BrokerAddresses) -> Any:
    return message_class("BrokerAddresses")(
        name=broker.name, cluster=broker.cluster, addresses=dict(broker.addresses)
    )


def broker_from_message(message: Any) -> BrokerAddresses:
    return BrokerAddresses(message.name, message.cluster, dict(message.addresses))


def route_to_message(route: Route) -> Any:
    queue_set = message_class("QueueSet")
    return message_class("GetRouteResponse")(
        queue_sets=[
            queue_set(
                broker=queues.broker,
                read_queue_count=queues.read_queue_count,
                write_queue_count=queues.write_queue_count,
                permission=queues.permission,
                topic_sys_flag=queues.topic_sys_flag,
            )
            for queues in route.queue_sets
        ],
        brokers=[broker_to_message(broker) for broker in route.brokers],
        order_conf=route.order_conf,
    )


def route_from_message(message: Any) -> Route:
    return Route(
        queue_sets=tuple(
            QueueSet(
                broker=queues.broker,
                read_queue_count=queues.read_queue_count,
                write_queue_count=queues.write_queue_count,
                permission=queues.permission,
                topic_sys_flag=queues.topic_sys_flag,
            )
            for queues in message.queue_sets
        ),
        brokers=tuple(broker_from_message(broker) for broker in message.brokers),
        order_conf=optional(message, "order_conf"),
    )


def cluster_to_message(cluster: ClusterInfo) -> Any:
    member = message_class("Cluster")
    return message_class("GetClusterResponse")(
        brokers=[broker_to_message(broker) for broker in cluster.brokers],
        clusters=[member(name=name, brokers=names) for name, names in cluster.clusters.items()],
    )


def cluster_from_message(message: Any) -> ClusterInfo:
    return ClusterInfo(
        brokers=tuple(broker_from_message(broker) for broker in message.brokers),
        clusters={cluster.name: tuple(cluster.brokers) for cluster in message.clusters},
    )


def stats_to_message(queue: QueueId, stats: QueueStats) -> Any:
    return message_class("QueueStats")(
        queue=queue_to_message(queue),
        start=stats.start,
        end=stats.end,
        updated_ms=stats.updated_ms,
    )


def stats_from_message(message: Any) -> tuple[QueueId, QueueStats]:
    return queue_from_message(message.queue), QueueStats(
        message.start, message.end, message.updated_ms
    )


def committed_to_message(queue: QueueId, offset: CommittedOffset) -> Any:
    return message_class("CommittedOffset")(
        queue=queue_to_message(queue),
        broker_offset=offset.broker_offset,
        consumer_offset=offset.consumer_offset,
        updated_ms=offset.updated_ms,
        pull_offset=offset.pull_offset,
    )


def committed_from_message(message: Any) -> tuple[QueueId, CommittedOffset]:
    return queue_from_message(message.queue), CommittedOffset(
        message.broker_offset, message.consumer_offset, message.updated_ms, message.pull_offset
    )


def consumer_to_message(consumer: ConsumerInfo) -> Any:
    subscription = message_class("TopicSubscription")
    return message_class("Consumer")(
        group=consumer.group,
        consume_type=consumer.consume_type,
        message_model=consumer.message_model,
        consume_from=consumer.consume_from,
        subscriptions=[
            subscription(topic=topic, expression=expression, kind=kind, version=version)
            for topic, expression, kind, version in consumer.subscriptions
        ],
        unit_mode=consumer.unit_mode,
    )


def consumer_from_message(message: Any) -> ConsumerInfo:
    return ConsumerInfo(
        group=message.group,
        consume_type=message.consume_type,
        message_model=message.message_model,
        consume_from=message.consume_from,
        subscriptions=tuple(
            (entry.topic, entry.expression, entry.kind, entry.version)
            for entry in message.subscriptions
        ),
        unit_mode=message.unit_mode,
    )


def optional(message: Any, field: str) -> Any:
    """The value of a field with presence; None if it is not set."""
    return getattr(message, field) if message.HasField(field) else None
