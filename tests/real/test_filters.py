"""SQL92 filters at real brokers: what they select, and what they answer when they may not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from rocketmq_wire.errors import BrokerError, FilterWordsError
from rocketmq_wire.model import Subscription
from support.loader import Loader
from support.queries import Queries, rows_of
from support.real_cluster import RealCluster

Read = Callable[..., DataFrame]


def test_sql_is_refused_by_a_broker_that_has_it_off(loader: Loader, topic: str, read: Read) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 5)
    with pytest.raises(BrokerError, match="does not support consumer to filter message by SQL92"):
        loader.cluster.pull(queue, 0, 5, subscription=Subscription("a > 1", "SQL92"))
    with pytest.raises(PySparkException, match=r"ROCKETMQ_UNSUPPORTED.SQL92.*enablePropertyFilter"):
        read(sql="a > 1").count()


@pytest.fixture
def allowed(broker: RealCluster) -> Iterator[None]:
    """SQL92 on, for one test."""

    def allow(text: str) -> None:
        broker.admin(
            *("updateBrokerConfig", "-b", broker.master.address),
            *("-k", "enablePropertyFilter", "-v", text),
        )

    allow("true")
    yield
    allow("false")


@pytest.mark.usefixtures("allowed")
def test_sql_selects_at_a_broker_that_has_it_on(
    loader: Loader, topic: str, read: Read, queries: Queries
) -> None:
    first, second = loader.create(topic, 2)
    # Long stretches without a match: the broker scans some hundreds of messages a pull.
    loader.put(first, 900, properties={"n": "1", "region": "north"})
    loader.put(first, 40, properties={"n": "2", "region": "süd"})
    loader.put(first, 2_500, tag="B")
    loader.put(first, 10, properties={"n": "3", "region": "north"})
    loader.put(second, 30, properties={"n": "nothing", "region": "süd"})
    loader.put(second, 30, tag="B", properties={"n": "7"})
    of_first = loader.rows(first, start=900, end=940) + loader.rows(first, start=3_440)
    wanted = {
        "n BETWEEN 2 AND 3": of_first,
        "region = 'süd' OR n > 6": loader.rows(first, start=900, end=940) + loader.rows(second),
        "n IS NULL AND TAGS = 'B'": loader.rows(first, start=940, end=3_440),
        "region IN ('west') AND n > 0": [],
    }
    for expression, rows in wanted.items():
        assert rows_of(read(sql=expression)) == rows, expression
    streamed = queries.available(
        sql="n BETWEEN 2 AND 3", startingOffsets="earliest", maxOffsetsPerTrigger="1000"
    )
    assert streamed.rows == of_first
    with pytest.raises(PySparkException, match=r"ROCKETMQ_.*n >"):
        read(sql="n >").count()


@pytest.mark.usefixtures("allowed")
def test_words_that_a_broker_is_too_old_for_are_refused(
    broker: RealCluster, loader: Loader, topic: str, read: Read
) -> None:
    (queue,) = loader.create(topic, 1)
    loader.put(queue, 5, properties={"n": "1", "region": "north"})
    loader.put(queue, 5, properties={"n": "2", "region": "south"})
    expressions = ["region CONTAINS 'ort'", "n > 0 AND region STARTSWITH 'no'"]
    for expression in expressions:
        if broker.is_4:
            with pytest.raises(FilterWordsError):
                loader.cluster.pull(queue, 0, 10, subscription=Subscription(expression, "SQL92"))
            with pytest.raises(PySparkException, match=r"UNSUPPORTED.SQL92_WORDS.*4\.9\.7"):
                read(sql=expression).count()
        else:
            assert rows_of(read(sql=expression)) == loader.rows(queue, end=5), expression
