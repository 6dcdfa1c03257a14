"""A group's place in every queue it has read, as its brokers tell."""

from __future__ import annotations

from typing import Final

from rocketmq_cli.suggest import did_you_mean
from rocketmq_client.cluster import Cluster
from rocketmq_wire.errors import (
    BrokerError,
    GroupNotFoundError,
    RocketMQError,
    TopicNotFoundError,
)
from rocketmq_wire.model import QueueId, QueueProgress
from rocketmq_wire.requests import GetConsumeStats

# Groups of RocketMQ itself, and those under which this project only reads.
_SYSTEM_GROUPS: Final = (
    "CID_",
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_",
    "__MONITOR_",
    "rmq-",
    "pyspark-rocketmq-reader",
)


def is_system_group(name: str) -> bool:
    """True for a group that no application has."""
    return name.startswith(_SYSTEM_GROUPS)


class UnknownGroupError(RocketMQError):
    """No broker of the cluster knows the group."""

    def __init__(self, group: str, hint: str) -> None:
        super().__init__(group, hint)
        self.group, self.hint = group, hint

    def __str__(self) -> str:
        return (
            f"no broker knows the group {self.group!r}.{self.hint}"
            " `rmq group list` lists them; a group is known once it has committed or subscribed"
        )


def known_group(cluster: Cluster, group: str) -> None:
    """Raise UnknownGroupError for a group that nobody knows.

    Brokers of 4.9 list no group that has only committed.
    """
    groups = cluster.groups()
    if group not in groups and not group_queues(cluster, group):
        raise UnknownGroupError(group, did_you_mean(group, groups))


def group_queues(
    cluster: Cluster, group: str, topic: str | None = None
) -> dict[QueueId, QueueProgress]:
    """Where a group stands in every queue of its topics, or of one; empty for nowhere."""
    found: dict[QueueId, QueueProgress] = {}
    failure: RocketMQError | None = None
    is_answered = False
    for answer in cluster.ask_masters(GetConsumeStats(group, topic or "")).values():
        if isinstance(answer, (TopicNotFoundError, GroupNotFoundError)):
            is_answered = True
        elif isinstance(answer, BrokerError) and answer.code == 1:
            # A broker of 5.x that the group has never read from.
            is_answered = True
        elif isinstance(answer, RocketMQError):
            failure = answer
        else:
            is_answered = True
            found.update(answer.queues)
    if failure is not None and not is_answered:
        raise failure
    return {queue: at for queue, at in found.items() if topic is None or queue.topic == topic}
