"""Rows written to a topic by a batch, beside a Python Arrow writer that drops the same rows.

Each run writes into a new store of a broker of its own: else every run grows the page cache, and a
virtual machine that touches memory for the first time charges the broker 1,000 ns a message for it,
which is as much as the broker's own work.

Spark's `rpad` goes byte by byte: it makes what tells the rows apart, the first 100 bytes of each
body (0.4 microseconds of a core), and the rest of a longer one is the same in all. All of 1 KB by
`rpad` would take four, more than the broker and the writer together. The ceiling has the same rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

from pyspark.sql import DataFrame

from bench.bed import BODY_SIZES, TRANSPORTS, Bed
from bench.drop import FORMAT, DropSink
from bench.load import QUEUES, load_topic
from bench.machine import Figures, Run, alternate, median_seconds, rates
from bench.registry import measurement
from rocketmq_cli.support.broker_process import BrokerProcess
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import Bounds, TopicConfig

_PARTITIONS = 4
# A run takes some seconds, so that the start of a job, 0.3 s, is a small part of it.
_ROWS_PER_MESSAGE = {100: 0.5, 1024: 2.0}
_PADDED = 100
_TOPIC = "written"
_WARM_UP_MESSAGES = 20_000
_CEILING = "ceiling"


@measurement("write", "batch write of body, keys and tags, against a writer that drops its rows")
def write(bed: Bed) -> Iterator[Figures]:
    bed.spark.dataSource.register(DropSink)
    for body_size in BODY_SIZES:
        rows = int(bed.scale.messages(body_size) * _ROWS_PER_MESSAGE[body_size])
        frame = bed.spark.range(rows, numPartitions=_PARTITIONS).selectExpr(
            f"{_body(body_size)} AS body",
            "concat('k', string(id)) AS keys",
            "concat('Tag', string(id % 4)) AS tags",
        )
        store = _NewStore(bed, body_size)
        actions = {_CEILING: _save(frame, FORMAT, dict), **_writes(frame, store)}
        try:
            measured = alternate(actions, runs=bed.scale.runs, prepare=store.prepare)
            store.check(rows)
        finally:
            store.close()
        ceiling = median_seconds(measured[_CEILING])
        for name, runs in measured.items():
            figures = {"what": name, "body": body_size, "rows": rows, **rates(rows, runs)}
            figures["core_us_row"] = _core_us(rows, runs)
            if name != _CEILING:
                figures["ratio"] = round(ceiling / median_seconds(runs), 3)
            yield figures


class _NewStore:
    """A fresh broker, made again before each run that writes to it."""

    def __init__(self, bed: Bed, body_size: int) -> None:
        self._directory = bed.directory / "writing"
        self._body_size = body_size
        self._broker: BrokerProcess | None = None
        self._written = 0

    def prepare(self, name: str) -> None:
        if name == _CEILING:
            return
        self.close()
        self._broker = BrokerProcess(self._directory)
        self._broker.start()
        settings = ConnectionSettings((self._broker.name_server,))
        with open_cluster(settings) as cluster:
            cluster.create_topic(TopicConfig(_TOPIC, QUEUES, QUEUES))
        load_topic(
            ConnectionSettings(endpoints=self._broker.endpoints),
            "warm-up",
            _WARM_UP_MESSAGES,
            self._body_size,
        )

    def options(self, transport: str) -> dict[str, str]:
        assert self._broker is not None
        addresses = {
            "nameServer": self._broker.name_server,
            "endpoints": self._broker.endpoints,
        }
        return {transport: addresses[transport], "topic": _TOPIC}

    def check(self, rows: int) -> None:
        """The last run's messages are all there, once."""
        assert self._broker is not None
        with open_cluster(ConnectionSettings((self._broker.name_server,))) as cluster:
            found = cluster.bounds(cluster.queues(_TOPIC)).values()
        bounds = [bound for bound in found if isinstance(bound, Bounds)]
        assert len(bounds) == QUEUES, found
        stored = sum(bound.end - bound.start for bound in bounds)
        assert stored == rows, f"{stored} rows stored of {rows}"

    def close(self) -> None:
        if self._broker is not None:
            self._broker.stop()
            self._broker = None
        shutil.rmtree(self._directory, ignore_errors=True)


def _body(size: int) -> str:
    """SQL that makes bodies of this size."""
    padded = f"rpad(string(id), {min(size, _PADDED)}, 'x')"
    return padded if size <= _PADDED else f"concat({padded}, repeat('x', {size - _PADDED}))"


def _core_us(rows: int, runs: Sequence[Run]) -> float:
    """Microseconds of a core for a row, of Spark, its workers and the broker: a busy machine
    changes these less than it does the rate.
    """
    return round(median(run.cores_ours * run.seconds for run in runs) / rows * 1e6, 2)


def _writes(frame: DataFrame, store: _NewStore) -> dict[str, Callable[[], None]]:
    return {
        transport: _save(frame, "rocketmq", partial(store.options, transport))
        for transport in TRANSPORTS
    }


def _save(frame: DataFrame, to: str, options: Callable[[], dict[str, str]]) -> Callable[[], None]:
    return lambda: frame.write.format(to).options(**options()).mode("append").save()
