"""Which queue each row goes to: by number, by message group, or any. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rocketmq_arrow.kernels.gather import Mask, Positions
from rocketmq_arrow.kernels.numpy_arrays import mask_of, text_array
from rocketmq_arrow.kernels.text_hashes import sip_hashes
from rocketmq_wire.errors import LocalProtocolError, RowRefusedError
from rocketmq_wire.model import QueueId

ANY: Final = -1


def assign_queues(
    queues: Sequence[QueueId],
    count: int,
    queue_ids: pa.Array | None,
    brokers: pa.Array | None,
    groups: pa.Array | None,
    group_queues_count: int | None = None,
) -> Positions:
    """The index of each row's queue, or ANY. Raises RowRefusedError or LocalProtocolError.

    Message groups go to the first `group_queues_count` queues (None: to all).
    """
    queue_indices = np.full(count, ANY, np.int64)
    if groups is not None:
        rows = np.flatnonzero(has_text(groups))
        queue_indices[rows] = sip_hashes(groups.take(indices_of(rows))) % (
            group_queues_count or len(queues)
        )
    is_given = np.zeros(count, np.bool_) if queue_ids is None else mask_of(queue_ids.is_valid())
    if brokers is not None:
        is_half = mask_of(brokers.is_valid()) & ~is_given
        if is_half.any():
            raise RowRefusedError(
                int(np.argmax(is_half)), "has a brokerName and no queueId: it takes both, or none"
            )
    if queue_ids is None:
        return queue_indices
    twice = is_given & (queue_indices != ANY)
    if twice.any():
        raise RowRefusedError(
            int(np.argmax(twice)), "has a messageGroup, which picks the queue, and a queueId"
        )
    rows = np.flatnonzero(is_given)
    wanted = numbers_of(queue_ids)[rows]
    queue_indices[rows] = _named(queues, rows, wanted, brokers)
    return queue_indices


def _named(
    queues: Sequence[QueueId], rows: Positions, wanted: Positions, brokers: pa.Array | None
) -> Positions:
    topic = queues[0].topic
    names = sorted({queue.broker for queue in queues})
    if brokers is None:
        if len(names) > 1 and len(rows):
            raise LocalProtocolError(
                f"a queueId alone does not name a queue of {topic}, which is on the brokers "
                f"{', '.join(names)}: add a column brokerName"
            )
        chosen = np.zeros(len(rows), np.int64)
    else:
        of_rows = brokers.take(indices_of(rows))
        if of_rows.null_count and len(names) > 1:
            at = int(np.argmax(mask_of(of_rows.is_null())))
            raise RowRefusedError(
                int(rows[at]),
                f"has a queueId and no brokerName, and {topic} is on {', '.join(names)}",
            )
        of_rows = pc.fill_null(of_rows, names[0])
        found = pc.index_in(of_rows, value_set=text_array(names))
        chosen = numbers_of(pc.fill_null(found, ANY))
    size = max(queue.index for queue in queues) + 1
    # The last row is for unknown brokers, the last column for unknown queues.
    table = np.full((len(names) + 1, size + 1), ANY, np.int64)
    for queue_index, queue in enumerate(queues):
        table[names.index(queue.broker), queue.index] = queue_index
    is_inside = (wanted >= 0) & (wanted < size)
    indices: Positions = table[chosen, np.where(is_inside, wanted, size)]
    if (indices == ANY).any():
        at = int(np.argmax(indices == ANY))
        raise RowRefusedError(
            int(rows[at]),
            f"names queue {wanted[at]}, which {topic} does not have for writing: "
            f"it has 0 to {size - 1} on {', '.join(names)}",
        )
    return indices


def has_text(column: pa.Array) -> Mask:
    return mask_of(pc.fill_null(pc.greater(pc.binary_length(column), 0), False))


def numbers_of(column: pa.Array) -> Positions:
    """Integers as int64; a null is any number."""
    column = column.cast(pa.int64())
    if not len(column):
        return np.empty(0, np.int64)
    return np.frombuffer(column.buffers()[1], np.int64, len(column), 8 * column.offset)


def indices_of(rows: NDArray[np.int64]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(rows)])
