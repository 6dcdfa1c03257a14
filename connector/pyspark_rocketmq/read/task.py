"""The worker's side: ranges of queues -> record batches, nothing lost without an error."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from pyspark_rocketmq.errors import DataLossError, ReadOutageError, raise_or_skip_loss
from pyspark_rocketmq.planning.batch import EARLIEST, LATEST, BatchTask, QueueSlice
from pyspark_rocketmq.read.typed_bodies import TypedBatches, TypedPlan
from rocketmq_arrow.decode.decoder import CorruptPolicy, DecodeOptions, Decoder
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_client.loss import Loss, LossReason, RangeLostError
from rocketmq_client.retry import TASK, Retry
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import (
    ConnectError,
    RocketMQError,
    TopicNotFoundError,
    TransportError,
)
from rocketmq_wire.filters.tags import TagExpression
from rocketmq_wire.model import Bounds, OffsetRange, QueueId
from rocketmq_wire.plural import plural
from rocketmq_wire.requests.offsets import Boundary

_log = logging.getLogger("pyspark_rocketmq")


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What every task of a read has in common; it travels to the workers pickled."""

    settings: ConnectionSettings
    spec: ReadSpec
    schema: pa.Schema
    corrupt: str
    check_crc: bool
    fail_on_data_loss: bool
    start_ms: int | None = None
    """Where queues that the plan did not know start: a time, or None for their first message."""
    typed: TypedPlan | None = None
    """How bodies are read, if their fields are the columns."""


# Connections, kept from task to task of one worker process. A reader takes one out and puts it back
# when it is done with it, so that two readers never share one, and one left in the middle of an
# answer is never used again. They are told apart by value: the text of settings hides their keys.
_idle: dict[int, list[tuple[ConnectionSettings, Cluster]]] = {}
"""By process, those longest unused first."""
_IDLE_MAX: Final = 8
_NOWHERE: Final[Mapping[str, str]] = {}
_frozen = (0, 0)
"""The process and how many modules it had when they were last frozen."""


def read_ranges(
    plan: ReadPlan, ranges: Sequence[OffsetRange], places: Mapping[str, str] = _NOWHERE
) -> Iterator[pa.RecordBatch]:
    """Read known ranges. Raises DataLossError, CorruptRecordError and what the client raises.

    At `places` the driver found the brokers; a name server is asked first.
    """
    if not ranges:
        return
    cluster = _take(plan.settings)
    cluster.hint(places)
    is_done = False
    try:
        yield from _RangeReader(plan, cluster, ranges).batches()
        is_done = True
    finally:
        _put_back(plan.settings, cluster, is_reusable=is_done)
        _freeze_imports()


def read_task(
    plan: ReadPlan, task: BatchTask, places: Mapping[str, str] = _NOWHERE
) -> Iterator[pa.RecordBatch]:
    """Read a task of a batch read, whose late ends become numbers only now."""
    cluster = _take(plan.settings)
    cluster.hint(places)
    is_done = False
    try:
        retry = Retry(plan.settings.over_outage(TASK), cluster.clock, log=_log)
        ranges = retry.call(lambda: resolve_task(plan, cluster, task))
        yield from _RangeReader(plan, cluster, ranges).batches()
        is_done = True
    finally:
        _put_back(plan.settings, cluster, is_reusable=is_done)
        _freeze_imports()


def resolve_task(plan: ReadPlan, cluster: Cluster, task: BatchTask) -> list[OffsetRange]:
    """Give late ends their numbers, and find the queues that the plan did not know."""
    unplanned = _unplanned_queues(cluster, task)
    late = [piece.queue for piece in task.slices if piece.start == EARLIEST or piece.end == LATEST]
    wanted = tuple(dict.fromkeys((*late, *unplanned)))
    bounds: dict[QueueId, Bounds] = {}
    for queue, answer in (cluster.bounds(wanted) if wanted else {}).items():
        if isinstance(answer, RocketMQError):
            raise answer
        bounds[queue] = answer
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
                # Only a replica is there, and it lags: the read waits for the rest.
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
            continue  # What was planned of it is judged as every planned queue is.
        unplanned += [queue for queue in found if queue not in task.planned_queues]
    return unplanned


def _check_deleted(cluster: Cluster, queues: Sequence[QueueId], error: RocketMQError) -> None:
    """Raise what is worth waiting for if a topic without a route is not deleted.

    A broker that is away takes its topics' routes with it, and brings them again after a while.
    """
    for queue, held in cluster.bounds(queues).items():
        if isinstance(held, RocketMQError):
            raise held
        if held.end:
            raise ConnectError(queue.broker, f"topic {queue.topic} has no route yet") from error


def _shrinkage(cluster: Cluster, piece: QueueSlice, held: Bounds, end: int) -> Loss:
    """Why a queue ends before `end`, where it ended when the read was planned."""
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
    starts: dict[QueueId, int] = {}
    times = dict.fromkeys(queues, plan.start_ms)
    for queue, answer in cluster.search_offsets(times, Boundary.LOWER).items():
        if isinstance(answer, RocketMQError):
            raise answer
        starts[queue] = answer
    return starts


class _RangeReader:
    """One pass over a task's ranges."""

    def __init__(self, plan: ReadPlan, cluster: Cluster, ranges: Sequence[OffsetRange]) -> None:
        subscription = plan.spec.subscription
        tags = None
        # What SQL92 selects only the broker judges: unlike tags it does so exactly.
        if subscription.kind == "TAG" and not subscription.selects_all:
            expression = TagExpression.parse(subscription.expression)
            tags = None if expression.matches_all else expression.tags
        self._plan, self._cluster, self._ranges = plan, cluster, ranges
        self._typed: TypedBatches | None = None
        if plan.typed is not None:
            self._typed = TypedBatches(plan.typed, secrets.token_hex(8))
        self._decoder = Decoder(
            DecodeOptions(
                schema=plan.schema,
                check_crc=plan.check_crc,
                corrupt=CorruptPolicy[plan.corrupt.upper()],
                tags=tags,
            )
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for chunk in self._cluster.read_ranges(self._ranges, self._plan.spec):
                if chunk.loss is None:
                    yield from self._decoded(chunk)
                else:
                    raise_or_skip_loss(chunk.loss, fail_on_data_loss=self._plan.fail_on_data_loss)
        except RangeLostError as error:
            raise DataLossError(error.loss) from error
        except TransportError as error:
            if not error.retryable:
                raise
            raise ReadOutageError(error, self._plan.settings.outage_ms) from error
        if self._decoder.skipped:
            _log.warning(
                "%s left out, since corruptMessages=skip",
                plural(self._decoder.skipped, "corrupt message"),
            )
        if self._typed is not None and self._typed.dropped:
            _log.warning(
                "%s with bad bodies left out, since bodyMode=dropmalformed",
                plural(self._typed.dropped, "message"),
            )

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
            return  # Filtered: what is missing did not match.
        count += self._decoder.skipped - skipped_before
        gone = chunk.expected_count - count
        if gone > 0:
            loss = Loss(LossReason.HOLE, chunk.queue, chunk.start, chunk.end, None, gone)
            raise_or_skip_loss(loss, fail_on_data_loss=self._plan.fail_on_data_loss)


def _freeze_imports() -> None:
    """Take what is imported by now out of the garbage collector's sight.

    Spark's daemon collects the whole heap after every task: 10 ms of each micro-batch's task would
    go into looking at modules that live for ever. The first task imports most of them while it
    runs: the transport, and what decoding needs. So each task looks at its end.
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
