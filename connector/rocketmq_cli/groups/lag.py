"""A group's committed offset in every queue it has read, as its brokers report it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from rocketmq_cli.usage import did_you_mean
from rocketmq_client.cluster import Cluster
from rocketmq_wire.errors import GroupNotFoundError, RocketMQError, TopicNotFoundError
from rocketmq_wire.model import CommittedOffset, QueueId
from rocketmq_wire.requests.offsets import ConsumeStatsReply, GetConsumeStats

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


class IncompleteOffsetsError(RocketMQError):
    """Some brokers did not report a group's offsets: its lag may be larger than the others say."""

    def __init__(self, group: str, missing: Mapping[str, str]) -> None:
        super().__init__(group, missing)
        self.group, self.missing = group, missing
        """The reasons by the broker's name."""

    def __str__(self) -> str:
        reasons = "; ".join(f"{broker}: {why}" for broker, why in self.missing.items())
        return (
            f"the offsets of group {self.group!r} at {', '.join(self.missing)} are unknown, and so "
            f"is its lag. {reasons}"
        )


class GroupOffsets(NamedTuple):
    """A group's committed offsets in the queues of the brokers that answered."""

    queues: Mapping[QueueId, CommittedOffset]
    problem: IncompleteOffsetsError | None = None
    """The brokers that did not answer; None if all did."""


def known_group(cluster: Cluster, group: str) -> None:
    """Raise UnknownGroupError if no broker knows the group.

    Brokers of 4.9 do not list a group that has only committed.
    """
    groups = cluster.groups()
    if group not in groups and not group_queues(cluster, group):
        raise UnknownGroupError(group, did_you_mean(group, groups))


def group_queues(cluster: Cluster, group: str) -> Mapping[QueueId, CommittedOffset]:
    """A group's committed offsets in all its topics.

    Raises IncompleteOffsetsError if a broker does not answer.
    """
    queues, problem = group_offsets(cluster, group)
    if problem is not None:
        raise problem
    return queues


def group_offsets(cluster: Cluster, group: str, topic: str | None = None) -> GroupOffsets:
    """A group's committed offsets, in one topic if given, from the brokers that answer.

    Raises the first failure if no broker answers.
    """
    found: dict[QueueId, CommittedOffset] = {}
    missing: dict[str, str] = {}
    # The request has no topic: with one, brokers answer 0 if the group has committed nothing.
    answers = cluster.ask_masters(GetConsumeStats(group))
    for broker, answer in answers.items():
        if isinstance(answer, ConsumeStatsReply):
            found.update(answer.queues)
        elif not isinstance(answer, (TopicNotFoundError, GroupNotFoundError)):
            missing[broker] = str(answer)
    if len(missing) == len(answers):
        raise next(answer for answer in answers.values() if isinstance(answer, RocketMQError))
    for known in cluster.cluster_info().brokers:
        if known.name not in answers:
            missing[known.name] = "it has no master"
    return GroupOffsets(
        {queue: at for queue, at in found.items() if topic is None or queue.topic == topic},
        IncompleteOffsetsError(group, missing) if missing else None,
    )
