"""pushDown=once: Spark's filters narrow what is read, and a plan serves no query but its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_rocketmq import DefaultSource
from pyspark_rocketmq.read.task import TaskPartition
from rocketmq_broker import Broker
from support.loader import Loader

# Spark 4.0 has no filters to push down.
datasource = pytest.importorskip("pyspark.sql.datasource")
pytestmark = pytest.mark.skipif(
    not hasattr(datasource, "EqualTo"), reason="Spark 4.0 pushes no filters down to Python"
)
_CONF = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def switched_on(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(_CONF, "true")
    yield
    spark.conf.unset(_CONF)


@pytest.fixture
def filled(loader: Loader, topic: str) -> None:
    """Two queues, in each 60 messages with tag A and then 40 with tag B."""
    for queue in loader.create(topic, 2):
        loader.put(queue, 60, tag="A")
        loader.put(queue, 40, tag="B")


@pytest.mark.usefixtures("filled")
def test_no_more_is_read_than_can_pass(broker: Broker, topic: str, spark: SparkSession) -> None:
    given = {"nameServer": broker.name_server, "subscribe": topic, "pushDown": "once"}
    source = DefaultSource(given)
    reader = source.reader(spark.createDataFrame([], source.schema()).schema)
    filters = [
        datasource.In(("tags",), ["B", "C"]),
        datasource.GreaterThanOrEqual(("queueOffset",), 50),
        datasource.LessThan(("queueOffset",), 70),
        datasource.EqualTo(("queueId",), 1),
        datasource.StringStartsWith(("keys",), "no such key"),
    ]
    assert reader.pushFilters(filters) == filters
    tasks = reader.partitions()
    pieces = [
        piece for task in tasks if isinstance(task, TaskPartition) for piece in task.task.slices
    ]
    assert [(piece.queue.index, piece.start, piece.end) for piece in pieces] == [(1, 50, 70)]
    # Of 200 messages: the filter on keys is Spark's alone.
    assert sum(batch.num_rows for task in tasks for batch in reader.read(task)) == 10


@pytest.mark.usefixtures("filled", "switched_on")
def test_filters_are_pushed_down_for_one_query(read: Callable[..., DataFrame]) -> None:
    narrow = read(pushDown="once")
    wanted = "tags = 'B' AND queueOffset >= 70 AND storeTimestamp >= TIMESTAMP '2000-01-01'"
    assert narrow.where(wanted).count() == 60
    # Spark 4.3 would count the 60 again.
    with pytest.raises(PySparkException, match=r"PUSH_DOWN_REUSED\].*Call load\(\) again"):
        narrow.count()


@pytest.mark.usefixtures("filled", "switched_on")
def test_a_plan_that_was_only_shown_is_no_plan_for_another_query(
    read: Callable[..., DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    narrow = read(pushDown="once")
    narrow.where("tags = 'B'").explain()
    assert "BatchScan" in capsys.readouterr().out
    with pytest.raises(PySparkException, match="PUSH_DOWN_REUSED"):
        narrow.count()


@pytest.mark.usefixtures("filled")
def test_spark_says_what_to_switch_on(read: Callable[..., DataFrame]) -> None:
    with pytest.raises(PySparkException, match=_CONF.replace(".", r"\.")):
        read(pushDown="once").where("tags = 'B'").count()
