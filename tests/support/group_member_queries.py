"""Queries that are members of one group, over a cluster in memory: no threads, no Spark.

Each has a checkpoint and an idempotent sink, as Spark gives them: a batch is logged, read, and then
durable; a query that was killed repeats its last batch if that was logged and not yet durable.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.checkpoint import SourceOffset
from pyspark_rocketmq.planning.micro_batch import ranges_between
from pyspark_rocketmq.stream.group_member.driver import (
    GroupMemberDriver,
    GroupMemberPorts,
    group_settings,
)
from rocketmq_client.consumer.batch_member import BatchMember
from rocketmq_client.consumer.common.io_thread import IoThread, now_ms
from rocketmq_client.consumer.group_consumer import ConsumerState
from rocketmq_client.consumer.membership.client_instance import ClientInstance
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import OffsetRange, QueueId, QueueSet, Route
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import LockQueues, QueuesReply, UnlockQueues
from support.fake_cluster import FakeWorld
from support.group_fakes import FakeInstance, FakeIo

GROUP = "g"


class GroupWorld(FakeWorld):
    """A topic `orders`, its messages, and the group's committed offsets, locks and members."""

    def __init__(self, queue_count: int) -> None:
        super().__init__()
        self.made = self.create("orders", queue_count)
        self.group_offsets: dict[QueueId, int] = {}
        self.locks: dict[QueueId, str] = {}
        self.members: set[str] = set()

    def forget(self, client_id: str) -> None:
        """A dead member's locks, a minute later."""
        self.members.discard(client_id)
        self.locks = {q: owner for q, owner in self.locks.items() if owner != client_id}


class WorldIo(FakeIo):
    """A member's way to the world."""

    def __init__(self, world: GroupWorld) -> None:
        super().__init__()
        self.world = world
        self.committed = world.group_offsets

    def _answer(self, request: Request[Reply]) -> Reply | RocketMQError:
        for queue, held in self.world.queues.items():
            self.starts[queue], self.ends[queue] = held.bounds.start, held.bounds.end
        if isinstance(request, LockQueues):
            locks, mine = self.world.locks, request.client_id
            granted = tuple(q for q in request.queues if locks.get(q, mine) == mine)
            locks.update(dict.fromkeys(granted, mine))
            return QueuesReply(granted)
        if isinstance(request, UnlockQueues):
            for queue in request.queues:
                if self.world.locks.get(queue) == request.client_id:
                    del self.world.locks[queue]
        return super()._answer(request)


class WorldInstance(FakeInstance):
    """A member's instance."""

    def __init__(self, world: GroupWorld, client_id: str) -> None:
        super().__init__()
        self.world, self.client_id = world, client_id
        self.fake_io = WorldIo(world)
        self.io = cast(IoThread, self.fake_io)

    def route(self, topic: str) -> Route | None:
        count = len([queue for queue in self.world.queues if queue.topic == topic])
        return Route((QueueSet("broker-a", count, count, 6),), ()) if count else None

    def members_of(self, group: str, topic: str) -> tuple[str, ...]:
        del group, topic
        return tuple(sorted(self.world.members))

    def unregister(self, member: object) -> None:
        del member
        self.world.members.discard(self.client_id)

    def release(self) -> None:
        pass


class JoinedQuery:
    """One query: its checkpoint and sink outlive its runs."""

    def __init__(self, world: GroupWorld, name: str, **options: str) -> None:
        self.world, self.name = world, name
        raw = {"nameServer": "h:1", "subscribe": "orders", "group": GROUP, "joinGroup": "true"}
        # No other query runs while this one waits for its first queues.
        raw["connectTimeoutMs"] = "1"
        self.options = read_options({**raw, "startingOffsets": "earliest", **options})
        self.logged: list[dict[str, Any]] = []
        self.durable = 0
        self.initial: dict[str, Any] = {}
        self.sink: dict[int, list[tuple[QueueId, int]]] = {}
        self.driver: GroupMemberDriver | None = None
        self.now_ms = 1_000_000
        self.repeated_ranges: list[OffsetRange] = []

    # --- a run --------------------------------------------------------------------------------

    def start(self) -> None:
        self.instance = WorldInstance(self.world, self.name)
        self.world.members.add(self.name)
        ports = GroupMemberPorts(
            open_cluster=self.world.open_cluster,  # type: ignore[arg-type]
            open_watch=self.world.open_watch,  # type: ignore[arg-type]
            now_ms=self._tick,
            sleep_ms=lambda _: None,
            open_batch_member=self._open_member,
        )
        self.driver = GroupMemberDriver(self.options, ports)
        if not self.logged:
            self.initial = _through_text(self.driver.initial_offset())
        if self.durable < len(self.logged):
            self.finish()

    def _tick(self) -> int:
        self.now_ms += 100
        return self.now_ms

    def _open_member(
        self, settings: ConnectionSettings, options: ReadOptions, known: Mapping[QueueId, int]
    ) -> BatchMember:
        member = BatchMember(settings, group_settings(options), known)
        instance = cast(ClientInstance, self.instance)
        member._attach(instance)
        member._instance, member._state = instance, ConsumerState.RUNNING
        member.rebalance()
        self.member = member
        return member

    def plan(self) -> bool:
        """Ask for a batch; True when there is one, which is logged then."""
        assert self.driver is not None
        end = _through_text(self.driver.latest_offset(self.last, is_unlimited=False))
        if end == self.last:
            return False
        self.logged.append(end)
        return True

    def finish(self) -> None:
        """Read the logged batch, and make it durable."""
        batch = self.durable
        self.sink[batch] = [
            (piece.queue, offset)
            for piece in self.ranges(batch)
            for offset in range(piece.start, piece.end)
        ]
        self.durable = batch + 1

    def ranges(self, batch: int) -> list[OffsetRange]:
        start = self.logged[batch - 1] if batch else self.initial
        return ranges_between(
            SourceOffset.from_json(start), SourceOffset.from_json(self.logged[batch])
        )

    @property
    def last(self) -> dict[str, Any]:
        return self.logged[self.durable - 1] if self.durable else self.initial

    def balance(self) -> None:
        if self.driver is not None and self.driver._member is not None:
            self.member.rebalance()

    def housekeep(self) -> None:
        if self.driver is not None and self.driver._member is not None:
            self.member._persist_due_ms = self.member._lock_due_ms = 0
            self.member.housekeep(now_ms())

    def stop(self) -> None:
        """In order."""
        assert self.driver is not None
        self.driver.close()
        self.world.members.discard(self.name)
        self.driver = None

    def kill(self) -> None:
        """Nothing is stored; locks lapse."""
        self.driver = None
        self.world.forget(self.name)

    @property
    def rows(self) -> Counter[tuple[QueueId, int]]:
        return Counter(row for batch in self.sink.values() for row in batch)


def _through_text(value: dict[str, Any]) -> dict[str, Any]:
    """As Spark hands offsets on."""
    return dict(json.loads(json.dumps(value)))
