"""What a query costs that has nothing to do: processor time, and what it asks the broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import psutil

from bench.bed import TRANSPORTS, Bed
from bench.load import QUEUES, create_topic
from bench.machine import Figures
from bench.registry import measurement
from bench.streaming import started_in_time
from pytest_rocketmq.faults import FaultProxy

_TOPIC = "idle"
_SETTLES_S = 3


@measurement("idle", "processor time and requests of a query over 8 queues in which nothing comes")
def idle(bed: Bed) -> Iterator[Figures]:
    create_topic(bed.settings("endpoints"), _TOPIC)
    spark_alone = _spark_cpu(bed)
    for transport in TRANSPORTS:
        yield {"what": transport, "queues": QUEUES, **_measure(bed, transport, spark_alone)}


def _spark_cpu(bed: Bed) -> float:
    """Processor seconds a second of a session without queries."""
    jvm = _jvm(bed)
    time.sleep(_SETTLES_S)
    return _cpu_a_second(jvm, bed.scale.seconds)


def _measure(bed: Bed, transport: str, spark_alone: float) -> Figures:
    broker = bed.broker
    way_to = broker.endpoints if transport == "endpoints" else broker.name_server
    with ExitStack() as stack:
        proxy = stack.enter_context(FaultProxy(way_to))
        options = bed.options(transport, _TOPIC, startingOffsets="latest")
        options[transport] = proxy.address
        if transport == "nameServer":
            options["addressMap"] = f"{way_to}={proxy.address}"
        frame = bed.spark.readStream.format("rocketmq").options(**options).load()
        writer = frame.writeStream.format("noop")

        def start() -> None:
            query = writer.option("checkpointLocation", bed.checkpoint()).start()
            stack.callback(query.stop)
            # It must run before what it does not do can be counted.
            query.awaitTermination(_SETTLES_S)

        started_in_time(start)
        asked, broker_before = proxy.asked, _own_cpu(bed.broker_process())
        began = time.monotonic()
        spark_cpu = _cpu_a_second(_jvm(bed), bed.scale.seconds)
        seconds = time.monotonic() - began
        broker_cpu = (_own_cpu(bed.broker_process()) - broker_before) / seconds
        return {
            "cpu_s_a_minute": round(60 * (spark_cpu + broker_cpu), 2),
            "spark_s_a_minute": round(60 * spark_cpu, 2),
            "spark_without_query_s_a_minute": round(60 * spark_alone, 2),
            "broker_s_a_minute": round(60 * broker_cpu, 2),
            "requests_a_second": round((proxy.asked - asked) / seconds, 2),
            "seconds": round(seconds, 1),
        }


def _jvm(bed: Bed) -> psutil.Process:
    """Spark's process, whose children are the Python ones."""
    gateway = bed.spark.sparkContext._gateway
    assert gateway is not None, "a session of another JVM"
    return psutil.Process(gateway.proc.pid)


def _cpu_a_second(process: psutil.Process, seconds: float) -> float:
    before, began = _tree_cpu(process), time.monotonic()
    time.sleep(seconds)
    return (_tree_cpu(process) - before) / (time.monotonic() - began)


def _tree_cpu(process: psutil.Process) -> float:
    return sum(_own_cpu(each) for each in (process, *process.children(recursive=True)))


def _own_cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
