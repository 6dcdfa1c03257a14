"""AvailableNow in large micro-batches, beside the ceiling's AvailableNow over the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import DataFrame

from bench.bed import BODY_SIZES, TRANSPORTS, Bed
from bench.load import QUEUES
from bench.machine import Figures, Run, alternate, median_seconds, rates
from bench.registry import measurement
from bench.streaming import Batch, available_now, started_in_time, typical

_PACKED = 2
_RUNS_MAX = 3

Key = tuple[str, int]
"""What reads, and in how many partitions."""


@measurement("available_now", "AvailableNow, one partition a queue and packed into two")
def measure_available_now(bed: Bed) -> Iterator[Figures]:
    for body_size in BODY_SIZES:
        measured = alternate(
            {key: _drain(bed, frame) for key, frame in _frames(bed, body_size).items()},
            runs=min(bed.scale.runs, _RUNS_MAX),
            # Of a single run nothing but that it works is learned.
            warm_ups=min(bed.scale.runs - 1, 1),
        )
        yield from figures_of(measured, body_size, bed.scale.messages(body_size))


def _frames(bed: Bed, body_size: int) -> dict[Key, DataFrame]:
    topic, limit = bed.topic(body_size), str(bed.scale.batch(body_size))
    frames = {}
    for partitions in (QUEUES, _PACKED):
        packing = {} if partitions == QUEUES else {"maxPartitions": str(partitions)}
        frames["ceiling", partitions] = bed.ceiling_stream(body_size, partitions=partitions)
        for transport in TRANSPORTS:
            frames[transport, partitions] = bed.stream(
                transport, topic, maxOffsetsPerTrigger=limit, **packing
            )
    return frames


def figures_of(measured: dict[Key, list[Run]], body_size: int, rows: int) -> Iterator[Figures]:
    """What each reader's runs come to, beside the ceiling's, and what packing gains."""
    for (name, partitions), runs in measured.items():
        batches: list[Batch] = runs[-1].value
        assert sum(batch.rows for batch in batches) == rows
        figures = {
            "what": name,
            "body": body_size,
            "partitions": partitions,
            "batches": len(batches),
            "batch_ms": typical(batches),
            **rates(rows, runs),
        }
        if name != "ceiling":
            figures["ratio"] = _gain(measured, ("ceiling", partitions), (name, partitions))
        yield figures
    ceiling = _gain(measured, ("ceiling", _PACKED), ("ceiling", QUEUES))
    for name in TRANSPORTS:
        gain = _gain(measured, (name, _PACKED), (name, QUEUES))
        # Seconds with few partitions over seconds with many: below 1, packing gains.
        yield {
            "what": f"maxPartitions={_PACKED}",
            "body": body_size,
            "transport": name,
            "seconds_ratio": gain,
            "ceiling_seconds_ratio": ceiling,
            "gain_ratio": round(ceiling / gain, 3),
        }


def _drain(bed: Bed, frame: DataFrame) -> Callable[[], list[Batch]]:
    return lambda: started_in_time(lambda: available_now(frame, bed.checkpoint()))


def _gain(measured: dict[Key, list[Run]], one: Key, other: Key) -> float:
    """How long `one` takes as a share of how long `other` does."""
    return round(median_seconds(measured[one]) / median_seconds(measured[other]), 3)
