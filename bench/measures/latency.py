"""How long a message takes from its producer to a row in the hands of the query's own code."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from bench.bed import TRANSPORTS, Bed
from bench.load import create_topic
from bench.machine import Figures, percentile, quietness, run_once
from bench.paced import STAMP_SIZE, PacedProducer
from bench.registry import measurement

_TOPIC = "paced"
_TICK_MS = 10
_PER_TICK = 10
_WARM_UP_S = 5.0
_ROW_TIMEOUT_S = 60.0


@measurement("latency", "produce-to-row latency at 1,000 messages a second, 8 queues")
def latency(bed: Bed) -> Iterator[Figures]:
    create_topic(bed.settings("endpoints"), _TOPIC)
    for transport in TRANSPORTS:
        frame = bed.stream(transport, _TOPIC, startingOffsets="latest", maxPartitions="1")
        arrivals = _Arrivals()
        query = (
            frame.select("body")
            .writeStream.foreachBatch(arrivals.take)
            .option("checkpointLocation", bed.checkpoint())
            .start()
        )
        try:
            with PacedProducer(
                bed.broker.name_server, _TOPIC, tick_ms=_TICK_MS, per_tick=_PER_TICK
            ):
                arrivals.wait_for_rows()
                time.sleep(_WARM_UP_S)
                arrivals.forget()
                run = run_once(lambda: time.sleep(bed.scale.seconds))
                delays, batches = arrivals.collected()
        finally:
            query.stop()
        yield {
            "transport": transport,
            "messages_s": round(len(delays) / run.seconds),
            "batches_s": round(batches / run.seconds, 1),
            "p50_ms": round(percentile(delays, 0.50), 1),
            "p95_ms": round(percentile(delays, 0.95), 1),
            "p99_ms": round(percentile(delays, 0.99), 1),
            **quietness([run]),
        }


class _Arrivals:
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
        stamps = pc.binary_slice(bodies, 0, STAMP_SIZE).cast(pa.string()).cast(pa.int64())
        with self._lock:
            self._delays.append((now_ns - stamps.to_numpy()) / 1e6)
        self._has_rows.set()

    def wait_for_rows(self) -> None:
        if not self._has_rows.wait(_ROW_TIMEOUT_S):
            raise TimeoutError("no row arrived")

    def forget(self) -> None:
        with self._lock:
            self._delays.clear()

    def collected(self) -> tuple[list[float], int]:
        """Delays in ms of every row since `forget`, and the number of batches they came in."""
        with self._lock:
            return np.concatenate(self._delays).tolist(), len(self._delays)
