"""A worker's partition: ranges of queues -> record batches. No loss goes unreported."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_rocketmq.errors import DataLossError, ReadOutageError, raise_or_skip_loss
from pyspark_rocketmq.planning.batch import EARLIEST, LATEST, BatchTask, QueueSlice
from pyspark_rocketmq.planning.topic_identity import QueueIdentity
from pyspark_rocketmq.read.plan import ReadPlan
from pyspark_rocketmq.read.recreated_topics import (
    Identities,
    drop_recreated_queues,
    find_recreated_queues,
)
from pyspark_rocketmq.read.typed_bodies import TypedBatches
from rocketmq_arrow.decode.decoder import Decoder
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.download.contract import RangeChunk
from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import Loss, LossReason
from rocketmq_client.retry import Retry
from rocketmq_client.retry_schedules import TASK
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import (
    BrokerError,
    ConnectError,
    RocketMQError,
    TopicNotFoundError,
    TransportError,
    raise_first,
)
from rocketmq_wire.model import Bounds, OffsetRange, QueueId
from rocketmq_wire.plural import plural
from rocketmq_wire.requests.offsets import Boundary

_log = logging.getLogger("pyspark_rocketmq")

# Connections, kept from task to task of one worker process. A reader takes one out and puts it back
# after it succeeded, so two readers never share one, and a connection left in the middle of an
# answer is never used again. Settings are compared by value: their text hides their keys.
_idle: dict[int, list[tuple[ConnectionSettings, Cluster]]] = {}
"""The connections of each process, those longest unused first."""
_IDLE_MAX: Final = 8
_NO_ADDRESSES: Final[Mapping[str, str]] = {}
_NO_IDENTITIES: Final[Identities] = {}
_frozen = (0, 0)
"""The process, and its number of modules when they were last frozen."""


def read_ranges(
    plan: ReadPlan,
    ranges: Sequence[OffsetRange],
    addresses: Mapping[str, str] = _NO_ADDRESSES,
    identities: Identities = _NO_IDENTITIES,
) -> Iterator[pa.RecordBatch]:
    """Read known ranges. Raises DataLossError, CorruptRecordError and the client's errors.

    `addresses` are those of the brokers as the driver knew them; a name server is asked first.
    """
    if ranges:
        with _kept_connection(plan.settings, addresses) as cluster:
            if identities and not plan.fail_on_data_loss:
                ranges = drop_recreated_queues(cluster, ranges, identities, fail_on_data_loss=False)
            yield from _RangeReader(plan, cluster, ranges, identities).batches()


def read_task(
    plan: ReadPlan, task: BatchTask, addresses: Mapping[str, str] = _NO_ADDRESSES
) -> Iterator[pa.RecordBatch]:
    """Read a task of a batch read, and resolve its late ends now."""
    with _kept_connection(plan.settings, addresses) as cluster:
        retry = Retry(plan.settings.over_outage(TASK), cluster.clock, log=_log)
        ranges = retry.call(lambda: resolve_task(plan, cluster, task))
        yield from _RangeReader(plan, cluster, ranges).batches()


@contextmanager
def _kept_connection(
    settings: ConnectionSettings, addresses: Mapping[str, str]
) -> Iterator[Cluster]:
    """Take a kept connection, or open one, and keep it for the next task if this one succeeds."""
    cluster = _take(settings)
    cluster.hint(addresses)
    is_done = False
    try:
        yield cluster
        is_done = True
    finally:
        _put_back(settings, cluster, is_reusable=is_done)
        _freeze_imports()


def resolve_task(plan: ReadPlan, cluster: Cluster, task: BatchTask) -> list[OffsetRange]:
    """Resolve late ends to numbers, and find the queues that the plan does not have."""
    unplanned = _unplanned_queues(cluster, task)
    late = [piece.queue for piece in task.slices if piece.start == EARLIEST or piece.end == LATEST]
    wanted = tuple(dict.fromkeys((*late, *unplanned)))
    bounds = raise_first(cluster.bounds(wanted)) if wanted else {}
    ranges: list[OffsetRange] = []
    for piece in task.slices:
        held = bounds.get(piece.queue)
        if held is not None and piece.end == LATEST:
            # An empty queue may be gone by now, but it cannot have become shorter.
            end = max(piece.end_planned, piece.start if held.end else 0)
            if held.end < end and held.is_current:
                loss = _shrinkage(cluster, piece, held, end)
                raise_or_skip_loss(loss, fail_on_data_loss=plan.fail_on_data_loss)
            elif held.end < end:
                # Only a replica answers, and it lags: the read waits for the rest.
                bounds[piece.queue] = replace(held, end=end)
        start = bounds[piece.queue].start if piece.start == EARLIEST else piece.start
        end = bounds[piece.queue].end if piece.end == LATEST else piece.end
        ranges.append(OffsetRange(piece.queue, min(start, end), end))
    for queue, start in _first_offsets(plan, cluster, unplanned, bounds).items():
        ranges.append(OffsetRange(queue, start, max(start, bounds[queue].end)))
    return [wanted for wanted in ranges if len(wanted)]


def _unplanned_queues(cluster: Cluster, task: BatchTask) -> list[QueueId]:
    unplanned: list[QueueId] = []
    for topic in task.unplanned_topics:
        try:
            found = cluster.queues(topic)
        except TopicNotFoundError as error:
            _check_deleted(cluster, [q for q in task.planned_queues if q.topic == topic], error)
            continue  # Its planned queues are judged as all others.
        unplanned += [queue for queue in found if queue not in task.planned_queues]
    return unplanned


def _check_deleted(cluster: Cluster, queues: Sequence[QueueId], error: RocketMQError) -> None:
    """Raise a retryable error unless a topic without a route was deleted.

    The routes of a broker's topics disappear with the broker, and come back after it.
    """
    for queue, held in cluster.bounds(queues).items():
        if isinstance(held, RocketMQError):
            raise held
        if held.end:
            raise ConnectError(queue.broker, f"topic {queue.topic} has no route yet") from error


def _shrinkage(cluster: Cluster, piece: QueueSlice, held: Bounds, end: int) -> Loss:
    """Find out why a queue ends before `end`, its end when the read was planned."""
    queue, start = piece.queue, max(piece.start, 0)
    # Brokers answer zeros for a queue, and for a topic, that they do not have.
    if held == Bounds(0, 0):
        gone = None if piece.start == EARLIEST else end - start
        try:
            is_listed = queue in cluster.queues(queue.topic)
        except TopicNotFoundError:
            return Loss(LossReason.TOPIC_DELETED, queue, start, None, None, gone)
        if not is_listed:
            return Loss(LossReason.QUEUE_REMOVED, queue, start, None, None, gone)
    first = max(start, held.end)
    return Loss(LossReason.TRUNCATED, queue, first, held.end, held, end - first)


def _first_offsets(
    plan: ReadPlan, cluster: Cluster, queues: Sequence[QueueId], bounds: dict[QueueId, Bounds]
) -> dict[QueueId, int]:
    if plan.start_ms is None or not queues:
        return {queue: bounds[queue].start for queue in queues}
    times = dict.fromkeys(queues, plan.start_ms)
    return raise_first(cluster.search_offsets(times, Boundary.LOWER))


class _RangeReader:
    def __init__(
        self,
        plan: ReadPlan,
        cluster: Cluster,
        ranges: Sequence[OffsetRange],
        identities: Identities = _NO_IDENTITIES,
    ) -> None:
        self._plan = plan
        self._cluster = cluster
        self._ranges = ranges
        self._identities = identities
        self._typed: TypedBatches | None = None
        if plan.typed is not None:
            self._typed = TypedBatches(plan.typed, secrets.token_hex(8))
        self._decoder = Decoder(plan.decode_options(plan.schema))

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for chunk in self._cluster.read_ranges(self._ranges, self._plan.spec):
                if chunk.loss is None:
                    yield from self._decoded(chunk)
                else:
                    raise_or_skip_loss(chunk.loss, fail_on_data_loss=self._plan.fail_on_data_loss)
            self._check_identities()
        except RangeLostError as error:
            # A recreated topic has other advice than the offsets that it does not have.
            with suppress(TransportError, BrokerError):
                self._check_identities()
            raise DataLossError(error.loss) from error
        except TransportError as error:
            if not error.retryable:
                raise
            raise ReadOutageError(error, self._plan.settings.outage_ms) from error
        if self._decoder.skipped:
            _log.warning(
                "%s skipped, since corruptMessages=skip",
                plural(self._decoder.skipped, "corrupt message"),
            )
        if self._typed is not None and self._typed.dropped:
            _log.warning(
                "%s with bad bodies dropped, since bodyMode=dropmalformed",
                plural(self._typed.dropped, "message"),
            )

    def _check_identities(self) -> None:
        """Find out whether all that was read is of the planned topic. Raises DataLossError."""
        if not self._identities:
            return
        plan = self._plan
        retry = Retry(plan.settings.over_outage(TASK), self._cluster.clock, log=_log)
        losses = retry.call(
            lambda: find_recreated_queues(self._cluster, self._ranges, self._identities)
        )
        for loss in losses.values():
            raise_or_skip_loss(loss, fail_on_data_loss=plan.fail_on_data_loss)

    def _decoded(self, chunk: RangeChunk) -> Iterator[pa.RecordBatch]:
        skipped_before, count = self._decoder.skipped, 0
        for batch in self._decoder.decode(
            chunk.queue, chunk.start, chunk.end, chunk.body, chunk.sizes
        ):
            count += batch.num_rows
            rows = batch if self._typed is None else self._typed.convert(chunk.queue, batch)
            if rows.num_rows:
                yield rows
        if chunk.expected_count is None:
            return  # Filtered: missing messages did not match.
        count += self._decoder.skipped - skipped_before
        gone = chunk.expected_count - count
        if gone > 0:
            loss = Loss(LossReason.HOLE, chunk.queue, chunk.start, chunk.end, None, gone)
            raise_or_skip_loss(loss, fail_on_data_loss=self._plan.fail_on_data_loss)


def _freeze_imports() -> None:
    """Hide the imported modules from the garbage collector.

    Spark's daemon collects the whole heap after every task, which would take 10 ms of each task for
    modules that live for ever. The first task imports most of them while it runs, so each task
    checks at its end.
    """
    global _frozen
    if _frozen != (os.getpid(), len(sys.modules)):
        gc.collect()
        gc.freeze()
        _frozen = (os.getpid(), len(sys.modules))


def _take(settings: ConnectionSettings) -> Cluster:
    idle = _idle.get(os.getpid(), [])
    for index in range(len(idle) - 1, -1, -1):
        if idle[index][0] == settings:
            return idle.pop(index)[1]
    return open_cluster(settings)


def _put_back(settings: ConnectionSettings, cluster: Cluster, *, is_reusable: bool) -> None:
    if not is_reusable:
        cluster.close()
        return
    idle = _idle.setdefault(os.getpid(), [])
    idle.append((settings, cluster))
    if len(idle) > _IDLE_MAX:
        idle.pop(0)[1].close()


# --- partitions: all that a task knows of its driver ----------------------------------------------


class RangePartition(InputPartition):
    """Known ranges of queues, read one after the other, and their brokers' addresses."""

    def __init__(
        self,
        ranges: tuple[OffsetRange, ...],
        addresses: Mapping[str, str],
        identities: Identities = _NO_IDENTITIES,
    ) -> None:
        super().__init__(ranges)
        self.ranges = ranges
        self.addresses = addresses
        self.identities = identities

    def counts(self) -> Iterator[tuple[QueueId, int]]:
        return ((piece.queue, len(piece)) for piece in self.ranges)

    def read(self, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
        return read_ranges(plan, self.ranges, self.addresses, self.identities)

    def __reduce__(self) -> tuple[Callable[..., RangePartition], tuple[object, ...]]:
        # Plain values: pickling the objects takes ten times as long for thousands of queues.
        plain = [(*piece.queue, piece.start, piece.end) for piece in self.ranges]
        identities = [self.identities.get(piece.queue) for piece in self.ranges]
        known = [None if identity is None else tuple(identity) for identity in identities]
        return _partition_of, (plain, self.addresses, known)


def _partition_of(
    plain: list[tuple[str, str, int, int, int]],
    addresses: Mapping[str, str],
    known: list[tuple[int | None, int | None] | None],
) -> RangePartition:
    ranges = tuple(
        OffsetRange(QueueId(topic, broker, index), start, end)
        for topic, broker, index, start, end in plain
    )
    identities = {
        piece.queue: QueueIdentity(*identity)
        for piece, identity in zip(ranges, known, strict=True)
        if identity is not None
    }
    return RangePartition(ranges, addresses, identities)


def range_partitions(
    tasks: Sequence[tuple[OffsetRange, ...]],
    addresses: Mapping[str, str],
    identities: Identities = _NO_IDENTITIES,
) -> list[RangePartition]:
    """Make a partition for each task, with the addresses that it needs.

    All partitions share `identities`; each carries those of its own queues to its worker.
    """
    # Most tasks read one queue: a dict for each took a third of the time of a plan of 10,000.
    alone = {broker: {broker: address} for broker, address in addresses.items()}
    return [
        RangePartition(
            task,
            alone.get(task[0].queue.broker, {})
            if len(task) == 1
            else _addresses_of((wanted.queue for wanted in task), addresses),
            identities,
        )
        for task in tasks
    ]


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause garbage collection while a plan is made, since none of it is garbage.

    That saves 10 of the 62 ms of a plan of 10,000 queues.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class TaskPartition(InputPartition):
    """A task of a batch read, which resolves its late ends when it reads."""

    def __init__(self, task: BatchTask, addresses: Mapping[str, str]) -> None:
        super().__init__(task)
        self.task = task
        self.addresses = _addresses_of((piece.queue for piece in task.slices), addresses)

    def read(self, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
        return read_task(plan, self.task, self.addresses)


def _addresses_of(queues: Iterable[QueueId], addresses: Mapping[str, str]) -> dict[str, str]:
    """Select the addresses of the queues' brokers: a new worker may reach no name server."""
    brokers = {queue.broker for queue in queues}
    return {broker: addresses[broker] for broker in sorted(brokers & addresses.keys())}
