"""Batches of a transactional query that can be killed at every request, and their broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from pyspark_rocketmq.sink.encoding.batches import SinkRequests
from pyspark_rocketmq.sink.encoding.plan import SinkLayout, TransactionPlan, WriteId
from pyspark_rocketmq.sink.transactional.commit import (
    Commits,
    HalfMessagesWritten,
    write_half_messages,
)
from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import ConnectionLostError, TopicNotFoundError
from rocketmq_wire.model import ClusterInfo, OffsetRange, TopicConfig
from rocketmq_wire.requests.brokers import ClusterReply, GetCluster
from rocketmq_wire.requests.topics import GetRoute
from rocketmq_wire.requests.transactions import EndTransaction
from support.visible_messages import visible

GROUP = "sink"
ROWS = 6
TASKS = 2
IMMUNITY_SECONDS = 3_600


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    checks = {"transaction_timeout_ms": 500, "transaction_check_interval_ms": 500}
    with Broker(config_from({"flush": "memory", "grpc": False, **checks})) as broker:
        yield broker.name_server


@pytest.fixture
def connection(name_server: str) -> ConnectionSettings:
    return ConnectionSettings(name_servers=(name_server,))


@pytest.fixture
def topic(connection: ConnectionSettings, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name))}"
    with open_cluster(connection) as cluster:
        cluster.create_topic(TopicConfig(name, 3, 3))
    return name


class Killed(BaseException):
    """The process is gone."""


AT_THE_ENDS = -1
"""When the first ends are sent, which is behind the decision."""


class MortalTransport:
    """Dies at its nth request: before it, in the middle of several, or behind it."""

    def __init__(self, transport: Any, kill_at: int, how: str) -> None:
        self._transport, self._left, self._how = transport, kill_at, how
        self.is_dead = False

    def call(self, request: Any, **how: Any) -> Any:
        self._before()
        return self._after(self._transport.call(request, **how))

    def call_many(self, requests: Sequence[Any], **how: Any) -> Any:
        return self._many(self._transport.call_many, requests, how)

    def submit_many(self, requests: Sequence[Any], **how: Any) -> Any:
        return self._many(self._transport.submit_many, requests, how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _many(self, ask: Callable[..., Any], requests: Sequence[Any], how: dict[str, Any]) -> Any:
        if self._left < 0 and requests and isinstance(requests[0][1], EndTransaction):
            self._left = 1
        self._before()
        if self._left == 0 and self._how == "within":
            ask(requests[: len(requests) // 2], **how)
            self._die()
        return self._after(ask(requests, **how))

    def _before(self) -> None:
        if self.is_dead:
            raise Killed
        if self._left > 0:
            self._left -= 1
            if self._left == 0 and self._how == "before":
                self._die()

    def _after(self, result: Any) -> Any:
        if self._left == 0:
            self._die()
        return result

    def _die(self) -> None:
        self.is_dead = True
        raise Killed


@dataclass
class Query:
    """One batch of a query, run as Spark runs it: tasks, then commit or abort."""

    connection: ConnectionSettings
    topic: str
    query: str
    groups: bool = False
    batch: int = 0
    prefix: str = ""
    immunity_seconds: int = IMMUNITY_SECONDS

    @property
    def plan(self) -> TransactionPlan:
        name = f"decisions-{self.topic}"
        return TransactionPlan(name, self.groups, checked_seconds=60.0, visibility_wait_seconds=0.5)

    def rows(self, task: int) -> pa.RecordBatch:
        numbers = range(task, ROWS, TASKS)
        groups = [f"g{n % 3}" if self.groups else None for n in numbers]
        columns = {
            "body": pa.array([f"{self.prefix}{n}".encode() for n in numbers]),
            "messageGroup": pa.array(groups, pa.string()),
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def write(self, cluster: Cluster, task: int) -> HalfMessagesWritten:
        producer = Producer(cluster, GROUP, in_flight_max=2, in_flight_per_queue_max=2)
        columns = {"body": 0, "messageGroup": 1}
        layout = SinkLayout(
            columns, self.topic, 10_000, False, immunity_seconds=self.immunity_seconds
        )
        write_id = WriteId(self.query, str(self.batch), task)
        rows = self.rows(task)
        requests = SinkRequests(layout, producer, write_id).of_batch(rows)
        written = write_half_messages(producer, self.plan, write_id, requests)
        # As Spark's tasks, which read their rows also where they send none.
        written.rows = rows.num_rows
        return written

    def run(self, cluster: Cluster) -> None:
        written = [self.write(cluster, task) for task in range(TASKS)]
        Commits(cluster, GROUP, self.plan).commit_written(written)

    def run_whole(self) -> None:
        with open_cluster(self.connection) as cluster:
            self.run(cluster)

    def run_killed(self, kill_at: int, how: str) -> bool:
        """True if it died before it was done."""
        with open_cluster(self.connection) as cluster:
            mortal = MortalTransport(cluster.transport, kill_at, how)
            cluster.transport = mortal  # type: ignore[assignment]
            try:
                self.run(cluster)
            except Killed:
                return True
            return False


class DeafTransport:
    """Loses the answers to some ends; the broker has done half of what they asked, or nothing."""

    def __init__(self, transport: Any, count: int, *, does_half: bool = True) -> None:
        self._transport, self.left, self._does_half = transport, count, does_half

    def call_many(self, requests: Sequence[Any], **how: Any) -> Any:
        if not self.left or not isinstance(requests[0][1], EndTransaction):
            return self._transport.call_many(requests, **how)
        self.left -= 1
        if self._does_half:
            self._transport.call_many(requests[: (len(requests) + 1) // 2], **how)
        return [ConnectionLostError("broker-a", "the answer was lost")] * len(requests)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class PausedTransport:
    """Stands still behind its first ends, while something else happens."""

    def __init__(self, transport: Any, meanwhile: Callable[[], None]) -> None:
        self._transport, self._meanwhile = transport, meanwhile
        self.was_paused = False

    def call_many(self, requests: Sequence[Any], **how: Any) -> Any:
        replies = self._transport.call_many(requests, **how)
        if not self.was_paused and isinstance(requests[0][1], EndTransaction):
            self.was_paused = True
            self._meanwhile()
        return replies

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class RoutelessTransport:
    """A name server that knows no topic for now, and maybe no broker."""

    def __init__(self, transport: Any, *, has_brokers: bool = True) -> None:
        self._transport, self._has_brokers = transport, has_brokers

    def call_many(self, requests: Sequence[Any], **how: Any) -> Any:
        if isinstance(requests[0][1], GetRoute):
            return [TopicNotFoundError(17, "no topic route info")] * len(requests)
        if isinstance(requests[0][1], GetCluster) and not self._has_brokers:
            return [ClusterReply(ClusterInfo((), {}))] * len(requests)
        return self._transport.call_many(requests, **how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class ReadsWithCount:
    """How many offsets a cluster's downloads covered, and how many pulls it made beside them."""

    def __init__(self, cluster: Cluster) -> None:
        self._read_ranges, self._pull = cluster.read_ranges, cluster.pull
        self.offsets = self.pulls = 0
        cluster.read_ranges = self.read_ranges  # type: ignore[method-assign]
        cluster.pull = self.pull  # type: ignore[method-assign]

    def read_ranges(self, ranges: Sequence[OffsetRange], spec: ReadSpec) -> Iterator[RangeChunk]:
        self.offsets += sum(wanted.end - wanted.start for wanted in ranges)
        return self._read_ranges(ranges, spec)

    def pull(self, *what: Any, **how: Any) -> Any:
        self.pulls += 1
        return self._pull(*what, **how)


def counts(connection: ConnectionSettings, topic: str) -> Counter[bytes]:
    return Counter(message.body for message in visible(connection, topic))


def expected(*prefixes: str) -> Counter[bytes]:
    return Counter(f"{prefix}{n}".encode() for prefix in prefixes for n in range(ROWS))
