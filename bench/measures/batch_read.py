"""A whole topic read by a batch query, beside Spark's ceiling for the very same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import DataFrame

from bench.bed import BODY_SIZES, TRANSPORTS, Bed
from bench.machine import Figures, alternate, median_seconds, rates
from bench.registry import measurement


@measurement("batch_read", "batch read, default options, against replayed record batches")
def batch_read(bed: Bed) -> Iterator[Figures]:
    for body_size in BODY_SIZES:
        topic = bed.topic(body_size)
        frames = {"ceiling": bed.ceiling(body_size)}
        frames |= {transport: bed.read(transport, topic) for transport in TRANSPORTS}
        rows = bed.scale.messages(body_size)
        for name, frame in frames.items():
            found = frame.count()
            assert found == rows, f"{name} gave {found} rows of {rows}"
        actions = {name: _drain(frame) for name, frame in frames.items()}
        measured = alternate(actions, runs=bed.scale.runs)
        ceiling = median_seconds(measured["ceiling"])
        for name, runs in measured.items():
            figures = {"what": name, "body": body_size, "rows": rows, **rates(rows, runs)}
            if name != "ceiling":
                figures["ratio"] = round(ceiling / median_seconds(runs), 3)
            yield figures


def _drain(frame: DataFrame) -> Callable[[], None]:
    """Make every row and drop it."""
    return lambda: frame.write.format("noop").mode("overwrite").save()
