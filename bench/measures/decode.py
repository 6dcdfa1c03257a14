"""Nanoseconds a message from stored records to Arrow columns, beside the scalar codec's."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa

from bench.bed import BODY_SIZES, Bed
from bench.machine import Figures, alternate, median_seconds, quietness, repeat
from bench.registry import measurement
from rocketmq_arrow.decode.decoder import DecodeOptions, Decoder
from rocketmq_arrow.source_columns import DEFAULT_COLUMNS, arrow_schema
from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_wire.model import Bounds, OffsetRange
from rocketmq_wire.records.record import decode_record

_MESSAGES_MAX = 200_000
_SCALAR_MESSAGES = 5_000


@measurement("decode", "decoding records, checksums on and off, against the scalar codec")
def decode(bed: Bed) -> Iterator[Figures]:
    for body_size in BODY_SIZES:
        chunks = _records(bed, body_size)
        count = sum(chunk.end - chunk.start for chunk in chunks)
        columns = tuple(DEFAULT_COLUMNS)
        cases = {
            "default columns, crc": _Decoding(chunks, arrow_schema(columns), check_crc=True),
            "default columns": _Decoding(chunks, arrow_schema(columns), check_crc=False),
            "body, crc": _Decoding(chunks, arrow_schema(("body",)), check_crc=True),
            "with properties, crc": _Decoding(
                chunks, arrow_schema((*columns, "properties")), check_crc=True
            ),
        }
        measured = alternate(cases, runs=bed.scale.runs)
        scalar = repeat(partial(_scalar, chunks), runs=1)
        scalar_ns = median_seconds(scalar) / min(_SCALAR_MESSAGES, count) * 1e9
        for name, runs in measured.items():
            assert all(run.value == count for run in runs)
            ns = median_seconds(runs) / count * 1e9
            yield {
                "what": name,
                "body": body_size,
                "ns": round(ns),
                "scalar_ns": round(scalar_ns),
                "times_faster": round(scalar_ns / ns, 1),
                **quietness(runs),
            }


class _Decoding:
    def __init__(self, chunks: list[RangeChunk], schema: pa.Schema, *, check_crc: bool) -> None:
        self._chunks = chunks
        self._decoder = Decoder(DecodeOptions(schema=schema, check_crc=check_crc))

    def __call__(self) -> int:
        return sum(
            batch.num_rows
            for chunk in self._chunks
            for batch in self._decoder.decode(
                chunk.queue, chunk.start, chunk.end, chunk.body, chunk.sizes
            )
        )


def _records(bed: Bed, body_size: int) -> list[RangeChunk]:
    """Stored records as a reader gets them, up to a number of messages."""
    with bed.open_cluster("nameServer") as cluster:
        topic = bed.topic(body_size)
        queue = cluster.queues(topic)[0]
        bounds = cluster.bounds([queue])[queue]
        assert isinstance(bounds, Bounds)
        end = min(bounds.end, _MESSAGES_MAX)
        return list(cluster.read_ranges([OffsetRange(queue, 0, end)], ReadSpec("bench")))


def _scalar(chunks: list[RangeChunk]) -> None:
    left = _SCALAR_MESSAGES
    for chunk in chunks:
        position = 0
        while position < len(chunk.body) and left:
            _, position = decode_record(chunk.body, position)
            left -= 1
