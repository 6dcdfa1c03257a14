"""A cluster in memory with the interface that the Spark side uses, and its arrival watch."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import LossPolicy, LossReason, lost_range
from rocketmq_client.retry import Clock
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import ConnectError, RocketMQError, TopicNotFoundError
from rocketmq_wire.model import (
    Bounds,
    BrokerAddresses,
    ClusterInfo,
    OffsetRange,
    QueueId,
    StoredMessage,
)
from rocketmq_wire.requests.offsets import Boundary
from support.fake_clock import FakeClock
from support.records import BORN_HOST, STORE_HOST, lay_out

STORE_MS = 1_700_000_000_000


class FakeQueue:
    """Messages of one queue: offset `start + i` is `stored[i]` (store time, tag, body)."""

    def __init__(self) -> None:
        self.start = 0
        self.stored: list[tuple[int, str, bytes]] = []

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.start, self.start + len(self.stored))


class FakeWorld:
    """What every FakeCluster opened on it sees; a test changes it."""

    def __init__(self) -> None:
        self.queues: dict[QueueId, FakeQueue] = {}
        self.topics: set[str] = set()
        self.topics_without_route: set[str] = set()
        self.brokers_away: set[str] = set()
        self.masters_away = False
        """Only replicas answer: their bounds are not current."""
        self.name_server_away = False
        self.refusal_of_first_times: RocketMQError | None = None
        """What a proxy says to a question that it does not know."""
        self.committed: dict[tuple[str, QueueId], int] = {}
        self.commit_log: list[dict[QueueId, int]] = []
        self.committing = threading.Event()
        self.live_members: dict[str, tuple[str, ...]] = {}
        self.clock_ms = STORE_MS
        self.holes: set[tuple[QueueId, int]] = set()
        self.damaged: set[tuple[QueueId, int]] = set()
        self.opened = 0
        self.hold_ms = 0
        self.calls: list[str] = []
        self.hinted: dict[str, str] = {}

    def create(self, topic: str, count: int, broker: str = "broker-a") -> list[QueueId]:
        self.topics.add(topic)
        made = [QueueId(topic, broker, index) for index in range(count)]
        for queue in made:
            self.queues.setdefault(queue, FakeQueue())
        return made

    def put(self, queue: QueueId, count: int, tag: str = "A") -> None:
        held = self.queues[queue]
        for _ in range(count):
            self.clock_ms += 1
            body = b"%d/%d" % (queue.index, held.bounds.end)
            held.stored.append((self.clock_ms, tag, body))

    def expire(self, queue: QueueId, start: int) -> None:
        held = self.queues[queue]
        held.stored = held.stored[start - held.start :]
        held.start = start

    def truncate(self, queue: QueueId, end: int) -> None:
        held = self.queues[queue]
        held.stored = held.stored[: end - held.start]

    def delete(self, topic: str) -> None:
        self.topics.discard(topic)
        self.queues = {q: held for q, held in self.queues.items() if q.topic != topic}

    def open_cluster(self, _settings: ConnectionSettings) -> FakeCluster:
        self.opened += 1
        return FakeCluster(self)

    def open_watch(
        self, _settings: ConnectionSettings, queues: tuple[QueueId, ...], *, hold_ms: int
    ) -> FakeWatch:
        self.hold_ms = hold_ms
        return FakeWatch(self, queues)


class FakeCluster:
    """See rocketmq_client.cluster.Cluster."""

    def __init__(self, world: FakeWorld, clock: Clock | None = None) -> None:
        self.world = world
        self.clock = clock or FakeClock().clock
        self.is_closed = False

    def __enter__(self) -> FakeCluster:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def broker_addresses(self) -> dict[str, str]:
        return {queue.broker: "x:1" for queue in self.world.queues}

    def hint(self, addresses: Mapping[str, str]) -> None:
        self.world.hinted.update(addresses)

    def topics(self) -> tuple[str, ...]:
        self._name_server("topics")
        return tuple(sorted(self.world.topics))

    def queues(self, topic: str) -> tuple[QueueId, ...]:
        self._name_server("queues")
        found = tuple(sorted(queue for queue in self.world.queues if queue.topic == topic))
        if not found or topic in self.world.topics_without_route:
            raise TopicNotFoundError(17, f"no route to topic {topic}")
        return found

    def cluster_info(self) -> ClusterInfo:
        self._name_server("cluster_info")
        names = {queue.broker for queue in self.world.queues} - self.world.brokers_away
        return ClusterInfo(tuple(BrokerAddresses(name, "c", {0: "x:1"}) for name in names), {})

    def bounds(self, queues: Iterable[QueueId]) -> dict[QueueId, Bounds | RocketMQError]:
        self.world.calls.append("bounds")
        return {queue: self._away(queue) or self._held(queue) for queue in queues}

    def _held(self, queue: QueueId) -> Bounds:
        held = self.world.queues.get(queue, FakeQueue()).bounds
        return Bounds(held.start, held.end, not self.world.masters_away)

    def earliest_store_times(
        self, queues: Iterable[QueueId]
    ) -> dict[QueueId, int | RocketMQError | None]:
        self.world.calls.append("earliest_store_times")
        times: dict[QueueId, int | RocketMQError | None] = {}
        for queue in queues:
            stored = self.world.queues[queue].stored
            times[queue] = (
                self._away(queue)
                or self.world.refusal_of_first_times
                or (stored[0][0] if stored else None)
            )
        return times

    def search_offsets(
        self, timestamps_ms: Mapping[QueueId, int], _boundary: Boundary = Boundary.LOWER
    ) -> dict[QueueId, int | RocketMQError]:
        found: dict[QueueId, int | RocketMQError] = {}
        for queue, ms in timestamps_ms.items():
            held = self.world.queues[queue]
            older = sum(1 for stored_ms, _, _ in held.stored if stored_ms < ms)
            found[queue] = self._away(queue) or held.start + older
        return found

    def store_times_at(
        self, offsets: Mapping[QueueId, int], *, is_exact: bool = False
    ) -> dict[QueueId, int | None]:
        del is_exact  # No message is missing between others here.
        self.world.calls.append("store_times_at")
        times: dict[QueueId, int | None] = {}
        for queue, offset in offsets.items():
            held = self.world.queues[queue]
            index = offset - held.start
            is_there = 0 <= index < len(held.stored) and self._away(queue) is None
            times[queue] = held.stored[index][0] if is_there else None
        return times

    def committed_offsets(
        self, group: str, queues: Iterable[QueueId]
    ) -> dict[QueueId, int | RocketMQError | None]:
        return {
            queue: self._away(queue) or self.world.committed.get((group, queue)) for queue in queues
        }

    def commit(
        self, group: str, offsets: Mapping[QueueId, int]
    ) -> dict[QueueId, RocketMQError | None]:
        results: dict[QueueId, RocketMQError | None] = {}
        for queue, offset in offsets.items():
            results[queue] = self._away(queue)
            if results[queue] is None:
                self.world.committed[group, queue] = offset
        self.world.commit_log.append(dict(offsets))
        self.world.committing.set()
        return results

    def members(self, group: str, _topic: str) -> tuple[str, ...]:
        self._name_server("members")
        return self.world.live_members.get(group, ())

    def read_ranges(self, ranges: Sequence[OffsetRange], spec: ReadSpec) -> Iterator[RangeChunk]:
        for wanted in ranges:
            held = self.world.queues[wanted.queue]
            start = wanted.start
            if start < held.start:
                end = min(held.start, wanted.end)
                lost = lost_range(LossReason.EXPIRED, wanted.queue, start, end, held.bounds)
                if spec.loss_policy is LossPolicy.RAISE:
                    raise RangeLostError(lost)
                yield RangeChunk(wanted.queue, lost.start, lost.end, b"", None, None, lost)
                start = lost.end
            for first in range(start, wanted.end, 7):
                last = min(first + 7, wanted.end)
                body = self._records(wanted.queue, first, last)
                count = last - first if spec.subscription.selects_all else None
                yield RangeChunk(wanted.queue, first, last, body, None, count)

    def _records(self, queue: QueueId, start: int, end: int) -> bytes:
        held = self.world.queues[queue]
        records = []
        for offset in range(start, end):
            store_ms, tag, body = held.stored[offset - held.start]
            record = lay_out(_message(queue, offset, store_ms, tag, body))
            if (queue, offset) in self.world.damaged:
                record = record.replace(body, bytes(byte ^ 1 for byte in body), 1)
            if (queue, offset) not in self.world.holes:
                records.append(record)
        return b"".join(records)

    def close(self) -> None:
        self.is_closed = True

    def _name_server(self, call: str) -> None:
        self.world.calls.append(call)
        if self.world.name_server_away:
            raise ConnectError("name-server:1", "away")

    def _away(self, queue: QueueId) -> ConnectError | None:
        if queue.broker in self.world.brokers_away:
            return ConnectError(f"{queue.broker}:1", "away")
        return None


def _message(queue: QueueId, offset: int, store_ms: int, tag: str, body: bytes) -> StoredMessage:
    return StoredMessage(
        queue.topic, body, {"TAGS": tag}, 0, queue.index, offset, offset * 100, 0,
        store_ms, BORN_HOST, store_ms, STORE_HOST, 0, 0, 0, 0,
    )  # fmt: skip


class FakeWatch:
    """See rocketmq_client.offsets.end_offset_watcher.EndOffsetWatcher; it knows at once."""

    def __init__(self, world: FakeWorld, queues: tuple[QueueId, ...]) -> None:
        self.world, self.queues = world, queues
        self.waits: list[int] = []
        self.questions = 0
        """How often it was asked where queues end."""

    def ends(self) -> dict[QueueId, int]:
        self.questions += 1
        return {
            queue: self.world.queues[queue].bounds.end
            for queue in self.queues
            if queue in self.world.queues and queue.broker not in self.world.brokers_away
        }

    def errors(self) -> dict[QueueId, RocketMQError]:
        away = self.world.brokers_away
        return {q: ConnectError(f"{q.broker}:1", "away") for q in self.queues if q.broker in away}

    def wait(self, _beyond: Mapping[QueueId, int], timeout_ms: int) -> bool:
        self.waits.append(timeout_ms)
        return False

    def resolve_doubts(self, _beyond: Mapping[QueueId, int]) -> bool:
        return False

    def set_queues(self, queues: tuple[QueueId, ...]) -> None:
        self.queues = queues

    def close(self) -> None:
        pass
