"""What measurements stand on: a broker in its own process, loaded topics, Spark, captured batches.

Everything is made when it is first asked for, and goes when the bed is closed.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.streaming import DataStreamReader
from pyspark.sql.types import StructType

from bench.capture import Capture, capture
from bench.load import QUEUES, load_topic
from bench.registry import Scale
from bench.replay import FORMAT, EmptySource, ReplaySource
from rocketmq_cli.support.broker_process import BrokerProcess
from rocketmq_cli.support.local_spark import local_session
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings

TRANSPORTS = ("nameServer", "endpoints")
BODY_SIZES = (100, 1024)


class Bed:
    """One broker, one Spark session and the topics on them."""

    def __init__(self, scale: Scale) -> None:
        self.scale = scale
        self._stack = ExitStack()
        self.directory = Path(tempfile.mkdtemp(prefix="rocketmq-bench-"))
        self._stack.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self._loaded: dict[int, str] = {}
        self._captures: dict[int, Capture] = {}
        self._checkpoints = 0

    def close(self) -> None:
        self._stack.close()

    @cached_property
    def broker(self) -> BrokerProcess:
        """Started with the defaults: sync flush."""
        say("starting the broker")
        return self._stack.enter_context(BrokerProcess(self.directory / "broker"))

    @property
    def broker_data(self) -> Path:
        """The broker's store."""
        return self.directory / "broker" / "data"

    @cached_property
    def spark(self) -> SparkSession:
        say("starting Spark")
        spark = local_session("bench", self.directory, {"spark.driver.memory": "4g"})
        self._stack.callback(spark.stop)
        spark.dataSource.register(ReplaySource)
        spark.dataSource.register(EmptySource)
        return spark

    def settings(self, transport: str) -> ConnectionSettings:
        if transport == "endpoints":
            return ConnectionSettings(endpoints=self.broker.endpoints)
        return ConnectionSettings(name_servers=(self.broker.name_server,))

    def open_cluster(self, transport: str) -> Cluster:
        """A client of its own for a measurement; close it."""
        return open_cluster(self.settings(transport))

    def topic(self, body_size: int) -> str:
        """The topic with bodies of this size, loaded the first time."""
        if body_size not in self._loaded:
            name = f"bench{body_size}"
            count = self.scale.messages(body_size)
            say(f"loading {count:,} messages of {body_size} bytes into {name}")
            load_topic(self.settings("endpoints"), name, count, body_size)
            self._loaded[body_size] = name
        return self._loaded[body_size]

    def options(self, transport: str, topic: str, **others: str) -> dict[str, str]:
        """The source's options to read a topic from its start."""
        address = self.broker.endpoints if transport == "endpoints" else self.broker.name_server
        return {
            transport: address,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **others,
        }

    def read(self, transport: str, topic: str, **others: str) -> DataFrame:
        options = self.options(transport, topic, **others)
        return self.spark.read.format("rocketmq").options(**options).load()

    def stream(self, transport: str, topic: str, **others: str) -> DataFrame:
        options = self.options(transport, topic, **others)
        return self.spark.readStream.format("rocketmq").options(**options).load()

    def captured(self, body_size: int) -> Capture:
        """The connector's own record batches of the topic, one file a queue."""
        if body_size not in self._captures:
            topic = self.topic(body_size)
            say(f"capturing the record batches of {topic}")
            frame = self.read("endpoints", topic)
            made = capture(
                self.options("endpoints", topic),
                frame.schema,
                self.directory / f"capture{body_size}",
            )
            assert made.rows == self.scale.messages(body_size)
            assert len(made.files) == QUEUES
            self._captures[body_size] = made
        return self._captures[body_size]

    def ceiling(self, body_size: int) -> DataFrame:
        """The same rows in the same partitions, from ready-made batches."""
        reader: DataFrameReader = self.spark.read.format(FORMAT).schema(self._schema(body_size))
        return reader.option("files", self.captured(body_size).option).load()

    def ceiling_stream(self, body_size: int, *, partitions: int) -> DataFrame:
        reader: DataStreamReader = self.spark.readStream.format(FORMAT)
        return (
            reader.schema(self._schema(body_size))
            .option("files", self.captured(body_size).option)
            .option("partitions", str(partitions))
            .option("limit", str(self.scale.batch(body_size)))
            .load()
        )

    def checkpoint(self) -> str:
        """A new, empty place for a query's checkpoint."""
        self._checkpoints += 1
        return str(self.directory / f"checkpoint{self._checkpoints}")

    def broker_process(self) -> psutil.Process:
        return psutil.Process(self.broker.pid)

    def _schema(self, body_size: int) -> StructType:
        """Column by column and nullable, as the connector declares them."""
        return self.read("endpoints", self.topic(body_size)).schema


def say(text: str) -> None:
    """What happens now; figures alone go to standard output."""
    print(f"bench: {text}", file=sys.stderr, flush=True)
