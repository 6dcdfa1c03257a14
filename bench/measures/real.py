"""A real broker, which answers with 32 messages a pull: Spark, a bare puller and Java beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from bench.bed import Bed
from bench.machine import Figures, Run, alternate, median_seconds, rates
from bench.measures.real_bed import (
    BODY_SIZE,
    PULL_BATCH_SIZE,
    PULL_BATCH_SIZE_ON_DISK,
    TOPIC,
    VERSION,
    RealBed,
)
from bench.measures.real_puller import BarePuller
from bench.registry import measurement
from rocketmq_client.cluster import open_cluster
from rocketmq_client.download.contract import ReadLimits, ReadSpec
from rocketmq_wire.model import OffsetRange

_IN_FLIGHT = 16


@measurement("real", "a real broker (RocketMQ 5.3.3): batch read and raw fetch", is_extra=True)
def real(bed: Bed) -> Iterator[Figures]:
    """Everything in both regimes, on one cluster and by turns."""
    count = bed.scale.messages(BODY_SIZE) // 2
    with RealBed(count) as cluster:
        for regime in ("memory", "disk"):
            pull_count = PULL_BATCH_SIZE
            if regime == "disk":
                cluster.treat_as_on_disk()
                pull_count = PULL_BATCH_SIZE_ON_DISK
            common = {"broker": VERSION, "regime": regime, "body": BODY_SIZE}
            for figures in (
                *_whole_topic(bed, cluster, pull_count),
                *_one_queue(bed, cluster, pull_count),
            ):
                yield {**common, **figures}


def _whole_topic(bed: Bed, cluster: RealBed, pull_count: int) -> Iterator[Figures]:
    frame = (
        bed.spark.read.format("rocketmq")
        .options(nameServer=cluster.name_server, subscribe=TOPIC, startingOffsets="earliest")
        .load()
    )
    found = frame.count()
    assert found == cluster.count, f"Spark gave {found} rows of {cluster.count}"
    ranges = cluster.ranges()
    bare = BarePuller(cluster.broker_address, ranges, pull_count=pull_count)
    queues = [BarePuller(cluster.broker_address, [one], pull_count=pull_count) for one in ranges]

    def read_all() -> None:
        frame.write.format("noop").mode("overwrite").save()

    for _ in range(bed.scale.runs):
        # Spark's JVM compiles what handles rows during its first reads, on the cores of all.
        read_all()
    measured = alternate(
        {
            "spark": read_all,
            "bare": lambda: bare.read(in_flight=_IN_FLIGHT),
            # One request at a time, queue after queue.
            "bare, serial": lambda: sum(one.read(in_flight=1).offsets for one in queues),
            "client": _client_read(cluster, ranges, ReadLimits()),
            "java": cluster.lite_pull.read,
        },
        runs=bed.scale.runs,
    )
    measured["java"] = [replace(run, seconds=run.value.seconds) for run in measured["java"]]
    assert all(run.value.offsets == cluster.count for run in measured["bare"])
    for name in ("bare, serial", "client"):
        assert all(run.value == cluster.count for run in measured[name])
    java_found = [run.value.messages for run in measured["java"]]
    assert set(java_found) == {cluster.count}, f"Java read {java_found} of {cluster.count} messages"
    yield from figures_of(measured, cluster.count)


def figures_of(measured: dict[str, list[Run]], rows: int) -> Iterator[Figures]:
    """A line for each reader of the whole topic; Spark's says how it compares with the others."""
    for name, runs in measured.items():
        figures = {"what": name, "rows": rows, **rates(rows, runs)}
        if name in ("spark", "client"):
            figures["of_bare"] = _ratio(measured["bare"], runs)
            figures["of_serial"] = _ratio(measured["bare, serial"], runs)
            figures["of_java"] = _ratio(measured["java"], runs)
        yield figures


def _one_queue(bed: Bed, cluster: RealBed, pull_count: int) -> Iterator[Figures]:
    wanted = cluster.ranges()[:1]
    rows = wanted[0].end - wanted[0].start
    bare = BarePuller(cluster.broker_address, wanted, pull_count=pull_count)
    measured = alternate(
        {
            "one queue": _client_read(cluster, wanted, ReadLimits()),
            "one queue, serial": _client_read(cluster, wanted, ReadLimits(pulls_in_flight=1)),
            "one queue, bare": lambda: bare.read(in_flight=4 * _IN_FLIGHT),
            "one queue, bare, serial": lambda: bare.read(in_flight=1),
        },
        runs=bed.scale.runs,
    )
    for name, runs in measured.items():
        figures = {"what": name, "rows": rows, **rates(rows, runs)}
        if name == "one queue":
            figures["of_serial"] = _ratio(measured["one queue, serial"], runs)
            figures["of_bare_serial"] = _ratio(measured["one queue, bare, serial"], runs)
            figures["of_bare"] = _ratio(measured["one queue, bare"], runs)
        yield figures


def _client_read(
    cluster: RealBed, ranges: Sequence[OffsetRange], limits: ReadLimits
) -> Callable[[], int]:
    def read() -> int:
        with open_cluster(cluster.settings) as client:
            spec = ReadSpec("bench-client", limits=limits)
            return sum(chunk.end - chunk.start for chunk in client.read_ranges(ranges, spec))

    return read


def _ratio(other: Sequence[Run], runs: Sequence[Run]) -> float:
    """How many times as fast as the other."""
    return round(median_seconds(other) / median_seconds(runs), 3)
