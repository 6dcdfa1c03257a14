"""Row ids: the properties by which a row is recognised when it is sent again.

`PYSPARK_WRITE` is query/batch/partition. `PYSPARK_ROW` is the row's number in its partition and the
digest of its topic, keys, tags, properties, group and body, 16 hexadecimal digits each. A task that
runs again may see its rows in another order: only a row whose number and digest both repeat is a
replay.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rocketmq_arrow.encode.rows import map_texts, texts_of
from rocketmq_arrow.kernels.gather import Positions
from rocketmq_arrow.kernels.text_hashes import Hashes, content_hashes

_DIGITS: Final = 16
_PAIRS: Final = np.frombuffer(b"".join(b"%02x" % value for value in range(256)), np.uint16)


def digests(
    topic: str,
    bodies: pa.Array,
    keys: pa.Array | None,
    tags: pa.Array | None,
    properties: pa.Array | None,
    groups: pa.Array | None = None,
) -> Hashes:
    """64 bits of each row's content; empty counts as absent, as in messages."""
    name = np.frombuffer(topic.encode(), np.uint8)
    whole = np.array([0], np.int64), np.array([len(name)], np.int64)
    seed = content_hashes(name, *whole, np.zeros(1, np.uint64))
    hashes = np.repeat(seed, len(bodies))
    for number, column in enumerate((keys, tags, properties, groups)):
        if column is not None:
            texts = map_texts(column) if column is properties else texts_of(column)
            # The same text in another column is another message.
            hashes = content_hashes(*texts, hashes + np.uint64(number + 1))
    return content_hashes(*texts_of(bodies), hashes)


def row_id_values(rows: Positions, hashes: Hashes) -> pa.Array:
    numbers = np.empty((len(rows), 2), ">u8")
    numbers[:, 0] = rows
    numbers[:, 1] = hashes
    digits: NDArray[np.uint16] = _PAIRS[numbers.view(np.uint8)]
    ends = np.arange(0, 2 * _DIGITS * (len(rows) + 1), 2 * _DIGITS, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.string(), len(rows), buffers)
