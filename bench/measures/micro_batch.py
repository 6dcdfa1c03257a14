"""Micro-batches with little data, beside those of a source that has none at all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from pyspark.sql import DataFrame

from bench.bed import TRANSPORTS, Bed
from bench.load import QUEUES, create_topic
from bench.machine import Figures, Run, quietness, run_once
from bench.paced import PacedProducer
from bench.registry import measurement
from bench.streaming import Batch, batches_of, typical

_TOPIC = "trickle"
_TICK_MS = 10
_WARM_UP_S = 3.0
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
    query = frame.writeStream.format("noop").option("checkpointLocation", bed.checkpoint()).start()
    try:
        time.sleep(_WARM_UP_S)
        before = query.lastProgress
        first = before.batchId + 1 if before else 0
        run = run_once(lambda: time.sleep(bed.scale.seconds / 2))
        batches = [
            batch
            for batch, report in zip(
                batches_of(query.recentProgress), query.recentProgress, strict=False
            )
            if report.batchId >= first and "addBatch" in batch.steps
        ]
    finally:
        query.stop()
    assert batches, "no batch ended in time"
    return Run(run.seconds, run.cores_ours, run.cores_others, batches)


def _median_ms(batches: list[Batch]) -> float:
    return statistics.median(batch.steps["triggerExecution"] for batch in batches)
