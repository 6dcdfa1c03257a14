"""A fake client instance without threads or sockets: the test answers its requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from rocketmq_client.consumer.common.io_thread import IoThread, OnDone
from rocketmq_client.consumer.membership.client_instance import ClientInstance
from rocketmq_wire.errors import ProgressNotFoundError, RocketMQError
from rocketmq_wire.model import QueueId, QueueSet, Route
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.groups import LockQueues, QueuesReply
from rocketmq_wire.requests.offsets import (
    CommitOffset,
    GetCommittedOffset,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
)


class FakeIo:
    """A broker's committed offsets and locks; `fail` may answer a request with an error."""

    def __init__(self) -> None:
        self.committed: dict[QueueId, int] = {}
        self.starts: dict[QueueId, int] = {}
        self.ends: dict[QueueId, int] = {}
        self.locks: dict[QueueId, str] = {}
        """Queues that another member has locked."""
        self.asked: list[Request[Reply]] = []
        self.fail: Callable[[Request[Reply]], RocketMQError | None] = lambda _: None
        self.posted: list[Callable[[], None]] = []
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self.sent: list[tuple[Request[Reply], OnDone]] = []

    def call_many(
        self, requests: Sequence[tuple[str | None, Request[Reply]]], *, timeout_ms: int
    ) -> list[Reply | RocketMQError]:
        del timeout_ms
        self.asked += [request for _, request in requests]
        return [self.fail(request) or self._answer(request) for _, request in requests]

    def _answer(self, request: Request[Reply]) -> Reply | RocketMQError:
        if isinstance(request, CommitOffset):
            self.committed[request.queue] = request.offset
        elif isinstance(request, GetCommittedOffset):
            if request.queue not in self.committed:
                return ProgressNotFoundError(22, "none")
            return OffsetReply(self.committed[request.queue])
        elif isinstance(request, GetMaxOffset):
            return OffsetReply(self.ends.get(request.queue, 0))
        elif isinstance(request, GetMinOffset):
            return OffsetReply(self.starts.get(request.queue, 0))
        elif isinstance(request, LockQueues):
            free = (q for q in request.queues if self.locks.get(q, "c1") == "c1")
            return QueuesReply(tuple(free))
        return Done()

    def post(self, work: Callable[[], None]) -> None:
        self.posted.append(work)

    def at(self, due_ms: int, work: Callable[[], None]) -> None:
        self.timers.append((due_ms, work))

    def send(
        self, request: Request[Reply], *, broker: str | None, timeout_ms: int, on_done: OnDone
    ) -> None:
        del broker, timeout_ms
        self.asked.append(request)
        self.sent.append((request, on_done))

    def run(self) -> None:
        """Run posted work, and the work that it posts."""
        while self.posted:
            self.posted.pop(0)()

    def asked_of(self, kind: type[Any]) -> list[Any]:
        return [request for request in self.asked if isinstance(request, kind)]


class FakeInstance:
    """One topic `T` with queues at broker `a`, and a group of the members given."""

    client_id = "c1"

    def __init__(self, queue_count: int = 2, *, io: FakeIo | None = None) -> None:
        self.fake_io = io or FakeIo()
        self.io = cast(IoThread, self.fake_io)
        self.members: tuple[str, ...] = ("c1",)
        self.queue_count = queue_count
        self.rebalances = self.nudges = 0

    def as_instance(self) -> ClientInstance:
        return cast(ClientInstance, self)

    def route(self, topic: str) -> Route | None:
        del topic
        return Route((QueueSet("a", self.queue_count, self.queue_count, 6),), ())

    def members_of(self, group: str, topic: str) -> tuple[str, ...]:
        del group, topic
        return self.members

    def want_rebalance(self) -> None:
        self.rebalances += 1

    def nudge(self) -> None:
        self.nudges += 1
