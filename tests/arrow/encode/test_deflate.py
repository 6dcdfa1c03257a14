"""Compressed bodies inflate to what they were, and are what Java's own decoders take."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_arrow.decode.inflate import INFLATED_SIZE_MAX, inflate
from rocketmq_arrow.encode.deflate import compress_bodies, compressed_flag

CODECS = ("lz4", "zlib", "zstd")
# The first array loads pandas, which is not an example's time.
pa.array([b""])


@given(st.sampled_from(CODECS), st.lists(st.binary(max_size=40).map(lambda b: b * 9), max_size=9))
def test_every_body_comes_back(codec, bodies):
    packed, is_packed = compress_bodies(pa.array(bodies, pa.binary()), codec, threshold=20)
    for row, body in enumerate(bodies):
        sent = packed[row].as_py()
        if is_packed is not None and is_packed[row]:
            assert len(sent) < len(body)
            assert len(body) >= 20
            assert inflate(sent, compressed_flag(codec), INFLATED_SIZE_MAX) == body
        else:
            assert sent == body


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_small_or_would_not_shrink_is_left_alone(codec):
    bodies = pa.array(["x" * 99, "x" * 100, "é" * 60])
    packed, is_packed = compress_bodies(bodies, codec, threshold=100)
    assert is_packed is not None
    assert is_packed.tolist() == [False, True, True]
    assert packed[0].as_py() == b"x" * 99
    assert inflate(packed[2].as_py(), compressed_flag(codec), 1_000) == "é".encode() * 60
    assert compress_bodies(bodies, codec, threshold=1_000) == (bodies, None)
    noise = pa.array([bytes(range(256))])
    assert compress_bodies(noise, codec, threshold=1) == (noise, None)


def test_lz4_frames_have_independent_blocks_and_blocks_that_do_not_shrink_stay():
    body = bytes(4 * 1024 * 1024) + bytes(range(256))
    packed, _ = compress_bodies(pa.array([body]), "lz4", threshold=4_096)
    frame = packed[0].as_py()
    # Magic, version 1 with independent blocks, blocks of 4 MiB, the sum of these two.
    assert frame[:7] == bytes.fromhex("04224d18 60 70 73")
    assert frame[-264:-260] == (0x80000000 | 256).to_bytes(4, "little")
    assert frame[-4:] == bytes(4)
    assert inflate(frame, compressed_flag("lz4"), INFLATED_SIZE_MAX) == body


def test_flags_are_those_of_the_protocol():
    assert [compressed_flag(codec) for codec in ("lz4", "zstd", "zlib")] == [0x101, 0x201, 0x301]
