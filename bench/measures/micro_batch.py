"""Micro-batches with little data, beside those of a source that has none at all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from bench.bed import TRANSPORTS, Bed
from bench.load import QUEUES, create_topic
from bench.machine import Figures, Run, quietness, run_once
from bench.paced import PacedProducer
from bench.registry import measurement
from bench.streaming import Batch, batches_of, typical

_TOPIC = "trickle"
_TICK_MS = 10
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
    # One message a queue and tick: a batch finds something in every queue, and at once.
    with PacedProducer(bed.broker.name_server, _TOPIC, tick_ms=_TICK_MS, per_tick=QUEUES):
        measured = {key: _measure(bed, frame) for key, frame in frames.items()}
        again = _measure(bed, frames["empty", QUEUES])
    floors = [_median_ms(measured["empty", QUEUES].value), _median_ms(again.value)]
    floor = statistics.mean(floors)
    yield {"what": "empty source", "partitions": QUEUES, "ms": round(floor), "runs_ms": floors}
    for (name, partitions), run in measured.items():
        if name != "empty":
            median = _median_ms(run.value)
            yield {
                "what": name,
                "partitions": partitions,
                "ms": median,
                "ratio": round(median / floor, 3),
                "batches": len(run.value),
                "rows": round(statistics.median(batch.rows for batch in run.value)),
                "batch_ms": typical(run.value),
                **quietness([run]),
            }


def _measure(bed: Bed, frame: DataFrame) -> Run:
    """Batches of a running query, from when it is warm: for a time, and at least a few."""
    query = frame.writeStream.format("noop").option("checkpointLocation", bed.checkpoint()).start()
    try:
        _wait_for_batches(query, _WARM_UP_BATCHES, bed.scale.seconds / 4)
        warm = max(report.batchId for report in query.recentProgress)
        run = run_once(lambda: _wait_for_batches(query, warm + _BATCHES_MIN, bed.scale.seconds / 2))
        reports = [r for r in query.recentProgress if r.batchId > warm]
    finally:
        query.stop()
    batches = [batch for batch in batches_of(reports) if "addBatch" in batch.steps]
    return Run(run.seconds, run.cores_ours, run.cores_others, batches)


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


def _median_ms(batches: list[Batch]) -> float:
    return statistics.median(batch.steps["triggerExecution"] for batch in batches)
