"""Numpy arrays and lists <-> Arrow arrays, without waking pandas.

`pa.array`, `pa.scalar` and `Array.to_numpy` import pandas wherever it is installed. Neither Spark's
workers nor the broker do so by themselves: it took 1.3 s and 50 MB of the first batch of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rocketmq_arrow.kernels.lazy_pyarrow import pa

# From here on `to_pylist` makes byte strings as fast as `to_numpy`: 18 ns each, not hundreds.
_QUICK_LISTS_VERSION: Final = 25


def array_of(values: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """An Arrow array over the values of a numpy array; null where `missing`."""
    validity = None if missing is None else _bits(~missing)
    if values.dtype == np.bool_:
        return pa.Array.from_buffers(pa.bool_(), len(values), [validity, _bits(values)])
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype),
        len(values),
        [validity, pa.py_buffer(np.ascontiguousarray(values))],
    )


def text_array(texts: Sequence[str | None]) -> pa.StringArray:
    """An Arrow array of a few texts."""
    return string_array(texts, pa.string())


def string_array(values: Sequence[bytes | str | None], kind: pa.DataType) -> pa.Array:
    """A text or binary array of a few values."""
    encoded = [
        value if isinstance(value, bytes) else (value or "").encode("utf-8", "replace")
        for value in values
    ]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in encoded], out=offsets[1:])
    missing = np.array([value is None for value in values], np.bool_)
    validity = _bits(~missing) if missing.any() else None
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def mask_of(array: pa.BooleanArray) -> NDArray[np.bool_]:
    """The values of a boolean array without nulls."""
    assert not array.null_count
    _, bits = array.buffers()
    unpacked = np.unpackbits(
        np.frombuffer(bits, np.uint8), count=array.offset + len(array), bitorder="little"
    )
    return unpacked[array.offset :].astype(np.bool_)


def integers_of(array: pa.Array) -> NDArray[np.signedinteger]:
    """The values of an array of signed integers without nulls."""
    assert not array.null_count
    size = array.type.byte_width
    return np.frombuffer(array.buffers()[1], f"i{size}", len(array), size * array.offset)


def byte_strings(array: pa.BinaryArray) -> list[bytes]:
    """The values of a binary array as Python objects."""
    if _has_quick_lists():
        values: list[bytes] = array.to_pylist()
        return values
    objects: list[bytes] = array.to_numpy(zero_copy_only=False).tolist()
    return objects


@cache
def _has_quick_lists() -> bool:
    return int(pa.__version__.partition(".")[0]) >= _QUICK_LISTS_VERSION


def _bits(values: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))
