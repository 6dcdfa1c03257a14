"""Peak memory of the broker while a topic is filled, and of Spark's workers while it is read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import psutil
from pyspark.sql import DataFrame

from bench.bed import TRANSPORTS, Bed
from bench.load import QUEUES, load_topic
from bench.machine import Figures
from bench.registry import measurement

_BODY_SIZE = 100
_INTERVAL_S = 0.02


@measurement("memory", "peak memory of a worker beyond an empty source's, and of the broker")
def memory(bed: Bed) -> Iterator[Figures]:
    topic, rows = "memory", bed.scale.messages(_BODY_SIZE)
    with _Peaks(bed.broker.pid) as peaks:
        # A topic of its own: what it takes to store the messages counts as well.
        load_topic(bed.settings("endpoints"), topic, rows, _BODY_SIZE)
    yield {"what": "loading", "broker_mb": round(peaks.broker / 1e6), "rows": rows}
    schema = bed.read("endpoints", topic).schema
    empty = bed.spark.read.format("empty").schema(schema).option("partitions", str(QUEUES)).load()
    frames = {"empty source": empty}
    frames |= {transport: bed.read(transport, topic) for transport in TRANSPORTS}
    floor = 0
    for name, frame in frames.items():
        # Workers are forked again, so that one source's memory is not another's.
        _end_workers()
        with _Peaks(bed.broker.pid) as peaks:
            for _ in range(2):
                _drain(frame)
        assert peaks.worker, "no worker was seen"
        if not floor:
            floor = peaks.worker
        yield {
            "what": name,
            "worker_mb": round(peaks.worker / 1e6),
            "beyond_empty_mb": round((peaks.worker - floor) / 1e6),
            "broker_mb": round(peaks.broker / 1e6),
            "rows": rows,
        }


def _drain(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


class _Peaks:
    """Watches memory that is really held: pages of mapped files do not count."""

    def __init__(self, broker_pid: int) -> None:
        self.worker = self.broker = 0
        self._broker_pid = broker_pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Peaks:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            self.worker = max([self.worker, *(held_bytes(worker.pid) for worker in _workers())])
            self.broker = max(self.broker, held_bytes(self._broker_pid))


def held_bytes(pid: int) -> int:
    """Memory of a process without mapped files: `RssAnon` where there is one, else all."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        try:
            return int(psutil.Process(pid).memory_info().rss)
        except psutil.NoSuchProcess:
            return 0
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def _workers() -> list[psutil.Process]:
    """The processes in which Spark's tasks run their Python: forks of one daemon."""
    return [p for p in psutil.Process().children(recursive=True) if _is_worker(p)]


def _is_worker(process: psutil.Process) -> bool:
    try:
        parent = process.parent()
        # Other daemons plan reads and look formats up; this one's own parent is the JVM.
        is_task_side = process.cmdline()[-2:] == ["pyspark.daemon", "pyspark.worker"]
        return is_task_side and parent is not None and parent.name() != "java"
    except psutil.NoSuchProcess:
        return False


def _end_workers() -> None:
    for process in _workers():
        process.terminate()
        process.wait(10)
