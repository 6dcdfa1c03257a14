"""The partitions that carry popped records to a worker, and their record batches there.

The stream process has popped the messages: Spark carries the records themselves to the tasks, so a
task that runs again reads the same ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from pyspark_rocketmq.read.plan import ReadPlan
from rocketmq_arrow.decode.decoder import Decoder
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.handles import ReceiptHandle

_HANDLE: Final = "receiptHandle"
_OFFSET: Final = "queueOffset"
_SIZE: Final = 4


@dataclass(frozen=True, slots=True)
class PoppedQueue:
    """Records of one stored queue, in the order of their offsets, with their handles."""

    queue: QueueId
    """The topic popped; for a retry topic the queue index is the retry topic's."""
    body: bytes
    handles: tuple[tuple[str, tuple[int, ...]], ...]
    """(a handle without its last field, the offsets that it is for)"""

    @property
    def offsets(self) -> list[int]:
        """The offsets of all records, in the order of the handles."""
        return [offset for _, some in self.handles for offset in some]


class PopPartition(InputPartition):
    def __init__(self, queues: tuple[PoppedQueue, ...]) -> None:
        super().__init__(queues)
        self.queues = queues

    def counts(self) -> Iterator[tuple[QueueId, int]]:
        for popped in self.queues:
            yield popped.queue, len(popped.offsets)

    def read(self, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
        return read_popped(plan, self)


@dataclass(slots=True)
class _Gathered:
    pieces: list[tuple[int, bytes]] = field(default_factory=list)
    handles: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))


def queues_of(
    popped: Iterable[tuple[str, bytes, Sequence[ReceiptHandle]]],
) -> tuple[PoppedQueue, ...]:
    """Join (topic popped, records, their handles) of many pops by queue.

    Raises CorruptRecordError if records and handles do not match.
    """
    gathered: dict[tuple[str, str, int, str], _Gathered] = defaultdict(_Gathered)
    for topic, records, handles in popped:
        position = 0
        for handle in handles:
            size = int.from_bytes(records[position : position + _SIZE], "big")
            end = position + size
            if size < _SIZE or end > len(records):
                raise CorruptRecordError(f"pop from {handle.broker}", position, "is cut off")
            one = gathered[topic, handle.broker, handle.queue_index, handle.retry.value]
            one.pieces.append((handle.offset, records[position:end]))
            one.handles[_head_of(handle)].append(handle.offset)
            position = end
    return tuple(
        PoppedQueue(
            QueueId(topic, broker, index),
            b"".join(record for _, record in sorted(one.pieces)),
            tuple((head, tuple(offsets)) for head, offsets in one.handles.items()),
        )
        for (topic, broker, index, _), one in gathered.items()
    )


def read_popped(plan: ReadPlan, partition: PopPartition) -> Iterator[pa.RecordBatch]:
    """Decode the rows of a task. Raises CorruptRecordError."""
    wanted = plan.schema
    inner = wanted
    if _HANDLE in wanted.names and _OFFSET not in wanted.names:
        inner = wanted.append(pa.field(_OFFSET, pa.int64()))
    for popped in partition.queues:
        offsets = popped.offsets
        decoder = Decoder(plan.decode_options(inner))
        for batch in decoder.decode(popped.queue, min(offsets), max(offsets) + 1, popped.body):
            if batch.num_rows:
                yield _with_handles(batch, wanted, popped) if _HANDLE in wanted.names else batch


def _with_handles(batch: pa.RecordBatch, wanted: pa.Schema, popped: PoppedQueue) -> pa.RecordBatch:
    offsets = batch.column(_OFFSET)
    known = np.array(popped.offsets, np.int64)
    heads = np.repeat(np.arange(len(popped.handles)), [len(some) for _, some in popped.handles])
    order = np.argsort(known)
    rows = order[np.searchsorted(known[order], offsets.to_numpy())]
    head = pa.array([head for head, _ in popped.handles]).take(pa.array(heads[rows]))
    handles = pc.binary_join_element_wise(head, offsets.cast(pa.string()), " ")
    columns = [handles if name == _HANDLE else batch.column(name) for name in wanted.names]
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _head_of(handle: ReceiptHandle) -> str:
    return handle._replace(offset=0, position=None).text()[:-2]


def divide_queues(queues: Sequence[PoppedQueue], count: int) -> list[PopPartition]:
    """Divide queues into at most `count` tasks, of equal bytes as far as whole queues allow."""
    shares: list[list[PoppedQueue]] = [[] for _ in range(max(count, 1))]
    sizes = [0] * len(shares)
    for popped in sorted(queues, key=lambda one: len(one.body), reverse=True):
        least = sizes.index(min(sizes))
        shares[least].append(popped)
        sizes[least] += len(popped.body)
    return [PopPartition(tuple(share)) for share in shares if share]
