"""Rows written to a topic by a batch, beside a Python Arrow writer that drops the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import DataFrame

from bench.bed import BODY_SIZES, TRANSPORTS, Bed
from bench.drop import FORMAT, DropSink
from bench.load import create_topic
from bench.machine import Figures, alternate, median_seconds, rates
from bench.registry import measurement

_PARTITIONS = 4
_SHARE_OF_MESSAGES = 2


@measurement("write", "batch write of body, keys and tags, against a writer that drops its rows")
def write(bed: Bed) -> Iterator[Figures]:
    bed.spark.dataSource.register(DropSink)
    for body_size in BODY_SIZES:
        rows = bed.scale.messages(body_size) // _SHARE_OF_MESSAGES
        frame = bed.spark.range(rows, numPartitions=_PARTITIONS).selectExpr(
            f"rpad(string(id), {body_size}, 'x') AS body",
            "concat('k', string(id)) AS keys",
            "concat('Tag', string(id % 4)) AS tags",
        )
        actions = {"ceiling": _save(frame, FORMAT, {})}
        topics = {}
        for transport in TRANSPORTS:
            topics[transport] = f"written-{transport}-{body_size}"
            create_topic(bed.settings("endpoints"), topics[transport])
            address = bed.options(transport, topics[transport])[transport]
            options = {transport: address, "topic": topics[transport]}
            actions[transport] = _save(frame, "rocketmq", options)
        measured = alternate(actions, runs=bed.scale.runs)
        ceiling = median_seconds(measured["ceiling"])
        for name, runs in measured.items():
            figures = {"what": name, "body": body_size, "rows": rows, **rates(rows, runs)}
            if name != "ceiling":
                stored = bed.read(name, topics[name]).count()
                assert stored >= rows, f"{stored} rows stored of {rows} a run"
                assert stored % rows == 0, f"{stored} rows stored, {rows} a run"
                figures["ratio"] = round(ceiling / median_seconds(runs), 3)
            yield figures


def _save(frame: DataFrame, to: str, options: dict[str, str]) -> Callable[[], None]:
    return lambda: frame.write.format(to).options(**options).mode("append").save()
