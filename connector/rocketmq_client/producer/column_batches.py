"""Columns of messages that are sent in one request, and their unique keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from rocketmq_arrow.encode.rows import OutgoingRows
from rocketmq_arrow.kernels.lazy_pyarrow import pa
from rocketmq_wire.errors import LocalProtocolError
from rocketmq_wire.records.properties import encode_properties

# The unique keys of one request differ by a counter of 16 bits.
ROWS_MAX: Final = 65_536
_KEY_SIZE: Final = 32
_COUNTER_DIGITS: Final = 4
_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
# Every message of a batch needs it: brokers refuse batches that mix values.
_SHARED: Final = encode_properties({"WAIT": "true"})


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """Messages of one topic as columns of equal length. A null or empty value is no value."""

    bodies: pa.Array
    tags: pa.Array | None = None
    keys: pa.Array | None = None
    properties: pa.Array | None = None
    """A map column of text to text."""

    def __post_init__(self) -> None:
        if not 0 < len(self.bodies) <= ROWS_MAX:
            raise LocalProtocolError(
                f"one request takes 1 to {ROWS_MAX} messages, not {len(self.bodies)}"
            )

    def rows(self, first_key: str) -> OutgoingRows:
        """Return the messages with unique keys that count on from `first_key`."""
        keys = count_on(first_key, len(self.bodies))
        return OutgoingRows(self.bodies, self.tags, self.keys, self.properties, keys, _SHARED)


def count_on(first_key: str, count: int) -> pa.Array:
    """Return unique keys whose last four hexadecimal digits count on from the first."""
    first = int(first_key[-_COUNTER_DIGITS:], 16)
    counters = np.arange(first, first + count) & (ROWS_MAX - 1)
    texts = np.empty((count, _KEY_SIZE), np.uint8)
    texts[:] = np.frombuffer(first_key.encode("ascii"), np.uint8)
    for digit in range(_COUNTER_DIGITS):
        texts[:, _KEY_SIZE - 1 - digit] = _HEX[counters >> 4 * digit & 15]
    ends = np.arange(0, _KEY_SIZE * (count + 1), _KEY_SIZE, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(texts)]
    return pa.Array.from_buffers(pa.string(), count, buffers)
