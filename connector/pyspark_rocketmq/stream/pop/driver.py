"""The driver of a stream that pops (option consumeMode=pop).

    latest_offset(start)  acknowledges the batches up to `start`, which are durable, and pops the
                          next one; the driver keeps its records, and renews their messages
    partitions            hands out the records of a batch, as often as Spark asks
    a restart             knows no batch from before: if Spark plans one again it is empty, and its
                          messages come again when their invisible time is over

So every message is in a batch at least once. The offset is a batch number, and the process that
counted it.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, Protocol

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.stream.admission import WAIT_MS, PopAdmission
from pyspark_rocketmq.stream.driver import Offset
from pyspark_rocketmq.stream.pop.leases import Lease, Leases, PopGroup
from pyspark_rocketmq.stream.pop.partitions import (
    PopPartition,
    PoppedQueue,
    divide_queues,
    queues_of,
)
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.consumer.pop import PopConsumer, PoppedRecords
from rocketmq_client.consumer.public_pop import PublicPopClient, PublicPopConsumer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Bounds
from rocketmq_wire.records.handles import RetryKind
from rocketmq_wire.requests.pop import POP_COUNT_MAX, InitMode

_log = logging.getLogger("pyspark_rocketmq")

_BUSY_MS: Final = 500
"""How long a call keeps popping while messages come."""
_WARNING_MS: Final = 10_000
_VERSION: Final = 1


class Popper(Protocol):
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
    """The driver's access to brokers and clock; tests pass their own."""

    poppers: dict[str, Popper]
    leases: Leases
    backlog: Callable[[], int | None]
    """Returns how many messages wait in the topics' queues; None: the server does not say."""
    now_ms: Callable[[], int]
    close: Callable[[], None]


class PopDriver:
    """Pops one query's micro-batches; answers `StreamDriver`."""

    def __init__(self, options: ReadOptions, ports: PopPorts, run: str) -> None:
        self._options = options
        self._ports = ports
        self._run = run
        self._admission = PopAdmission(options)
        self._batches: dict[int, _Batch] = {}
        self._latest: Offset | None = None
        self._next_topic = 0
        self._began_ms = ports.now_ms()
        self._has_reached = False
        self._warned_ms: int | None = None

    def initial_offset(self) -> Offset:
        return self._offset(0)

    def prepare_available_now(self) -> None:
        """See `StreamDriver`. Without a backlog from the server the run ends when it is empty."""
        self._admission.available_now.freeze(self._ports.backlog())

    def latest_offset(
        self, start: Offset, *, is_durable: bool = True, is_unlimited: bool = False
    ) -> Offset:
        """See `StreamDriver`. Popped rows are in memory, so a batch always has limits."""
        del is_unlimited
        if is_durable:
            self.confirm(start)
        self._latest = self._next_end(start)
        return self._latest

    def _next_end(self, start: Offset) -> Offset:
        last = number_of(start)
        newest = max(self._batches, default=0)
        if newest > last:
            # Popped already, and not durable: the same batch again.
            return self._offset(newest)
        popped = self._pop() if self._admission.available_now.may_pop else []
        if not popped:
            return start
        self._admission.available_now.note_popped(
            sum(handle.retry is RetryKind.NONE for one in popped for handle in one.handles)
        )
        batch = _Batch(last + 1, queues_of((one.topic, one.records, one.handles) for one in popped))
        for one in popped:
            batch.leases += self._ports.leases.hold(one.topic, one.handles)
        self._batches[batch.number] = batch
        return self._offset(batch.number)

    def confirm(self, end: Offset) -> None:
        """See `StreamDriver`. Acknowledges every batch up to `end`."""
        if end.get("run") != self._run:
            return
        done = [number for number in self._batches if number <= number_of(end)]
        leases = [lease for number in done for lease in self._batches.pop(number).leases]
        if leases or self._ports.leases.owes:
            self._ports.leases.acknowledge(leases)

    def report_latest(self) -> Offset | None:
        return self._latest

    def partitions(
        self, start: Offset, end: Offset, *, is_logged: bool = False
    ) -> list[PopPartition]:
        """See `StreamDriver`. A batch that another process popped has no tasks."""
        del is_logged  # The offset itself says which process popped the batch.
        if self._latest is None:
            self._latest = end
        if end.get("run") != self._run:
            if start != end:
                _log.warning(
                    "batch %d was popped before the restart: its messages come again when their "
                    "invisible time (%d ms) is over",
                    number_of(end),
                    self._options.consumer.invisible_time_ms,
                )
            return []
        first = number_of(start) if start.get("run") == self._run else number_of(end) - 1
        queues = [
            popped
            for number, batch in sorted(self._batches.items())
            if first < number <= number_of(end)
            for popped in batch.queues
        ]
        wanted = self._options.min_partitions or 1
        return divide_queues(queues, min(wanted, self._options.max_partitions or wanted))

    def close(self) -> None:
        self._ports.leases.close()
        self._ports.close()

    def _pop(self) -> list[PoppedRecords]:
        """Pop one topic after the other until the limits, the time, or no topic has messages."""
        popped: list[PoppedRecords] = []
        rows, size = 0, 0
        began_ms = self._ports.now_ms()
        names = sorted(self._ports.poppers)
        empty = 0
        while (
            empty < len(names)
            and (room := self._admission.room(rows, size))
            and self._ports.now_ms() - began_ms < _BUSY_MS
        ):
            self._next_topic += 1
            topic = names[self._next_topic % len(names)]
            is_last = not popped and empty == len(names) - 1
            found = self._pop_one(topic, room, WAIT_MS if is_last else 0)
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
            # The start of a query fails soon; a running query waits for its brokers.
            if not error.retryable or (
                is_start and waited_ms > self._options.connection.connect_timeout_ms
            ):
                raise
            if self._warned_ms is None or now_ms - self._warned_ms >= _WARNING_MS:
                self._warned_ms = now_ms
                _log.warning("topic=%s cannot be popped now: %s", topic, error)
            return None
        self._has_reached = True
        return found

    def _offset(self, number: int) -> Offset:
        return {"batch": number, "run": self._run if number else "", "version": _VERSION}


def number_of(offset: Offset) -> int:
    return int(offset.get("batch", 0))


def open_pop_driver(options: ReadOptions) -> PopDriver:
    """Open the driver of a new query. It connects at the first call of Spark."""
    settings = connection_settings(options.connection)
    ports = _remoting_ports if settings.endpoints is None else _public_ports
    return PopDriver(options, ports(options, settings), secrets.token_hex(8))


def _remoting_ports(options: ReadOptions, settings: ConnectionSettings) -> PopPorts:
    """Pop and renew over RocketMQ's TCP protocol, on a connection each."""
    opened = ExitStack()
    clusters = [opened.enter_context(open_cluster(settings)) for _ in range(2)]
    topics = options.subscribe or ()
    group = options.consumer.group or ""
    init_mode = InitMode.MIN if options.starting_offsets == "earliest" else InitMode.MAX

    def consumers(cluster: Cluster) -> dict[str, PopConsumer]:
        return {
            topic: PopConsumer(
                cluster,
                group,
                topic,
                subscription=options.subscription,
                invisible_ms=options.consumer.invisible_time_ms,
                init_mode=init_mode,
                route_ms=options.discovery_interval_ms,
            )
            for topic in topics
        }

    def backlog() -> int:
        count = 0
        for topic in topics:
            queues = clusters[0].queues(topic)
            committed = clusters[0].committed_offsets(group, queues)
            for queue, bounds in clusters[0].bounds(queues).items():
                if isinstance(bounds, Bounds):
                    offset = committed.get(queue)
                    count += bounds.end - (offset if isinstance(offset, int) else bounds.start)
        return count

    poppers, groups = consumers(clusters[0]), consumers(clusters[1])
    return PopPorts(dict(poppers), _leases(options, groups), backlog, _now_ms, opened.close)


def _public_ports(options: ReadOptions, settings: ConnectionSettings) -> PopPorts:
    """Pop and renew over RocketMQ's public gRPC service, with a client each."""
    topics = dict.fromkeys(options.subscribe or (), options.subscription)
    clients = [PublicPopClient(settings, options.consumer.group or "", topics) for _ in range(2)]

    def consumers(client: PublicPopClient) -> dict[str, PublicPopConsumer]:
        return {
            topic: PublicPopConsumer(
                client,
                topic,
                subscription=options.subscription,
                invisible_ms=options.consumer.invisible_time_ms,
                route_ms=options.discovery_interval_ms,
            )
            for topic in topics
        }

    poppers, groups = consumers(clients[0]), consumers(clients[1])
    opened = ExitStack()
    for client in clients:
        opened.callback(client.close)
    for popper in poppers.values():
        opened.callback(popper.close)
    return PopPorts(dict(poppers), _leases(options, groups), lambda: None, _now_ms, opened.close)


def _leases(options: ReadOptions, groups: Mapping[str, PopGroup]) -> Leases:
    return Leases(
        groups.__getitem__, invisible_ms=options.consumer.invisible_time_ms, now_ms=_now_ms
    )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
