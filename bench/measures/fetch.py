"""Bulk reads without Spark: the client alone, and the client with decoding."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.bed import BODY_SIZES, TRANSPORTS, Bed
from bench.machine import Figures, cpu_seconds, rates, repeat
from bench.registry import measurement
from rocketmq_arrow.decode.decoder import DecodeOptions, Decoder
from rocketmq_arrow.source_columns import DEFAULT_COLUMNS, arrow_schema
from rocketmq_client.download.contract import ReadSpec
from rocketmq_wire.model import Bounds, OffsetRange


@dataclass(frozen=True, slots=True)
class _Downloaded:
    rows: int
    size: int
    broker_s: float


@measurement("fetch", "raw download without Spark, with and without decoding")
def fetch(bed: Bed) -> Iterator[Figures]:
    for body_size in BODY_SIZES:
        topic = bed.topic(body_size)
        rows = bed.scale.messages(body_size)
        for transport in TRANSPORTS:
            for does_decode in (False, True):
                runs = repeat(_download(bed, transport, topic, does_decode), runs=bed.scale.runs)
                assert all(run.value.rows == rows for run in runs)
                yield {
                    "transport": transport,
                    "body": body_size,
                    "decoded": does_decode,
                    **rates(rows, runs),
                    "mb_s": round(runs[0].value.size / runs[0].seconds / 1e6),
                    "broker_ns": round(
                        statistics.median(run.value.broker_s for run in runs) / rows * 1e9
                    ),
                }


def _download(bed: Bed, transport: str, topic: str, does_decode: bool) -> Callable[[], _Downloaded]:
    def download() -> _Downloaded:
        broker = bed.broker_process()
        before = cpu_seconds(broker)
        decoder = Decoder(DecodeOptions(schema=arrow_schema(tuple(DEFAULT_COLUMNS))))
        rows = size = 0
        with bed.open_cluster(transport) as cluster:
            ranges = []
            for queue, bounds in cluster.bounds(cluster.queues(topic)).items():
                assert isinstance(bounds, Bounds)
                ranges.append(OffsetRange(queue, bounds.start, bounds.end))
            for chunk in cluster.read_ranges(ranges, ReadSpec("bench")):
                size += len(chunk.body)
                if does_decode:
                    rows += sum(
                        batch.num_rows
                        for batch in decoder.decode(
                            chunk.queue, chunk.start, chunk.end, chunk.body, chunk.sizes
                        )
                    )
                else:
                    rows += chunk.end - chunk.start
        return _Downloaded(rows, size, cpu_seconds(broker) - before)

    return download
