"""Consumer groups for the verbs and the status pages: committed offsets, live members, resets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketmq_cli.connection import queues_of
from rocketmq_cli.errors import IncompleteOffsetsError, MovedOtherwiseError, UnknownGroupError
from rocketmq_cli.usage import UsageError, parse_moment_ms
from rocketmq_client.cluster import Cluster
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import (
    BrokerError,
    GroupNotFoundError,
    NotOverGrpcError,
    RocketMQError,
    TopicNotFoundError,
    UnsupportedRequestError,
    raise_first,
)
from rocketmq_wire.model import (
    GROUP_SIZE_MAX,
    NAME_PATTERN,
    Bounds,
    CommittedOffset,
    QueueId,
)
from rocketmq_wire.requests.brokers import GetBrokerSettings
from rocketmq_wire.requests.groups import ConsumersReply, GetConsumers, GroupsReply, ListGroups
from rocketmq_wire.requests.offsets import (
    ConsumeStatsReply,
    GetConsumeStats,
    OffsetsReply,
    ResetClientOffsets,
)
from rocketmq_wire.suggest import did_you_mean

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
_TO_THE_END = -1
# By the names in consumers' heartbeats.
_CONSUME_TYPES: Final = {
    "CONSUME_ACTIVELY": "pull",
    "CONSUME_PASSIVELY": "push",
    "CONSUME_POP": "pop",
}


def is_system_group(name: str) -> bool:
    """True for a group that no application has."""
    return name.startswith(_SYSTEM_GROUPS)


class GroupOffsets(NamedTuple):
    """A group's committed offsets in the queues of the brokers that answered."""

    queues: Mapping[QueueId, CommittedOffset]
    problem: IncompleteOffsetsError | None = None
    """The brokers that did not answer; None if all did."""


def require_valid_name(group: str) -> None:
    """Raise UsageError for a name that no group can have."""
    if not NAME_PATTERN.fullmatch(group) or len(group) > GROUP_SIZE_MAX:
        raise UsageError(
            f"{group!r} is not a valid name of a group: it has 1 to {GROUP_SIZE_MAX} letters, "
            "digits, '_', '-', '%' and '|' only"
        )


def known_group(cluster: Cluster, group: str) -> None:
    """Raise UnknownGroupError if no broker knows the group.

    Brokers of 4.9 do not list a group that has only committed. Raises IncompleteOffsetsError if
    one does not answer.
    """
    groups = cluster.groups()
    if group in groups:
        return
    queues, problem = group_offsets(cluster, group)
    if problem is not None:
        raise problem
    if not queues:
        raise UnknownGroupError(group, did_you_mean(group, groups))


def listed_groups(cluster: Cluster) -> tuple[list[str], dict[str, RocketMQError]]:
    """The groups that brokers list, sorted, and the brokers that did not answer.

    Raises the first failure if no broker answers.
    """
    answers = cluster.ask_masters(ListGroups())
    groups: set[str] = set()
    missing: dict[str, RocketMQError] = {}
    for broker, answer in answers.items():
        if isinstance(answer, GroupsReply):
            groups.update(answer.groups)
        else:
            missing[broker] = answer
    if len(missing) == len(answers):
        raise next(iter(missing.values()))
    return sorted(groups), missing


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
        kind = _CONSUME_TYPES.get(self.consume_type, self.consume_type)
        return f"{kind}, {self.message_model.lower()}; subscribed to {topics or '-'}"

    def as_records(self) -> Sequence[Mapping[str, str]]:
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


@dataclass(frozen=True, slots=True)
class Target:
    """The new position of a group; exactly one field is set."""

    time_ms: int | None = None
    """0 for the start, negative for the end, as RocketMQ's own request has it."""
    offset: int | None = None
    shift: int | None = None

    @classmethod
    def parse(
        cls, word: str | None, offset: int | None, shift: int | None, *, now_ms: int
    ) -> Target:
        """From the command line's options. Raises UsageError."""
        if word is None:
            if offset is not None and offset < 0:
                raise UsageError(f"--to-offset must not be negative, not {offset}")
            return cls(offset=offset, shift=shift)
        if word in ("earliest", "latest"):
            return cls(time_ms=0 if word == "earliest" else _TO_THE_END)
        if word.isdigit() and len(word) < 12:
            raise UsageError(f"--to takes a time, not {word!r}: an offset is --to-offset {word}")
        return cls(time_ms=parse_moment_ms(word, now_ms))


@dataclass(frozen=True, slots=True)
class Move:
    """One queue with the group's present and its new committed offset."""

    queue: QueueId
    start: int
    committed: int | None
    wanted: int

    @property
    def read_from(self) -> int:
        """The offset from which the group would read without the move."""
        return max(self.start, self.start if self.committed is None else self.committed)


def plan_move(
    cluster: Cluster, group: str, topic: str, target: Target, index: int | None
) -> list[Move]:
    """Plan a move queue by queue; offsets stay within the queues' bounds."""
    queues = queues_of(cluster, topic, index)
    bounds = raise_first(cluster.bounds(queues))
    committed = raise_first(cluster.committed_offsets(group, queues))
    searched: Mapping[QueueId, int] = {}
    if target.time_ms is not None and target.time_ms > 0:
        searched = raise_first(cluster.search_offsets(dict.fromkeys(queues, target.time_ms)))
    moves = []
    for queue in queues:
        wanted = _wanted(target, bounds[queue], committed[queue], searched.get(queue))
        moves.append(Move(queue, bounds[queue].start, committed[queue], wanted))
    return moves


def _wanted(target: Target, bounds: Bounds, committed: int | None, searched: int | None) -> int:
    if searched is not None:
        wanted = searched
    elif target.time_ms is not None:
        wanted = bounds.end if target.time_ms < 0 else bounds.start
    elif target.offset is not None:
        wanted = target.offset
    else:
        assert target.shift is not None
        wanted = (bounds.start if committed is None else committed) + target.shift
    return min(max(wanted, bounds.start), bounds.end)


def move_online(
    cluster: Cluster,
    group: str,
    target: Target,
    moves: Sequence[Move],
    *,
    index: int | None,
    member_count: int,
) -> None:
    """Let the brokers move a group and its members, who would overwrite a plain commit.

    Raises UsageError before anything is moved, and MovedOtherwiseError if other queues were.
    """
    if target.time_ms is None:
        raise UsageError(
            f"group {group} has {member_count} live members, which can be moved to a time only: "
            "give --to earliest, latest or a time, or stop them first"
        )
    planned = {move.queue for move in moves}
    topic = moves[0].queue.topic
    if index is not None:
        _require_single_queues(cluster, {queue.broker for queue in planned}, group, index)
    request = ResetClientOffsets(
        group, topic, target.time_ms, queue_index=-1 if index is None else index
    )
    moved: set[QueueId] = set()
    failure: RocketMQError | None = None
    for broker, answer in cluster.ask_masters(request).items():
        if isinstance(answer, OffsetsReply):
            moved.update(answer.offsets)
        elif any(queue.broker == broker for queue in planned):
            # Other brokers may refuse: they have no such topic or queue.
            failure = failure or answer
    if failure is not None:
        raise failure
    if moved != planned:
        raise MovedOtherwiseError(tuple(sorted(planned - moved)), tuple(sorted(moved - planned)))


def _require_single_queues(cluster: Cluster, brokers: set[str], group: str, index: int) -> None:
    """Brokers of 4.9 to 5.1 ignore the queue in this request, and would move all queues."""
    for broker, answer in cluster.ask_masters(GetBrokerSettings()).items():
        if broker not in brokers:
            continue
        if isinstance(answer, RocketMQError):
            raise answer
        if answer.settings.get("useServerSideResetOffset") != "true":
            raise UsageError(
                f"group {group} has live members, and {broker} can move them only in all queues at "
                f"once, not in queue {index} alone (useServerSideResetOffset is not on "
                "there): leave out --queue, or stop the members first"
            )
