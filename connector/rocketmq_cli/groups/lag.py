"""A group's place in every queue it has read, as its brokers tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rocketmq_cli.suggest import did_you_mean
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


class IncompleteProgressError(RocketMQError):
    """Some brokers did not say where a group stands: its lag is more than what the others know."""

    def __init__(self, group: str, missing: Mapping[str, str]) -> None:
        super().__init__(group, missing)
        self.group, self.missing = group, missing
        """Why, by the broker's name."""

    def __str__(self) -> str:
        reasons = "; ".join(f"{broker}: {why}" for broker, why in self.missing.items())
        return (
            f"where group {self.group!r} stands at {', '.join(self.missing)} is not known, so its "
            f"lag is not either. {reasons}"
        )


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Where a group stands in the queues of those brokers that said so."""

    queues: Mapping[QueueId, CommittedOffset]
    problem: IncompleteProgressError | None = None
    """The brokers that did not; None when all did."""


def known_group(cluster: Cluster, group: str) -> None:
    """Raise UnknownGroupError for a group that nobody knows.

    Brokers of 4.9 list no group that has only committed.
    """
    groups = cluster.groups()
    if group not in groups and not group_queues(cluster, group):
        raise UnknownGroupError(group, did_you_mean(group, groups))


def group_queues(cluster: Cluster, group: str) -> Mapping[QueueId, CommittedOffset]:
    """Where a group stands in every queue of its topics; empty for nowhere.

    Raises IncompleteProgressError when a broker does not say.
    """
    places = group_offsets(cluster, group)
    if places.problem is not None:
        raise places.problem
    return places.queues


def group_offsets(cluster: Cluster, group: str, topic: str | None = None) -> GroupOffsets:
    """As `group_queues`, or of one topic, with what is known when some brokers do not answer.

    Raises the first failure when none does.
    """
    found: dict[QueueId, CommittedOffset] = {}
    missing: dict[str, str] = {}
    # Asked of one topic, brokers answer 0 for a group that has committed nothing there.
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
        IncompleteProgressError(group, missing) if missing else None,
    )
