"""AvailableNow in large micro-batches, beside the ceiling's AvailableNow over the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import DataFrame

from bench.bed import Bed
from bench.load import QUEUES
from bench.machine import Figures, Run, alternate, median_seconds, rates
from bench.registry import measurement
from bench.streaming import Batch, available_now, typical

_BODY_SIZE = 100
_PACKED = 2


@measurement("available_now", "AvailableNow, one partition a queue and packed into two")
def measure_available_now(bed: Bed) -> Iterator[Figures]:
    topic = bed.topic(_BODY_SIZE)
    rows = bed.scale.messages(_BODY_SIZE)
    limit = str(bed.scale.per_batch)
    frames = {}
    for partitions in (QUEUES, _PACKED):
        packing = {} if partitions == QUEUES else {"maxPartitions": str(partitions)}
        frames["ceiling", partitions] = bed.ceiling_stream(_BODY_SIZE, partitions=partitions)
        frames["endpoints", partitions] = bed.stream(
            "endpoints", topic, maxOffsetsPerTrigger=limit, **packing
        )
        frames["nameServer", partitions] = bed.stream(
            "nameServer", topic, maxOffsetsPerTrigger=limit, **packing
        )
    actions = {f"{name} {count}": _drain(bed, frame) for (name, count), frame in frames.items()}
    measured = alternate(actions, runs=min(bed.scale.runs, 3))
    for (name, partitions), runs in zip(frames, measured.values(), strict=True):
        batches: list[Batch] = runs[-1].value
        assert sum(batch.rows for batch in batches) == rows
        figures = {
            "what": name,
            "partitions": partitions,
            "batches": len(batches),
            "batch_ms": typical(batches),
            **rates(rows, runs),
        }
        if name != "ceiling":
            figures["ratio"] = _gain(measured, f"ceiling {partitions}", f"{name} {partitions}")
        yield figures
    ceiling = _gain(measured, f"ceiling {_PACKED}", f"ceiling {QUEUES}")
    for name in ("endpoints", "nameServer"):
        gain = _gain(measured, f"{name} {_PACKED}", f"{name} {QUEUES}")
        # Seconds with few partitions over seconds with many: below 1, packing gains.
        yield {
            "what": f"maxPartitions={_PACKED}",
            "transport": name,
            "seconds_ratio": gain,
            "ceiling_seconds_ratio": ceiling,
            "gain_ratio": round(ceiling / gain, 3),
        }


def _drain(bed: Bed, frame: DataFrame) -> Callable[[], list[Batch]]:
    return lambda: available_now(frame, bed.checkpoint())


def _gain(measured: dict[str, list[Run]], one: str, other: str) -> float:
    """How long `one` takes as a share of how long `other` does."""
    return round(median_seconds(measured[one]) / median_seconds(measured[other]), 3)
