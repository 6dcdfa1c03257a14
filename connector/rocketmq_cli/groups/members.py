"""A group's live members, and their subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocketmq_client.cluster import Cluster
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import (
    BrokerError,
    NotOverGrpcError,
    RocketMQError,
    UnsupportedRequestError,
)
from rocketmq_wire.requests.groups import ConsumersReply, GetConsumers


@dataclass(frozen=True, slots=True)
class Members:
    """The live members of a group, merged from all its brokers."""

    clients: Mapping[str, tuple[str, str]]
    """Address and language by client id."""
    consume_type: str
    message_model: str
    subscriptions: Mapping[str, str]

    def summary(self) -> str:
        """`push, clustering; subscribed to orders (*)`."""
        topics = ", ".join(
            f"{topic} ({text})" for topic, text in sorted(self.subscriptions.items())
        )
        return f"{self.consume_type}, {self.message_model.lower()}; subscribed to {topics or '-'}"

    def as_records(self) -> Sequence[Mapping[str, str]]:
        """A record a member."""
        return [
            {"member": client, "address": address, "language": language}
            for client, (address, language) in sorted(self.clients.items())
        ]


def find_members(cluster: Cluster, group: str) -> Members | None:
    """The group's live members, None if there are none. Over gRPC they are unknown: None, too."""
    replies: list[ConsumersReply] = []
    failures: list[RocketMQError] = []
    for answer in cluster.ask_masters(GetConsumers(group)).values():
        if isinstance(answer, ConsumersReply):
            replies.append(answer)
        elif isinstance(answer, (UnsupportedRequestError, NotOverGrpcError)):
            continue
        elif not (
            isinstance(answer, BrokerError) and answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        ):
            failures.append(answer)
    if failures and not replies:
        raise failures[0]
    if not replies:
        return None
    return Members(
        {c.client_id: (c.address, c.language) for reply in replies for c in reply.connections},
        replies[0].consume_type,
        replies[0].message_model,
        {
            topic: subscription.expression
            for reply in replies
            for topic, (subscription, _) in reply.subscriptions.items()
        },
    )
