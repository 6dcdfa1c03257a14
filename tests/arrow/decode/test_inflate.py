"""Deflated bodies: members, limits, cut and damaged streams; see `test_decoder` for all codecs."""

from __future__ import annotations

import gzip
import zlib

import pytest

from rocketmq_arrow.decode.inflate import INFLATED_SIZE_MAX, inflate
from rocketmq_wire.errors import InflateError
from rocketmq_wire.records.record import COMPRESSION_ZLIB, FLAG_COMPRESSED


def inflated(body: bytes, sys_flag: int = FLAG_COMPRESSED) -> bytes:
    return inflate(body, sys_flag, INFLATED_SIZE_MAX)


def test_zlib_and_gzip_bodies_are_inflated() -> None:
    body = b"hello " * 1000
    assert inflated(zlib.compress(body)) == body
    assert inflated(zlib.compress(body), FLAG_COMPRESSED | COMPRESSION_ZLIB) == body
    assert inflated(gzip.compress(body)) == body


def test_gzip_members_are_joined() -> None:
    assert inflated(gzip.compress(b"a") + gzip.compress(b"b")) == b"ab"


def test_a_body_that_inflates_over_the_limit_is_refused_without_inflating_it() -> None:
    bomb = zlib.compress(bytes(10_000_000))
    assert len(inflate(bomb, FLAG_COMPRESSED, 10_000_000)) == 10_000_000
    with pytest.raises(InflateError, match="more than 9999999"):
        inflate(bomb, FLAG_COMPRESSED, 9_999_999)
    with pytest.raises(InflateError, match="more than 15"):
        inflate(gzip.compress(bytes(8)) * 2, FLAG_COMPRESSED, 15)


@pytest.mark.parametrize("cut", [2, 5, -5, -1])
def test_a_cut_stream_is_refused(cut: int) -> None:
    with pytest.raises(InflateError, match="torn"):
        inflated(zlib.compress(b"hello" * 100)[:cut])


def test_a_damaged_stream_is_refused() -> None:
    stream = bytearray(zlib.compress(b"hello" * 100))
    stream[-1] ^= 1
    with pytest.raises(InflateError, match="does not decompress"):
        inflated(bytes(stream))


@pytest.mark.parametrize("body", [b"", b"plain text"])
def test_a_body_flagged_as_compressed_in_no_known_format_is_refused(body: bytes) -> None:
    with pytest.raises(InflateError, match="no known method"):
        inflated(body)


def test_an_unknown_compression_type_is_refused() -> None:
    with pytest.raises(InflateError, match="type 4"):
        inflated(zlib.compress(b"x"), FLAG_COMPRESSED | 0x400)
