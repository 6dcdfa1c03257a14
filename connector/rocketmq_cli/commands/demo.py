"""`rmq demo`: runs the bundled broker, sends orders, and runs a streaming query over them.

The demo shows `format("rocketmq")` without any registration, results while messages arrive, and the
consumer group's committed offsets at the broker.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rocketmq_cli.arguments import Verbs, add_verb
from rocketmq_cli.terminal.output import Record, show, titles_of
from rocketmq_cli.usage import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from rocketmq_cli.messages.sending import LineSender
    from rocketmq_cli.support.broker_process import BrokerProcess

TOPIC = "orders"
GROUP = "demo"
QUEUES = 4
_TIMEOUT_S = 120
_POLL_S = 0.2
_LAG_TIMEOUT_S = 10
_PRODUCTS = {"apples": 0.4, "bread": 3.2, "coffee": 7.9, "dates": 5.5, "eggs": 2.8}
_SEED = 7
_BATCH = 100
_INTERVAL_S = 0.1
# The rest is sent while the query runs, so that it sees messages arrive.
_FIRST_SHARE = 0.3


def add_parser(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "demo",
        _demo,
        "  rmq demo --short\n  rmq demo --orders 20000 --endpoints",
        description="Starts the bundled broker, sends orders to it, and sums them up with Spark.",
    )
    parser.add_argument("--orders", type=int, default=6_000, help="how many (default: 6000)")
    parser.add_argument("--short", action="store_true", help="2,000 orders")
    parser.add_argument("--endpoints", action="store_true", help="read over gRPC")
    parser.add_argument(
        "--class-archive",
        type=Path,
        metavar="FOLDER",
        help="store Spark's loaded classes here, so that the next start is faster",
    )


def _demo(args: argparse.Namespace) -> int:
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise UsageError("the demo needs Spark: pip install 'pyspark-rocketmq[spark]'") from error

    # SIGTERM, too, stops the broker and Spark and removes their files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="rocketmq-demo-"))
    try:
        _run(args, directory)
    except Exception:
        # Spark logs the reason to a file that is removed below.
        for log in directory.glob("*.log"):
            sys.stderr.write(log.read_text(errors="replace")[-4_000:])
        raise
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    _print(f"done in {time.monotonic() - began:.0f} s, everything is cleaned up")
    return 0


def _run(args: argparse.Namespace, directory: Path) -> None:
    from rocketmq_cli.support.broker_process import BrokerProcess

    count = 2_000 if args.short else args.orders
    with BrokerProcess(directory / "broker") as broker:
        _print(f"broker is up: nameServer {broker.name_server}, endpoints {broker.endpoints}")
        orders = OrderStream(broker.name_server, count)
        orders.start()
        try:
            _print(
                f"sending {count:,} orders into {QUEUES} queues of topic {TOPIC!r}; starting Spark"
            )
            _aggregate(args, directory, broker, orders)
        finally:
            orders.stop()


def _aggregate(
    args: argparse.Namespace, directory: Path, broker: BrokerProcess, orders: OrderStream
) -> None:
    from rocketmq_cli.support.local_spark import QUICK_START, ClassArchive, end_jvm, local_session

    archive = ClassArchive.within(args.class_archive) if args.class_archive else None
    options = f"{QUICK_START} {archive.java_option if archive else ''}"
    spark = local_session("rmq demo", directory, java_options=options)
    try:
        connect = ("nameServer", broker.name_server)
        if args.endpoints:
            connect = ("endpoints", broker.endpoints)
        query = _start_query(spark, directory, connect)
        _print(f'reading: spark.readStream.format("rocketmq").option{connect} ...')
        orders.send_rest()
        _follow(query, orders)
        _show_result(spark)
        _show_committed_offsets(broker.name_server)
        query.stop()
    finally:
        if archive is not None:
            if not archive.exists:
                _print("storing Spark's loaded classes, so that the next start is faster")
            end_jvm(spark, archive)
        else:
            spark.stop()


def _start_query(spark: SparkSession, directory: Path, connect: tuple[str, str]) -> StreamingQuery:
    from pyspark.sql import functions as f

    messages = (
        spark.readStream.format("rocketmq")
        .option(*connect)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("group", GROUP)
        # One task reads the four small ranges fastest: each further task costs more than it saves.
        .option("maxPartitions", "1")
        .load()
    )
    order = f.from_json(f.col("body").cast("string"), "product STRING, pieces INT, amount DOUBLE")
    totals = (
        messages.select(order.alias("order"))
        .groupBy("order.product")
        .agg(
            f.count("*").alias("orders"),
            f.sum("order.pieces").alias("pieces"),
            f.round(f.sum("order.amount"), 2).alias("amount"),
        )
    )
    return (
        totals.writeStream.format("memory")
        .queryName("totals")
        .outputMode("complete")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start()
    )


def _follow(query: StreamingQuery, orders: OrderStream) -> None:
    """Print what every batch read, until the query has read all orders."""
    read = 0
    seen = -1
    give_up_at = time.monotonic() + _TIMEOUT_S
    while read < orders.count or query.lastProgress is None:
        error = query.exception() or orders.error
        if error is not None:
            raise error
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{read:,} of {orders.count:,} orders in {_TIMEOUT_S} s")
        for progress in query.recentProgress:
            if progress.batchId > seen and progress.numInputRows:
                seen = progress.batchId
                read += progress.numInputRows
                _print(
                    f"  batch {seen}: {progress.numInputRows:,} orders in"
                    f" {progress.durationMs['triggerExecution']} ms; {read:,} read,"
                    f" {orders.sent:,} sent"
                )
        time.sleep(_POLL_S)


def _show_result(spark: SparkSession) -> None:
    rows = [row.asDict() for row in spark.table("totals").orderBy("product").collect()]
    print()
    show(
        [{**row, "amount": f"{row['amount']:,.2f}"} for row in rows],
        titles_of("product", "orders", "pieces", "amount"),
        as_json=False,
    )


def _show_committed_offsets(name_server: str) -> None:
    """Print the group's committed offsets at the broker, which any RocketMQ tool can read."""
    from rocketmq_cli.groups import group_offsets
    from rocketmq_client.cluster import open_cluster
    from rocketmq_client.settings import ConnectionSettings

    with open_cluster(ConnectionSettings(name_servers=(name_server,))) as cluster:
        give_up_at = time.monotonic() + _LAG_TIMEOUT_S
        while True:
            offsets = group_offsets(cluster, GROUP, TOPIC).queues
            lag = sum(at.lag for at in offsets.values())
            # The query commits a batch when it plans the next one, shortly after the batch.
            if (lag == 0 and len(offsets) == QUEUES) or time.monotonic() > give_up_at:
                break
            time.sleep(_POLL_S)
    print(f"\ngroup {GROUP!r} at the broker: lag {lag:,}")
    records: list[Record] = [
        {
            "queue": f"{queue.broker}/{queue.index}",
            "committed": at.consumer_offset,
            "end": at.broker_offset,
            "lag": at.lag,
        }
        for queue, at in sorted(offsets.items())
    ]
    show(records, titles_of("queue", "committed", "end", "lag"), as_json=False)
    print(flush=True)


def _print(text: str) -> None:
    print(text, flush=True)


class OrderStream:
    """Creates the topic and sends orders steadily: some at first, the others after `send_rest`."""

    def __init__(self, name_server: str, count: int) -> None:
        self.count = count
        self.sent = 0
        self.error: Exception | None = None
        self._name_server = name_server
        self._stopped = threading.Event()
        self._sends_rest = threading.Event()

    def start(self) -> None:
        from rocketmq_cli.messages.sending import LineSender
        from rocketmq_client.cluster import open_cluster
        from rocketmq_client.settings import ConnectionSettings
        from rocketmq_wire.model import TopicConfig

        settings = ConnectionSettings(name_servers=(self._name_server,))
        with open_cluster(settings) as cluster:
            cluster.create_topic(TopicConfig(TOPIC, QUEUES, QUEUES))
        sender = LineSender(settings, TOPIC)
        self._thread = threading.Thread(target=self._run, args=(sender,), daemon=True)
        self._thread.start()

    def send_rest(self) -> None:
        self._sends_rest.set()

    def stop(self) -> None:
        self._stopped.set()
        self._sends_rest.set()
        self._thread.join()

    def _run(self, sender: LineSender) -> None:
        try:
            with sender:
                for batch in _batches(self.count):
                    if self.sent >= self.count * _FIRST_SHARE:
                        self._sends_rest.wait()
                    if self._stopped.wait(_INTERVAL_S):
                        return
                    sender.send(batch)
                    self.sent += len(batch)
        except Exception as error:  # noqa: BLE001 - outermost frame; the main loop raises it.
            self.error = error


def _batches(count: int) -> Iterator[list[bytes]]:
    chance = random.Random(_SEED)
    for start in range(0, count, _BATCH):
        yield [_order(chance, number) for number in range(start, min(start + _BATCH, count))]


def _order(chance: random.Random, number: int) -> bytes:
    product = chance.choice(list(_PRODUCTS))
    pieces = chance.randint(1, 9)
    order = {
        "order": number,
        "product": product,
        "pieces": pieces,
        "amount": round(pieces * _PRODUCTS[product], 2),
        "at": round(time.time(), 3),
    }
    return json.dumps(order).encode()
