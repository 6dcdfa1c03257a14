"""A declarative pipeline reads a topic and writes another, run by Spark's own command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from rocketmq_broker import Broker, BrokerConfig
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import Bounds
from support.loader import Loader

pytest.importorskip("pyspark.pipelines", reason="declarative pipelines came with Spark 4.1")
_SECONDS_MAX = 900

SPEC = """\
name: orders
storage: {folder}/storage
configuration:
  # Spark gives a stream's Python process ten seconds to start: a busy machine starts one at a time.
  spark.sql.pipelines.execution.maxConcurrentFlows: "1"
  spark.sql.pipelines.maxFlowRetryAttempts: "10"
libraries:
  - glob:
      include: transformations/**
"""
ORDERS = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
SERVER = {"nameServer": "NAME_SERVER"}


@dp.temporary_view
def orders():
    reader = spark.readStream.format("rocketmq").options(**SERVER)
    return reader.option("subscribe", "orders").option("startingOffsets", "earliest").load()


@dp.table
def stored():
    return spark.readStream.table("orders")


dp.create_sink("copies", "rocketmq", {**SERVER, "topic": "copies"})


@dp.append_flow(target="copies")
def copied():
    return spark.readStream.table("stored").select("body", "keys")
"""
TOTALS = """\
CREATE STREAMING TABLE places AS SELECT queueId, queueOffset FROM STREAM orders;
CREATE MATERIALIZED VIEW totals AS
    SELECT queueId, count(*) AS messages FROM stored GROUP BY queueId;
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with (
        Broker(BrokerConfig(flush="memory")) as broker,
        open_cluster(ConnectionSettings(name_servers=(broker.name_server,))) as cluster,
    ):
        yield cluster


def run_pipeline(folder: Path) -> None:
    spark_home = Path(sys.modules["pyspark"].__file__ or "").parent
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_HOME": str(spark_home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
    }
    confs = [word for key, text in settings.items() for word in ("--conf", f"{key}={text}")]
    ended = subprocess.run(
        [
            "spark-pipelines",
            "--remote",
            "local[2]",
            *confs,
            "run",
            "--spec",
            str(folder / "spark-pipeline.yml"),
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout[-6000:]}\n{ended.stderr[-6000:]}"


def stored_in(folder: Path, table: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = (
        ds.dataset(folder / "warehouse" / table, format="parquet").to_table().to_pylist()
    )
    return rows


@pytest.mark.short
@pytest.mark.timeout(1_000)
def test_a_pipeline_stores_each_message_once(cluster: Cluster, tmp_path: Path) -> None:
    """Views in Python, tables in SQL over them, and a sink: each message once in each."""
    loader = Loader(cluster)
    queues = loader.create("orders", 2)
    copies = loader.create("copies", 1)
    (tmp_path / "transformations").mkdir()
    server = cluster.settings.name_servers[0]
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(folder=tmp_path.as_uri()))
    (tmp_path / "transformations" / "orders.py").write_text(ORDERS.replace("NAME_SERVER", server))
    (tmp_path / "transformations" / "totals.sql").write_text(TOTALS)
    count = 5
    for queue in queues:
        loader.put(queue, count)
    run_pipeline(tmp_path)
    wanted = [(index, offset) for index in range(2) for offset in range(count)]
    for table in ("stored", "places"):
        rows = stored_in(tmp_path, table)
        assert sorted((row["queueId"], row["queueOffset"]) for row in rows) == wanted
    assert sorted((r["queueId"], r["messages"]) for r in stored_in(tmp_path, "totals")) == [
        (0, count),
        (1, count),
    ]
    held = cluster.bounds(copies)[copies[0]]
    assert isinstance(held, Bounds)
    assert held.end == 2 * count
