"""Inflates compressed bodies."""

from __future__ import annotations

import zlib
from typing import Final

from rocketmq_arrow.kernels.lazy_pyarrow import pa
from rocketmq_wire.errors import InflateError
from rocketmq_wire.records.record import (
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    FLAG_COMPRESSION_MASK,
    GZIP_MAGIC,
)

# A producer refuses bodies over 4 MiB before it compresses them; brokers may be set to take more.
INFLATED_SIZE_MAX: Final = 64 * 1024 * 1024

_CODECS: Final = {COMPRESSION_LZ4: "lz4", COMPRESSION_ZSTD: "zstd", COMPRESSION_ZLIB: "zlib"}
# Where the type bits are 0 the first bytes tell: gRPC proxies store gzip without type bits.
_SNIFFED: Final = {
    GZIP_MAGIC: "gzip",
    b"\x04\x22\x4d\x18": "lz4",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_READ_SIZE: Final = 256 * 1024


def inflate(body: bytes, sys_flag: int, size_max: int) -> bytes:
    """A compressed body as the producer had it.

    Raises InflateError: the type is unknown, the stream damaged, or it yields over `size_max`.
    """
    codec = _codec_of(body, sys_flag)
    if codec in ("zlib", "gzip"):
        return _inflate_deflated(body, codec, size_max)
    return _inflate_by_arrow(body, codec, size_max)


def _codec_of(body: bytes, sys_flag: int) -> str:
    kind = sys_flag & FLAG_COMPRESSION_MASK
    if kind == 0:
        for start, codec in _SNIFFED.items():
            if body.startswith(start):
                return codec
        if body[:1] == b"\x78":
            return "zlib"
        raise InflateError("the body is marked as compressed, but by no known method")
    if kind not in _CODECS:
        raise InflateError(f"unknown compression type {kind >> 8}")
    return _CODECS[kind]


def _inflate_deflated(body: bytes, codec: str, size_max: int) -> bytes:
    parts = []
    size = 0
    while True:
        stream = zlib.decompressobj(zlib.MAX_WBITS + (16 if codec == "gzip" else 0))
        try:
            # One byte more than allowed is enough to know; a bomb never unfolds.
            parts.append(stream.decompress(body, size_max + 1 - size))
        except zlib.error as error:
            raise InflateError(f"the body does not decompress as {codec}: {error}") from error
        size += len(parts[-1])
        if size > size_max:
            raise InflateError(f"the body decompresses to more than {size_max} bytes")
        if not stream.eof:
            raise InflateError(f"the body is a torn {codec} stream")
        body = stream.unused_data
        # Gzip members may follow each other; behind a zlib stream Java reads nothing.
        if codec != "gzip" or not body.startswith(GZIP_MAGIC):
            return b"".join(parts)


def _inflate_by_arrow(body: bytes, codec: str, size_max: int) -> bytes:
    parts = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), codec) as stream:
            while part := stream.read(min(_READ_SIZE, size_max + 1 - size)):
                parts.append(part)
                size += len(part)
                if size > size_max:
                    raise InflateError(f"the body decompresses to more than {size_max} bytes")
    except OSError as error:
        raise InflateError(f"the body does not decompress as {codec}: {error}") from error
    return b"".join(parts)
