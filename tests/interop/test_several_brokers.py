"""Brokers of one cluster come and go under a Java producer, push consumers and a Spark query."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from interop.brokers import JAVA
from rocketmq_cli.support.broker_process import BrokerProcess
from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.requests.groups import ListGroupClients
from support.consuming import Collector, Topic, settings_of
from support.real_cluster import RealCluster
from support.real_cluster.java import program_arguments
from support.remoting_peer import RemotingPeer

_VERSION = "5.3.3"
_REBALANCE_SECONDS = 30.0
"""As Java clients, members ask for routes each 30 s; they rebalance at once with a new one.

A busy machine adds a few seconds.
"""
_SLACK_SECONDS = 5.0
_SECONDS = 120.0
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]


def seconds_until(is_true: Callable[[], bool], seconds: float = _SECONDS) -> float:
    """How long it took."""
    began = time.monotonic()
    while not is_true():
        assert time.monotonic() < began + seconds, "it did not happen in time"
        threading.Event().wait(0.05)
    return time.monotonic() - began


class Brokers:
    """Three brokers of a cluster that may be killed; their name server stays."""

    def __init__(self, name_server: str, folder: Path, stack: ExitStack) -> None:
        self.name_server = name_server
        self._folder, self._stack = folder, stack

    def add(self, name: str) -> BrokerProcess:
        options = ("--name-server", self.name_server, "--broker-name", name, "--verbose")
        process = BrokerProcess(self._folder / name, *options)
        return self._stack.enter_context(process)


@contextmanager
def cluster_of(kind: str, folder: Path) -> Iterator[tuple[Brokers, dict[str, BrokerProcess]]]:
    """Brokers of ours at RocketMQ's name server, or at ours beside a broker of RocketMQ."""
    with ExitStack() as stack:
        rocketmq = RealCluster(_VERSION, folder, is_brief=True)
        stack.callback(rocketmq.close)
        brokers = Brokers(rocketmq.name_server, folder, stack)
        if kind == "theirs":
            rocketmq.start_name_server()
            started = {name: brokers.add(name) for name in ("broker-a", "broker-b", "broker-c")}
        else:
            port = rocketmq.name_server.rpartition(":")[2]
            own = BrokerProcess(folder / "broker-a", "--port", port, "--verbose")
            stack.enter_context(own)
            started = {"broker-a": own, "broker-b": brokers.add("broker-b")}
            rocketmq.add_broker("broker-c", defaultTopicQueueNums="2")
        yield brokers, started


class Steady:
    """A Java producer that sends numbers."""

    def __init__(self, name_server: str, topic: str, home: Path) -> None:
        command = ["java", *program_arguments(_VERSION, JAVA / "Steady.java", home)]
        self._output = home / "sent.txt"
        with self._output.open("wb") as output, (home / "errors.txt").open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, name_server, topic],
                cwd=home,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=errors,
            )

    @property
    def sent(self) -> set[bytes]:
        """What brokers have acknowledged."""
        lines = self._output.read_bytes().splitlines()
        return {line.split()[1] for line in lines if line.startswith(b"SENT ")}

    def end(self) -> set[bytes]:
        self._process.communicate(b"\n", timeout=60)
        assert self._output.read_bytes().endswith(b"END\n")
        return self.sent

    def __enter__(self) -> Steady:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def query(spark: SparkSession, topic: Topic, folder: Path) -> Iterator[set[bytes]]:
    """The bodies that a streaming query has got."""
    got: set[bytes] = set()

    def take(batch: DataFrame, _: int) -> None:
        got.update(bytes(row.body) for row in batch.select("body").collect())

    options = {"nameServer": topic.connection.cluster_address, "subscribe": topic.name}
    frame = spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest")
    writer = frame.load().writeStream.foreachBatch(take)
    running = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    try:
        yield got
        assert running.exception() is None
    finally:
        running.stop()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["theirs", "ours"])
def test_one_broker_is_killed_and_one_added_and_nothing_is_lost(
    kind: str, spark_rocketmq: SparkSession, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        brokers, started = stack.enter_context(cluster_of(kind, tmp_path))
        connection = ConnectionSettings((brokers.name_server,))
        topic = Topic(connection, "orders", 2)
        names = {queue.broker for queue in topic.queues}
        assert names == {"broker-a", "broker-b", "broker-c"}
        collector = Collector()
        members = [
            stack.enter_context(PushConsumer(connection, settings_of(topic), collector))
            for _ in range(2)
        ]

        def owned() -> list[str]:
            """The brokers of the members' queues, in order."""
            queues = [queue for member in members for queue in member.queues]
            return sorted(queue.broker for queue in queues if queue.topic == topic.name)

        seconds_until(lambda: owned() == sorted([*names, *names]))
        cluster = stack.enter_context(open_cluster(connection))
        for each in cluster.cluster_info().brokers:
            with RemotingPeer(each.addresses[0]) as peer:
                # Heartbeats go to all brokers, so each of them can be asked for the members.
                clients = peer.call(ListGroupClients(settings_of(topic).group)).client_ids
                assert len(clients) == 2
        rows = stack.enter_context(query(spark_rocketmq, topic, tmp_path))
        producer = stack.enter_context(Steady(brokers.name_server, topic.name, tmp_path))
        seconds_until(lambda: len(rows) > 200 and len(set(collector.bodies)) > 200)

        victim = started["broker-b"]
        victim.kill()
        left = names - {"broker-b"}
        killed_s = seconds_until(lambda: owned() == sorted([*left, *left]))
        sent = len(producer.sent)
        seconds_until(lambda: len(producer.sent) > sent + 200)

        brokers.add("broker-d")
        cluster.create_topic(TopicConfig(topic.name, 2, 2), "broker-d")
        all_left = {*left, "broker-d"}
        added_s = seconds_until(lambda: owned() == sorted([*all_left, *all_left]))
        new_queues = [queue for queue in cluster.queues(topic.name) if queue.broker == "broker-d"]
        seconds_until(lambda: all(each.end > 20 for each in cluster.bounds(new_queues).values()))  # type: ignore[union-attr]

        # It holds messages that it acknowledged before its end.
        victim.start()
        acknowledged = producer.end()
        consumed_s = seconds_until(lambda: acknowledged <= set(collector.bodies))
        read_s = seconds_until(lambda: acknowledged <= rows)
        assert set(collector.bodies) <= {str(number).encode() for number in range(10**6)}
        print(
            f"\n{kind}: {len(acknowledged)} acknowledged, 0 lost; queues moved {killed_s:.1f} s "
            f"after the kill, {added_s:.1f} s after the addition; all consumed after "
            f"{consumed_s:.1f} s, all read after {read_s:.1f} s more"
        )
    assert max(killed_s, added_s) < _REBALANCE_SECONDS + _SLACK_SECONDS
