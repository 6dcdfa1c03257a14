"""Decoding takes memory for a chunk or a few, however much was received."""

from __future__ import annotations

import struct
import tracemalloc

import pyarrow as pa
import pytest

from rocketmq_arrow.decode.decoder import CHUNK_SIZE_MAX, DecodeOptions, Decoder
from rocketmq_arrow.source_columns import COLUMNS, arrow_schema
from rocketmq_wire.model import QueueId
from support.records import make_records

QUEUE = QueueId("orders", "broker-a", 0)
_OFFSET_AT = 20


def body_of(count: int, body_size: int) -> tuple[bytes, bytes]:
    """Records at ascending offsets, with the sizes that a transport sends along."""
    record, _ = make_records(1, body_size)
    offset = struct.Struct(">q")
    data = bytearray(record * count)
    for row in range(count):
        offset.pack_into(data, row * len(record) + _OFFSET_AT, row)
    return bytes(data), struct.pack("<i", len(record)) * count


def peak_of_decoding(body: bytes, sizes: bytes, count: int) -> int:
    """Bytes that numpy and Python had at most, and Arrow behind each batch, beyond the body."""
    decoder = Decoder(DecodeOptions(arrow_schema(COLUMNS)))
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    tracemalloc.start()
    try:
        for batch in decoder.decode(QUEUE, 0, count, body, sizes):
            rows += batch.num_rows
            most = max(most, pa.total_allocated_bytes() - before)
        assert rows == count
        return tracemalloc.get_traced_memory()[1] + most
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("body_size", [100, 4_000])
def test_memory_is_bounded_by_a_few_chunks_not_by_what_came(body_size: int) -> None:
    count = 7 * CHUNK_SIZE_MAX // (body_size + 200)
    body, sizes = body_of(count, body_size)
    assert len(body) > 6 * CHUNK_SIZE_MAX
    assert peak_of_decoding(body, sizes, count) < 5 * CHUNK_SIZE_MAX
