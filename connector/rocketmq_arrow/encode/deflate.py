"""Compresses bodies as producers do, and says which: the counterpart of `decode.inflate`.

A body stays as it is when it is small, or would not shrink. LZ4 is a frame of independent blocks,
since Java's LZ4 reads no others: `04224D18 60 70 73`, blocks of up to 4 MiB with their sizes, 0.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_arrow.kernels.gather import Mask
from rocketmq_arrow.kernels.numpy_arrays import array_of, mask_of, string_array
from rocketmq_wire.records.record import (
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    FLAG_COMPRESSED,
)

# The level of RocketMQ's own producers.
_ZLIB_LEVEL: Final = 5
# Version 1, independent blocks of 4 MiB at most, no checksums; the last byte sums up those two.
_LZ4_HEAD: Final = bytes.fromhex("04224d18607073")
_LZ4_BLOCK: Final = 4 * 1024 * 1024
_LZ4_STORED: Final = 0x8000_0000
_LZ4_RAW: Final = pa.Codec("lz4_raw")
_ZSTD: Final = pa.Codec("zstd")


def _zlib(body: bytes) -> bytes:
    return zlib.compress(body, _ZLIB_LEVEL)


def _lz4(body: bytes) -> bytes:
    parts = [_LZ4_HEAD]
    for start in range(0, len(body), _LZ4_BLOCK):
        block = body[start : start + _LZ4_BLOCK]
        packed: bytes = _LZ4_RAW.compress(block, asbytes=True)
        if len(packed) < len(block):
            parts += [len(packed).to_bytes(4, "little"), packed]
        else:
            parts += [(len(block) | _LZ4_STORED).to_bytes(4, "little"), block]
    return b"".join([*parts, bytes(4)])


def _zstd(body: bytes) -> bytes:
    packed: bytes = _ZSTD.compress(body, asbytes=True)
    return packed


_CODECS: Final[dict[str, tuple[int, Callable[[bytes], bytes]]]] = {
    "lz4": (COMPRESSION_LZ4, _lz4),
    "zstd": (COMPRESSION_ZSTD, _zstd),
    "zlib": (COMPRESSION_ZLIB, _zlib),
}


def compressed_flag(codec: str) -> int:
    """The sysFlag of a body that is compressed so; readers before 4.9.4 take all for zlib."""
    return FLAG_COMPRESSED | _CODECS[codec][0]


def compress_bodies(bodies: pa.Array, codec: str, threshold: int) -> tuple[pa.Array, Mask | None]:
    """The bodies with the large ones compressed, and which they are; None: none is."""
    is_large = pc.fill_null(pc.greater_equal(pc.binary_length(bodies), threshold), False)
    large = np.flatnonzero(mask_of(is_large))
    if not len(large):
        return bodies, None
    compress = _CODECS[codec][1]
    binary = bodies.cast(pa.binary())
    packed: dict[int, bytes] = {}
    for row in large.tolist():
        body = binary[row].as_py()
        smaller = compress(body)
        if len(smaller) < len(body):
            packed[row] = smaller
    if not packed:
        return bodies, None
    is_packed: Mask = np.zeros(len(bodies), bool)
    is_packed[list(packed)] = True
    smaller_bodies = string_array(list(packed.values()), pa.binary())
    return pc.replace_with_mask(binary, array_of(is_packed), smaller_bodies), is_packed
