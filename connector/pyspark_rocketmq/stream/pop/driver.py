"""The driver's side of a stream that pops (option consumeMode=pop).

    latestOffset(start)   acknowledges the batches up to `start`, which are durable, and pops the
                          next one; what it got is kept here, and renewed while it is needed
    partitions            hands the records of a batch out, as often as it is asked
    a restart             knows nothing of batches before it: one that is planned again is empty,
                          and its messages come again when nobody renews them any more

So every message is in a batch at least once. The offset is a count, and which process counted.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.options.parse import ReadOptions
from pyspark_rocketmq.options.pop_checks import BYTES_MAX, ROWS_MAX
from pyspark_rocketmq.stream.pop.leases import Lease, Leases
from pyspark_rocketmq.stream.pop.partitions import PopPartition, PoppedQueue, divided, queues_of
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.consumer.pop import PopConsumer, PoppedRecords
from rocketmq_client.consumer.public_pop import PublicPopClient, PublicPopConsumer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Bounds
from rocketmq_wire.records.receipt_handles import RetryKind
from rocketmq_wire.requests.pop import POP_COUNT_MAX, InitMode

_log = logging.getLogger("pyspark_rocketmq")

_WAIT_MS: Final = 100
"""How long a call waits for messages when none are there: Spark asks all sources in turn."""
_BUSY_MS: Final = 500
"""How long a call goes on popping while there are some."""
_WARNING_MS: Final = 10_000
_VERSION: Final = 1


class Popper(Protocol):
    """One topic as it is popped."""

    def receive_records(
        self, count_max: int = POP_COUNT_MAX, *, wait_ms: int = 0
    ) -> PoppedRecords | None: ...


@dataclass(slots=True)
class _Batch:
    number: int
    queues: tuple[PoppedQueue, ...]
    leases: list[Lease] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PopPorts:
    """What the driver uses of the world."""

    poppers: dict[str, Popper]
    leases: Leases
    backlog: Callable[[], int | None]
    """How many messages wait in the topics' queues; None: nobody says."""
    now_ms: Callable[[], int]
    close: Callable[[], None]


class PopDriver:
    """Lives in the stream process, from the first call to `close`."""

    def __init__(self, options: ReadOptions, ports: PopPorts, run: str) -> None:
        self._options, self._ports, self._run = options, ports, run
        self._rows_max = options.max_offsets_per_trigger or ROWS_MAX
        self._bytes_max = options.max_bytes_per_trigger or BYTES_MAX
        self._batches: dict[int, _Batch] = {}
        self._turn = 0
        self._left: int | None = None
        """How many messages an AvailableNow run may still pop; None: any number."""
        self._began_ms = ports.now_ms()
        self._has_reached = False
        self._warned_ms: int | None = None

    def initial_offset(self) -> dict[str, Any]:
        """Where a query begins that has no checkpoint."""
        return self._offset(0)

    def prepare_available_now(self) -> None:
        """Read no more than is there now: what came again meanwhile is not counted.

        Where nobody says how much that is, the run ends when nothing comes.
        """
        self._left = self._ports.backlog()

    def latest_offset(self, start: dict[str, Any], *, is_durable: bool = True) -> dict[str, Any]:
        """The end of the next batch; `start` itself when there is none.

        `is_durable` says that `start` is the end of a batch that Spark is done with.
        """
        if is_durable:
            self.settle(start)
        last = number_of(start)
        newest = max(self._batches, default=0)
        if newest > last:
            # Popped already, and not durable: the same batch again.
            return self._offset(newest)
        popped = self._pop() if self._left is None or self._left > 0 else []
        if not popped:
            return start
        if self._left is not None:
            fresh = (handle.retry is RetryKind.NONE for one in popped for handle in one.handles)
            self._left -= sum(fresh)
        batch = _Batch(last + 1, queues_of((one.topic, one.records, one.handles) for one in popped))
        for one in popped:
            batch.leases += self._ports.leases.hold(one.topic, one.handles)
        self._batches[batch.number] = batch
        return self._offset(batch.number)

    def settle(self, end: dict[str, Any]) -> None:
        """Everything up to `end` is durable: acknowledge it."""
        if end.get("run") != self._run:
            return
        done = [number for number in self._batches if number <= number_of(end)]
        leases = [lease for number in done for lease in self._batches.pop(number).leases]
        if leases or self._ports.leases.owes:
            self._ports.leases.acknowledge(leases)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[PopPartition]:
        """The tasks of a batch; none of one that another process popped."""
        if end.get("run") != self._run:
            if start != end:
                _log.warning(
                    "batch %d was popped before the restart: its messages come again when their "
                    "invisible time (%d ms) is over",
                    *(number_of(end), self._options.invisible_time_ms),
                )
            return []
        first = number_of(start) if start.get("run") == self._run else number_of(end) - 1
        queues: Sequence[PoppedQueue] = [
            popped
            for number, batch in sorted(self._batches.items())
            if first < number <= number_of(end)
            for popped in batch.queues
        ]
        wanted = self._options.min_partitions or 1
        return divided(queues, min(wanted, self._options.max_partitions or wanted))

    def close(self) -> None:
        """The query is over."""
        self._ports.leases.close()
        self._ports.close()

    def _pop(self) -> list[PoppedRecords]:
        """Pop the topics in turn until the limits, the time, or their end."""
        popped: list[PoppedRecords] = []
        rows, size = 0, 0
        began_ms = self._ports.now_ms()
        names = sorted(self._ports.poppers)
        empty = 0
        while (
            empty < len(names)
            and rows < self._rows_max
            and size < self._bytes_max
            and self._ports.now_ms() - began_ms < _BUSY_MS
        ):
            self._turn += 1
            topic = names[self._turn % len(names)]
            is_last = not popped and empty == len(names) - 1
            found = self._pop_one(topic, self._rows_max - rows, _WAIT_MS if is_last else 0)
            if found is None:
                empty += 1
                continue
            empty = 0
            popped.append(found)
            rows += len(found.handles)
            size += len(found.records)
        return popped

    def _pop_one(self, topic: str, count_max: int, wait_ms: int) -> PoppedRecords | None:
        try:
            found = self._ports.poppers[topic].receive_records(
                min(count_max, POP_COUNT_MAX), wait_ms=wait_ms
            )
        except RocketMQError as error:
            now_ms = self._ports.now_ms()
            is_start = not self._has_reached
            waited_ms = now_ms - self._began_ms
            # Whoever starts a query is waiting; one that runs waits for its brokers.
            if not error.retryable or (is_start and waited_ms > self._options.connect_timeout_ms):
                raise
            if self._warned_ms is None or now_ms - self._warned_ms >= _WARNING_MS:
                self._warned_ms = now_ms
                _log.warning("topic=%s cannot be popped now: %s", topic, error)
            return None
        self._has_reached = True
        return found

    def _offset(self, number: int) -> dict[str, Any]:
        return {"batch": number, "run": self._run if number else "", "version": _VERSION}


def number_of(offset: dict[str, Any]) -> int:
    """The number of the batch that ends there."""
    return int(offset.get("batch", 0))


def open_pop_driver(options: ReadOptions) -> PopDriver:
    """The driver of a new query. Nothing is connected before the first call."""
    settings = connection_settings(options)
    if settings.endpoints is not None:
        ports = _public_ports(options, settings)
        return PopDriver(options, ports, secrets.token_hex(8))
    clusters = [open_cluster(settings), open_cluster(settings)]

    def consumers(cluster: Cluster) -> dict[str, PopConsumer]:
        return {
            topic: PopConsumer(
                cluster,
                options.group or "",
                topic,
                subscription=options.subscription,
                invisible_ms=options.invisible_time_ms,
                init_mode=(
                    InitMode.MIN if options.starting_offsets == "earliest" else InitMode.MAX
                ),
                route_ms=options.discovery_interval_ms,
            )
            for topic in options.subscribe or ()
        }

    poppers, lenders = consumers(clusters[0]), consumers(clusters[1])
    leases = Leases(
        lambda topic: lenders[topic], invisible_ms=options.invisible_time_ms, now_ms=_now_ms
    )

    def backlog() -> int:
        count = 0
        for topic in options.subscribe or ():
            queues = clusters[0].queues(topic)
            progress = clusters[0].progress(options.group or "", queues)
            for queue, bounds in clusters[0].bounds(queues).items():
                if isinstance(bounds, Bounds):
                    done = progress.get(queue)
                    count += bounds.end - (done if isinstance(done, int) else bounds.start)
        return count

    def close() -> None:
        for cluster in clusters:
            cluster.close()

    ports = PopPorts(dict(poppers), leases, backlog, _now_ms, close)
    return PopDriver(options, ports, secrets.token_hex(8))


def _public_ports(options: ReadOptions, settings: ConnectionSettings) -> PopPorts:
    """The same over RocketMQ's public gRPC service: one client pops, another one lends."""
    topics = dict.fromkeys(options.subscribe or (), options.subscription)
    clients = [PublicPopClient(settings, options.group or "", topics) for _ in range(2)]

    def consumers(client: PublicPopClient) -> dict[str, PublicPopConsumer]:
        return {
            topic: PublicPopConsumer(
                client,
                topic,
                subscription=options.subscription,
                invisible_ms=options.invisible_time_ms,
                route_ms=options.discovery_interval_ms,
            )
            for topic in topics
        }

    poppers, lenders = consumers(clients[0]), consumers(clients[1])
    leases = Leases(
        lambda topic: lenders[topic], invisible_ms=options.invisible_time_ms, now_ms=_now_ms
    )

    def close() -> None:
        try:
            for popper in poppers.values():
                popper.close()
        finally:
            for client in clients:
                client.close()

    return PopPorts(dict(poppers), leases, lambda: None, _now_ms, close)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
