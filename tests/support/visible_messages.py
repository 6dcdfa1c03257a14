"""What readers see of a topic, asked at the brokers without any of a reader's own steps."""

from __future__ import annotations

from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.common.messages import ReceivedMessage, decode_messages
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.requests.messages import PullMessages


def visible(connection: ConnectionSettings, topic: str) -> list[ReceivedMessage]:
    """Every message of a topic that readers see."""
    found: list[ReceivedMessage] = []
    with open_cluster(connection) as cluster:
        for queue, stats in cluster.topic_stats(topic).items():
            at = stats.start
            while at < stats.end:
                pull = PullMessages("g", queue, at, 32)
                reply = cluster.transport.call(pull, broker=queue.broker, timeout_ms=5_000)
                for part in reply.records:
                    found += decode_messages(part, broker=queue.broker, topic=topic)
                at = reply.next_begin
    return found


def visible_bodies(connection: ConnectionSettings, topic: str) -> list[bytes]:
    """Their bodies, sorted."""
    return sorted(message.body for message in visible(connection, topic))
