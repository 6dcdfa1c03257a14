"""Where the time of a batch read goes: CPU of each process, and of the stages inside a worker."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import psutil
import pyarrow as pa

from bench.bed import BODY_SIZES, TRANSPORTS, Bed
from bench.machine import Figures, cpu_seconds, run_once
from bench.registry import measurement
from rocketmq_arrow.decode.decoder import DecodeOptions, Decoder
from rocketmq_arrow.source_columns import DEFAULT_COLUMNS, arrow_schema
from rocketmq_client.download.contract import ReadSpec
from rocketmq_wire.model import Bounds, OffsetRange

_ROUNDS = 3


@measurement("profile", "nanoseconds a message of every stage and every process")
def profile(bed: Bed) -> Iterator[Figures]:
    for body_size in BODY_SIZES:
        for transport in TRANSPORTS:
            rounds = [_stages(bed, transport, body_size) for _ in range(_ROUNDS)]
            yield {
                "what": "one worker's stages, without Spark",
                "transport": transport,
                "body": body_size,
                **{name: round(statistics.median(r[name] for r in rounds)) for name in rounds[0]},
            }
            yield {
                "what": "CPU of a batch read through Spark",
                "transport": transport,
                "body": body_size,
                **_processes(bed, transport, body_size),
            }


def _stages(bed: Bed, transport: str, body_size: int) -> dict[str, float]:
    """Nanoseconds a message: waiting for the broker and receiving, decoding, handing on."""
    rows = bed.scale.messages(body_size)
    decoder = Decoder(DecodeOptions(schema=arrow_schema(tuple(DEFAULT_COLUMNS))))
    fetched = decoded = handed_on = 0.0
    broker = bed.broker_process()
    broker_s = cpu_seconds(broker)
    with bed.open_cluster(transport) as cluster, pa.OSFile("/dev/null", "wb") as nothing:
        bounds = cluster.bounds(cluster.queues(bed.topic(body_size)))
        ranges = [
            OffsetRange(queue, bound.start, bound.end)
            for queue, bound in bounds.items()
            if isinstance(bound, Bounds)
        ]
        chunks = iter(cluster.read_ranges(ranges, ReadSpec("bench")))
        schema = arrow_schema(tuple(DEFAULT_COLUMNS))
        with pa.ipc.new_stream(nothing, schema) as writer:
            while True:
                began = time.perf_counter()
                chunk = next(chunks, None)
                received = time.perf_counter()
                fetched += received - began
                if chunk is None:
                    break
                batches = list(
                    decoder.decode(chunk.queue, chunk.start, chunk.end, chunk.body, chunk.sizes)
                )
                made = time.perf_counter()
                decoded += made - received
                for batch in batches:
                    writer.write_batch(batch)
                handed_on += time.perf_counter() - made
    broker_s = cpu_seconds(broker) - broker_s
    return {
        "wait_and_receive_ns": fetched / rows * 1e9,
        "decode_ns": decoded / rows * 1e9,
        "arrow_stream_ns": handed_on / rows * 1e9,
        "broker_cpu_ns": broker_s / rows * 1e9,
    }


def _processes(bed: Bed, transport: str, body_size: int) -> Figures:
    """CPU nanoseconds a message of the broker, Spark's Python workers and Spark's JVM."""
    rows = bed.scale.messages(body_size)
    frame = bed.read(transport, bed.topic(body_size))
    frame.write.format("noop").mode("overwrite").save()
    before = _cpu_by_role(bed)
    run = run_once(lambda: frame.write.format("noop").mode("overwrite").save())
    used = {role: seconds - before[role] for role, seconds in _cpu_by_role(bed).items()}
    return {
        **{f"{role}_cpu_ns": round(seconds / rows * 1e9) for role, seconds in used.items()},
        "wall_ns": round(run.seconds / rows * 1e9),
        "cores_others": round(run.cores_others, 2),
    }


def _cpu_by_role(bed: Bed) -> dict[str, float]:
    roles = {"broker": cpu_seconds(bed.broker_process()), "python": 0.0, "jvm": 0.0}
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
            name = process.name()
        except psutil.NoSuchProcess:
            continue
        if process.pid == bed.broker.pid:
            continue
        roles["jvm" if name == "java" else "python"] += times.user + times.system
    return roles
