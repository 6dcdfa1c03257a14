"""Plans the new committed offsets of a group, and moves it: by a commit or through its brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocketmq_cli.connection import queues_of
from rocketmq_cli.times import parse_moment_ms
from rocketmq_cli.usage import UsageError
from rocketmq_client.cluster import Cluster
from rocketmq_wire.errors import RocketMQError, raise_first
from rocketmq_wire.model import Bounds, QueueId
from rocketmq_wire.requests.brokers import GetBrokerSettings
from rocketmq_wire.requests.offsets import OffsetsReply, ResetClientOffsets

_TO_THE_END = -1


class MovedOtherwiseError(RocketMQError):
    """Brokers moved other queues than the request named."""

    def __init__(self, missing: tuple[QueueId, ...], added: tuple[QueueId, ...]) -> None:
        super().__init__(missing, added)
        self.missing, self.added = missing, added

    def __str__(self) -> str:
        parts = [
            f"{what}: {', '.join(map(str, queues))}"
            for what, queues in (("not moved", self.missing), ("moved, too", self.added))
            if queues
        ]
        return f"the brokers moved other queues than the request named. {'; '.join(parts)}"


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


def move_stored(cluster: Cluster, group: str, offsets: Mapping[QueueId, int]) -> None:
    """Commit the offsets of a group without members."""
    raise_first(cluster.commit(group, offsets))


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
