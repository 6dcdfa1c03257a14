"""Clusters that refuse connections, or take them and never answer: who waits, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_rocketmq.read.task import read_ranges
from pyspark_rocketmq.source import RocketMQDataSource
from rocketmq_broker import Broker
from rocketmq_wire.model import OffsetRange
from support.fault_proxy import FaultProxy, Link
from support.loader import Loader
from support.queries import Batches, Queries

Read = Callable[..., DataFrame]
# Short, so that the tests are; how long planning waits is shown with a clock of its own.
QUICK = {"connectTimeoutMs": "500", "requestTimeoutMs": "800", "retry.maxDelayMs": "200"}

BODIES = StructType([StructField("body", BinaryType())])


@pytest.fixture(params=["nameServer", "endpoints"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def proxy(broker: Broker, transport: str) -> Iterator[FaultProxy]:
    target = broker.name_server if transport == "nameServer" else broker.endpoints
    with FaultProxy(target) as proxy:
        yield proxy


@pytest.fixture
def options(broker: Broker, transport: str, proxy: FaultProxy) -> dict[str, str]:
    """The options that lead to the broker through the proxy."""
    if transport == "endpoints":
        return {"endpoints": proxy.address, **QUICK}
    mapped = f"{broker.name_server}={proxy.address}"
    return {"nameServer": proxy.address, "addressMap": mapped, **QUICK}


def break_it(proxy: FaultProxy, how: str) -> None:
    if how == "closed port":
        proxy.refuse()
    else:
        proxy.link = Link.BLACK_HOLE


def repair(proxy: FaultProxy, how: str) -> None:
    if how == "closed port":
        proxy.listen()
    else:
        proxy.link = Link.OPEN


@pytest.mark.parametrize("how", ["closed port", "black hole"])
def test_a_read_of_a_cluster_that_is_not_there_fails_instead_of_waiting(
    loader: Loader, topic: str, read: Read, queries: Queries, proxy: FaultProxy,
    options: dict[str, str], transport: str, how: str,
) -> None:  # fmt: skip
    loader.create(topic, 1)
    break_it(proxy, how)
    with pytest.raises(PySparkException) as failure:
        read(**options).collect()
    with pytest.raises(PySparkException) as stream_failure:
        queries.available(startingOffsets="earliest", **options)
    for text in (str(failure.value), str(stream_failure.value)):
        (error,) = {line for line in text.splitlines() if "[ROCKETMQ_CONNECTION" in line}
        error = error[error.index("[ROCKETMQ_") :]
        where = f"{transport}={proxy.address}: {proxy.address} does not answer"
        assert error.startswith(f"[ROCKETMQ_CONNECTION.UNREACHABLE] {where} (")
        assert "Check the address" in error


def test_a_broker_at_an_address_that_leads_nowhere_is_named(
    broker: Broker, loader: Loader, topic: str, read: Read
) -> None:
    loader.create(topic, 1)
    with FaultProxy(broker.name_server) as closed:
        closed.refuse()
        mapped = f"{broker.name_server}={closed.address}"
        with pytest.raises(PySparkException) as failure:
            # The name server is asked directly: only the way to the broker is closed.
            read(nameServer=f"localhost:{broker.name_server.rpartition(':')[2]}",
                 addressMap=mapped, **QUICK).collect()  # fmt: skip
    assert f"{closed.address} does not answer" in str(failure.value)
    assert "give addressMap" in str(failure.value)


@pytest.mark.parametrize("how", ["closed port", "black hole"])
def test_a_running_stream_outlasts_what_planning_would_not(
    loader: Loader,
    topic: str,
    queries: Queries,
    proxy: FaultProxy,
    options: dict[str, str],
    how: str,
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 5)
    batches = Batches()
    heal = threading.Timer(2.0, repair, [proxy, how])

    def take(frame: DataFrame, batch_id: int) -> None:
        if not heal.is_alive() and not batches.seen:
            # Planned, and not yet read: Spark reads when the rows are asked for.
            break_it(proxy, how)
            proxy.reset()
            heal.start()
        batches(frame, batch_id)

    frame = queries.load(startingOffsets="earliest", pullTimeoutMs="1000", **options)
    query = queries.start(frame, take)
    queries.until(query, lambda: len(batches.rows) == 5)
    assert not heal.is_alive()
    loader.put(queue, 3)
    queries.until(query, lambda: len(batches.rows) == 8)
    assert batches.rows == loader.rows(queue)


def test_stop_does_not_wait_for_a_task_that_waits(
    loader: Loader, topic: str, queries: Queries, proxy: FaultProxy, options: dict[str, str]
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 5)
    batches, is_reading = Batches(), threading.Event()

    def take(frame: DataFrame, batch_id: int) -> None:
        proxy.link = Link.BLACK_HOLE
        is_reading.set()
        batches(frame, batch_id)

    options = {"startingOffsets": "earliest", "retry.outageMs": "1h", **options}
    query = queries.start(queries.load(**options), take)
    queries.until(query, is_reading.is_set)
    query.awaitTermination(1)
    stopping = threading.Thread(target=query.stop)
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive()
    assert batches.rows == []


@pytest.mark.parametrize("how", ["closed port", "black hole"])
def test_a_task_waits_and_logs_it_once(
    loader: Loader, topic: str, proxy: FaultProxy, options: dict[str, str], how: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 5)
    options = {"subscribe": topic, "pullTimeoutMs": "300", "retry.outageMs": "20s", **options}
    source = RocketMQDataSource(options)
    reader = source.reader(BODIES)
    # Its end is known when it is read: the task asks for it first, and then for the messages.
    (task,) = reader.partitions()
    heal = threading.Timer(1.5, repair, [proxy, how])
    break_it(proxy, how)
    proxy.reset()
    heal.start()
    assert sum(batch.num_rows for batch in reader.read(task)) == 5
    assert [line for line in caplog.messages if "for up to 20 s: [ROCKETMQ_CONNECTION" in line]
    assert len([line for line in caplog.messages if "for up to" in line]) <= 2


@pytest.mark.parametrize("how", ["closed port", "black hole"])
def test_a_download_waits_and_logs_it_once(
    loader: Loader, topic: str, proxy: FaultProxy, options: dict[str, str], how: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 5)
    options = {"subscribe": topic, "pullTimeoutMs": "300", "retry.outageMs": "20s", **options}
    source = RocketMQDataSource(options)
    plan = source.streamReader(BODIES)._plan
    heal = threading.Timer(1.5, repair, [proxy, how])
    break_it(proxy, how)
    heal.start()
    assert sum(batch.num_rows for batch in read_ranges(plan, [OffsetRange(queue, 0, 5)])) == 5
    (line,) = [line for line in caplog.messages if line.startswith("waiting for ")]
    assert " for up to 20 s: [ROCKETMQ_CONNECTION." in line
    (line,) = [line for line in caplog.messages if line.endswith("s, the download resumes")]
    assert " answers again after " in line
