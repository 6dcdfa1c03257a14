"""How long a message takes from its producer to a row in the hands of the query's own code."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from bench.bed import TRANSPORTS, Bed
from bench.load import create_topic
from bench.machine import Figures, Run, percentile, quietness, repeat
from bench.paced import TIME_SIZE, PacedProducer
from bench.registry import measurement

_TOPIC = "paced"
_TICK_MS = 10
_PER_TICK = 10
_RUNS_MAX = 3
_ROW_TIMEOUT_S = 60.0


@measurement("latency", "produce-to-row latency at 1,000 messages a second, 8 queues")
def latency(bed: Bed) -> Iterator[Figures]:
    create_topic(bed.settings("endpoints"), _TOPIC)
    for transport in TRANSPORTS:
        frame = bed.stream(transport, _TOPIC, startingOffsets="latest", maxPartitions="1")
        arrived = _ArrivedRows()
        query = (
            frame.select("body")
            .writeStream.foreachBatch(arrived.take)
            .option("checkpointLocation", bed.checkpoint())
            .start()
        )
        try:
            with PacedProducer(
                bed.broker.name_server, _TOPIC, tick_ms=_TICK_MS, per_tick=_PER_TICK
            ):
                arrived.wait_for_rows()
                runs = repeat(
                    partial(arrived.collect, bed.scale.seconds / 3),
                    runs=min(bed.scale.runs, _RUNS_MAX),
                )
        finally:
            query.stop()
        yield {
            "transport": transport,
            "messages_s": round(median(len(run.value[0]) / run.seconds for run in runs)),
            "batches_s": round(median(run.value[1] / run.seconds for run in runs), 1),
            **{f"p{share}_ms": _median_ms(runs, share) for share in (50, 95, 99)},
            "runs_p50_ms": [_median_ms([run], 50) for run in runs],
            **quietness(runs),
        }


def _median_ms(runs: Sequence[Run], share: int) -> float:
    """The median of the runs' percentiles."""
    return round(median(percentile(run.value[0], share / 100) for run in runs), 1)


class _ArrivedRows:
    """Collects how old every message is when its row has arrived."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_rows = threading.Event()
        self._delays: list[np.ndarray] = []

    def take(self, frame: DataFrame, _batch_id: int) -> None:
        bodies = frame.toArrow().column("body")
        now_ns = time.time_ns()
        if not len(bodies):
            return
        row_ids = pc.binary_slice(bodies, 0, TIME_SIZE).cast(pa.string()).cast(pa.int64())
        with self._lock:
            self._delays.append((now_ns - row_ids.to_numpy()) / 1e6)
            self._has_rows.set()

    def wait_for_rows(self) -> None:
        if not self._has_rows.wait(_ROW_TIMEOUT_S):
            raise TimeoutError("no row arrived")

    def collect(self, seconds: float) -> tuple[list[float], int]:
        """Delays in ms of every row of the next seconds, and how many batches they came in."""
        with self._lock:
            self._delays.clear()
            self._has_rows.clear()
        time.sleep(seconds)
        self.wait_for_rows()
        with self._lock:
            return np.concatenate(self._delays).tolist(), len(self._delays)
