"""Micro-batches with little data, beside those of a source that has none at all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from bench.bed import TRANSPORTS, Bed
from bench.load import QUEUES, create_topic
from bench.machine import Figures, Run, alternate, quietness
from bench.paced import PacedProducer
from bench.registry import measurement
from bench.streaming import Batch, batches_of, started_in_time, typical

_TOPIC = "trickle"
_TICK_MS = 10
_RUNS_MAX = 3
_WARM_UP_BATCHES = 5
_BATCHES_MIN = 5
_TIMEOUT_S = 120.0
_BATCHES_KEPT = 2_000


@measurement("micro_batch", "duration of a micro-batch with a few messages in each of 8 queues")
def micro_batch(bed: Bed) -> Iterator[Figures]:
    create_topic(bed.settings("endpoints"), _TOPIC)
    bed.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(_BATCHES_KEPT))
    empty = bed.spark.readStream.format("empty").schema("body binary")
    frames = {("empty", QUEUES): empty.option("partitions", str(QUEUES)).load()}
    for transport in TRANSPORTS:
        frames[transport, QUEUES] = bed.stream(transport, _TOPIC, startingOffsets="latest")
        frames[transport, 1] = bed.stream(
            transport, _TOPIC, startingOffsets="latest", maxPartitions="1"
        )
    actions = {
        key: partial(started_in_time, partial(_measure, bed, frame))
        for key, frame in frames.items()
    }
    # One message a queue and tick: a batch finds something in every queue, and at once.
    with PacedProducer(bed.broker.name_server, _TOPIC, tick_ms=_TICK_MS, per_tick=QUEUES):
        # Every run is a query of its own, which warms up before it counts.
        measured = alternate(actions, runs=min(bed.scale.runs, _RUNS_MAX), warm_ups=0)
    yield from figures_of(measured)


def figures_of(measured: dict[tuple[str, int], list[Run]]) -> Iterator[Figures]:
    """What each source's runs come to, beside the empty one's."""
    floor = _median_ms(measured["empty", QUEUES])
    for (name, partitions), runs in measured.items():
        batches: list[Batch] = [batch for run in runs for batch in run.value]
        figures = {
            "what": f"{name} source" if name == "empty" else name,
            "partitions": partitions,
            "ms": _median_ms(runs),
            "runs_ms": [_median_ms([run]) for run in runs],
            "batches": len(batches),
            "rows": round(statistics.median(batch.rows for batch in batches)),
            "batch_ms": typical(batches),
            **quietness(runs),
        }
        if name != "empty":
            figures["ratio"] = round(_median_ms(runs) / floor, 3)
        yield figures


def _measure(bed: Bed, frame: DataFrame) -> list[Batch]:
    """Batches of a running query, from when it is warm: for a time, and at least a few."""
    query = frame.writeStream.format("noop").option("checkpointLocation", bed.checkpoint()).start()
    try:
        _wait_for_batches(query, _WARM_UP_BATCHES, bed.scale.seconds / 10)
        warm = max(report.batchId for report in query.recentProgress)
        _wait_for_batches(query, warm + _BATCHES_MIN, bed.scale.seconds / 5)
        reports = [r for r in query.recentProgress if r.batchId > warm]
    finally:
        query.stop()
    return [batch for batch in batches_of(reports) if "addBatch" in batch.steps]


def _wait_for_batches(query: StreamingQuery, batch_id: int, seconds: float) -> None:
    """Wait for so long, and until the query has got to this batch."""
    time.sleep(seconds)
    give_up_at = time.monotonic() + _TIMEOUT_S
    while query.lastProgress is None or query.lastProgress.batchId < batch_id:
        if (error := query.exception()) is not None:
            raise error
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"the query did not get to batch {batch_id} in {_TIMEOUT_S} s")
        time.sleep(0.1)


def _median_ms(runs: Sequence[Run]) -> float:
    """The median of the runs' own medians."""
    medians: list[float] = [
        statistics.median(batch.steps["triggerExecution"] for batch in run.value) for run in runs
    ]
    return statistics.median(medians)
