"""One Spark session, one broker and a topic of its own for each test."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession

from rocketmq_broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_cli.support.local_spark import QUICK_START
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from support.loader import Loader
from support.queries import Queries

_HERE = Path(__file__).parent
_topics = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs Spark, whose gateway leaves sockets to the interpreter's end."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(400))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))


# Spark's usual way to rename checkpoint files starts eight processes for each, to look for links:
# on a local disk that is more work than a small micro-batch is. Spark 4.0 has it elsewhere.
_CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    )
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.driver.extraJavaOptions": QUICK_START,
        **({} if pyspark.__version__.startswith("4.0") else _CHECKPOINTS),
    }
    # Spark's own lookup of formats, and its workers, must run in this environment.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,4]").appName("pyspark-rocketmq-tests")
    for name, text in settings.items():
        builder = builder.config(name, text)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = BrokerConfig(data_dir=str(tmp_path_factory.mktemp("broker")), flush="async")
    with Broker(config) as running:
        yield running


@pytest.fixture
def loader(broker: Broker) -> Iterator[Loader]:
    settings = ConnectionSettings(name_servers=(broker.name_server,))
    with open_cluster(settings) as cluster:
        yield Loader(cluster)


@pytest.fixture
def topic() -> str:
    return f"orders-{next(_topics)}"


@pytest.fixture
def read(spark: SparkSession, broker: Broker, topic: str) -> Callable[..., DataFrame]:
    """A batch read of the test's topic, with options and an optional schema."""

    def load(schema: str | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("rocketmq").options(
            **Queries.complete(broker.name_server, topic, options)
        )
        return (reader.schema(schema) if schema else reader).load()

    return load


@pytest.fixture
def queries(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> Iterator[Queries]:
    """Streaming queries over the test's topic, stopped when the test is over."""
    started = Queries(spark, broker.name_server, topic, tmp_path)
    yield started
    started.stop()
