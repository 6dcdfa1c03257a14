"""Batch bodies: the golden entry, every cut, hostile lengths."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import CorruptRecordError, LocalProtocolError
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.records.properties import encode_properties
from support.batch_entries import decode_batch

GOLDEN_BYTES = bytes.fromhex(
    "0000002C00000000000000000000000100000002686900145741495401747275650254414753015461674102"
)
GOLDEN = BatchEntry(1, b"hi", encode_properties({"WAIT": "true", "TAGS": "TagA"}))

entries = st.builds(
    BatchEntry, st.integers(-(2**31), 2**31 - 1), st.binary(max_size=50), st.binary(max_size=50)
)


def test_the_golden_entry_is_written_and_read():
    assert encode_batch([GOLDEN]) == GOLDEN_BYTES
    assert decode_batch(GOLDEN_BYTES) == [GOLDEN]


def test_no_entries_are_an_empty_body():
    assert encode_batch([]) == b""
    assert decode_batch(b"") == []


def test_magic_and_checksum_of_an_entry_are_not_read():
    buffer = bytearray(GOLDEN_BYTES)
    buffer[4:12] = b"\xff" * 8
    assert decode_batch(buffer) == [GOLDEN]


@pytest.mark.parametrize("cut", range(1, len(GOLDEN_BYTES)))
def test_a_batch_cut_inside_its_second_entry_is_refused(cut: int):
    with pytest.raises(CorruptRecordError) as caught:
        decode_batch(GOLDEN_BYTES + GOLDEN_BYTES[:cut])
    assert caught.value.position == len(GOLDEN_BYTES)


@pytest.mark.parametrize(
    ("position", "layout", "value"),
    [
        (0, ">i", 21),
        (0, ">i", 0),
        (0, ">i", -1),
        (0, ">i", 43),
        (0, ">i", 45),
        (0, ">i", 2**31 - 1),
        (16, ">i", -1),
        (16, ">i", 23),
        (16, ">i", 2**31 - 1),
        (22, ">h", -1),
        (22, ">h", 19),
        (22, ">h", 21),
        (22, ">h", 32_767),
    ],
)
def test_a_hostile_length_is_refused(position: int, layout: str, value: int):
    buffer = bytearray(GOLDEN_BYTES)
    struct.pack_into(layout, buffer, position, value)
    with pytest.raises(CorruptRecordError, match="batch"):
        decode_batch(buffer)


@pytest.mark.parametrize("entry", [BatchEntry(2**31, b""), BatchEntry(0, b"", bytes(32_768))])
def test_what_does_not_fit_an_entry_is_refused(entry: BatchEntry):
    with pytest.raises(LocalProtocolError):
        encode_batch([entry])


@given(st.lists(entries, max_size=6))
def test_batches_survive_a_round_trip(batch: list[BatchEntry]):
    assert decode_batch(memoryview(encode_batch(batch))) == batch


@given(st.binary(max_size=120))
def test_no_bytes_raise_anything_else(body: bytes):
    try:
        batch = decode_batch(body)
    except CorruptRecordError:
        return
    assert sum(22 + len(entry.body) + len(entry.properties) for entry in batch) == len(body)
