"""A write's task against a broker: it succeeds when all is stored, and only then."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_rocketmq.errors import OptionError, UnsupportedError
from pyspark_rocketmq.options.parse import write_options
from pyspark_rocketmq.sink import writers
from pyspark_rocketmq.sink.encoding.batches import SinkRequests
from pyspark_rocketmq.sink.encoding.plan import SinkLayout, SinkPlan, WriteId, sink_plan
from pyspark_rocketmq.sink.encoding.routes import RetryingQueues
from pyspark_rocketmq.sink.task import TaskWritten, abort_write, write_task
from pyspark_rocketmq.sink.transactional.commit import send_half_messages
from pyspark_rocketmq.sink.writers import batch_write_id, stream_writer
from pyspark_rocketmq.source import RocketMQDataSource
from rocketmq_broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.errors import SendOutcomeUnknownError
from rocketmq_client.producer import producer
from rocketmq_client.producer.producer import Producer
from rocketmq_client.retry import Retry
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import (
    BrokerError,
    ConnectError,
    MessageTooLargeError,
    NotAuthorizedError,
    TopicNotFoundError,
    broker_error,
)
from rocketmq_wire.model import (
    PERMISSION_READ,
    PERMISSION_WRITE,
    Bounds,
    BrokerAddresses,
    Host,
    Message,
    QueueId,
    QueueSet,
    Route,
    TopicConfig,
)
from rocketmq_wire.records.message_id import offset_message_id
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import SendBatch, SendMessage, SendReply, SendStatus
from support.fake_clock import FakeClock
from support.fault_proxy import FaultProxy
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue
from support.transactional_writes import RoutelessTransport
from support.visible_messages import visible

TOPIC = "written"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(BrokerConfig(flush="memory")) as running:
        yield running


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with open_cluster(ConnectionSettings(name_servers=(broker.name_server,))) as cluster:
        cluster.create_topic(TopicConfig(TOPIC, 2, 2))
        yield cluster
        cluster.delete_topic(TOPIC)


@pytest.fixture(params=["tcp", "grpc"])
def proxied(
    request: pytest.FixtureRequest, broker: Broker
) -> Iterator[tuple[FaultProxy, ConnectionSettings]]:
    """A way to the broker that can be broken, and settings that give up soon."""
    target = broker.name_server if request.param == "tcp" else broker.endpoints
    with FaultProxy(target) as proxy:
        settings = {
            "tcp": ConnectionSettings(
                name_servers=(proxy.address,),
                address_map={target: proxy.address},
                outage_ms=300,
            ),
            "grpc": ConnectionSettings(endpoints=proxy.address, outage_ms=300),
        }[request.param]
        yield proxy, settings


def task(
    settings: ConnectionSettings, batches: Iterator[pa.RecordBatch], *, had_topics: bool = False
) -> int:
    is_grpc = settings.endpoints is not None
    plan = plan_of(settings, is_grpc=is_grpc)
    report = write_task(plan, WriteId("write", "0", 0), batches, had_topics=had_topics)
    assert isinstance(report, TaskWritten)
    return report.rows


def plan_of(settings: ConnectionSettings, *, is_grpc: bool) -> SinkPlan:
    layout = SinkLayout({"body": 0}, TOPIC, 10_000, is_grpc)
    return SinkPlan(settings, layout, "producers", 8, "write")


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    bodies = [b"%d" % number for number in range(first, first + count)]
    return pa.record_batch({"body": pa.array(bodies)})


def stored(cluster: Cluster) -> int:
    found = cluster.bounds(cluster.queues(TOPIC)).values()
    return sum(bounds.end for bounds in found if isinstance(bounds, Bounds))


BODIES = StructType([StructField("body", StringType())])


def test_a_failed_write_says_whether_a_rerun_is_recognised(caplog) -> None:
    plan = cast("SinkPlan", SimpleNamespace(transaction=None))
    abort_write(plan, [TaskWritten(2), None, TaskWritten(1)], has_fixed_id=True)
    abort_write(plan, [TaskWritten(1)], has_fixed_id=False)
    named, unnamed = (record.getMessage() for record in caplog.records)
    assert "; 3 rows of finished tasks" in named
    assert named.endswith("after a rerun drop_replays finds the repeated ones")
    assert unnamed.endswith(
        "without the option writeId a rerun repeats them, and drop_replays cannot tell"
    )


@pytest.mark.usefixtures("cluster")
def test_a_missing_topic_is_reported_before_any_task_begins(broker: Broker) -> None:
    for where in ({"nameServer": broker.name_server}, {"endpoints": broker.endpoints}):
        source = RocketMQDataSource({**where, "topic": "nowhere"})
        with pytest.raises(TopicNotFoundError, match=r"ROCKETMQ_TOPIC_NOT_FOUND\] .*nowhere"):
            source.writer(BODIES, overwrite=False)
        assert RocketMQDataSource({**where, "topic": TOPIC}).writer(BODIES, overwrite=False)


@pytest.mark.usefixtures("cluster")
def test_a_new_stream_to_a_missing_topic_is_refused_before_its_first_tasks(
    broker: Broker, tmp_path: Path
) -> None:
    where = {"nameServer": broker.name_server, "checkpointlocation": f"file:{tmp_path}"}
    source = RocketMQDataSource({**where, "topic": TOPIC[:-1]})
    # Without a log of batches on this machine, or behind the first one, the tasks wait for it.
    assert source.streamWriter(BODIES, overwrite=False)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").touch()
    with pytest.raises(TopicNotFoundError, match=f"Did you mean '{TOPIC}'"):
        source.streamWriter(BODIES, overwrite=False)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").touch()
    assert source.streamWriter(BODIES, overwrite=False)


def test_a_write_to_a_cluster_that_is_away_is_left_to_its_tasks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = RocketMQDataSource({"nameServer": "127.0.0.1:1", "topic": "somewhere"})
    assert source.writer(BODIES, overwrite=False)
    (line,) = caplog.messages
    assert line.startswith("cannot tell yet whether the topic somewhere is there: ")


@contextmanager
def soon(act: Callable[[], object]) -> Iterator[None]:
    """Acts while the test waits."""
    timer = threading.Timer(0.5, act)
    timer.start()
    try:
        yield
    finally:
        timer.join()


@contextmanager
def at_the_first_log_line(act: Callable[[], object]) -> Iterator[None]:
    """Acts when the task has logged that it waits."""
    log = logging.getLogger("pyspark_rocketmq")
    handler = logging.Handler()
    acts = iter([act])
    handler.emit = lambda _: next(acts, lambda: None)()  # type: ignore[method-assign,assignment]
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def test_a_task_that_begins_while_the_cluster_is_away_waits(proxied, cluster, caplog):
    proxy, settings = proxied
    proxy.refuse()
    settings = replace(settings, outage_ms=20_000, request_timeout_ms=100)
    with at_the_first_log_line(proxy.listen):
        assert task(settings, iter([rows(5)])) == 5
    assert stored(cluster) >= 5
    assert [line.partition(" ")[0] for line in caplog.messages] == ["asking", "answered"]


def test_a_task_waits_for_a_topic_that_was_there_and_for_no_other(proxied, cluster):
    _, settings = proxied
    settings = replace(settings, outage_ms=20_000)
    cluster.delete_topic(TOPIC)
    began = time.monotonic()
    with pytest.raises(TopicNotFoundError):
        task(settings, iter([rows(5)]))
    assert time.monotonic() - began < 10
    with soon(lambda: cluster.create_topic(TopicConfig(TOPIC, 2, 2))):
        assert task(settings, iter([rows(5)]), had_topics=True) == 5
    assert stored(cluster) == 5


def test_while_no_broker_is_there_no_topic_is_called_missing(broker, cluster):
    """A name server forgets the topics of an unavailable broker, and knows no other."""
    away = RoutelessTransport(cluster.transport, has_brokers=False)
    clock = FakeClock()
    retrying = Cluster(replace(cluster.settings, outage_ms=5_000), away, clock.clock)
    queues = RetryingQueues(Producer(retrying), retrying, had_topics=False)
    clock.on_sleep = lambda: setattr(retrying, "transport", cluster.transport)
    assert len(queues.queues(TOPIC)) == 2
    assert clock.sleeps == [1_000]
    source = RocketMQDataSource({"nameServer": broker.name_server, "topic": TOPIC})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rocketmq_client.cluster.open_cluster", lambda _: nullcontext(retrying))
        retrying.transport = away
        assert source.writer(BODIES, overwrite=False), "its tasks wait"
        retrying.transport = RoutelessTransport(cluster.transport)
        with pytest.raises(TopicNotFoundError):
            source.writer(BODIES, overwrite=False)


def test_a_topic_that_stays_away_is_reported_at_last(proxied, cluster):
    _, settings = proxied
    cluster.delete_topic(TOPIC)
    with pytest.raises(TopicNotFoundError, match=TOPIC):
        task(settings, iter([rows(5)]), had_topics=True)


def test_a_task_goes_on_with_the_queues_it_knew(proxied, cluster, monkeypatch):
    proxy, settings = proxied
    monkeypatch.setattr(producer, "_ROUTE_AGE_MS_MAX", -1)

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(5)
        proxy.refuse()
        proxy.reset()
        yield rows(5, first=5)

    # Only sends are tried again, requests for routes are not.
    monkeypatch.setattr(Retry, "pause", lambda *_: False)
    with soon(proxy.listen):
        assert task(replace(settings, outage_ms=20_000, request_timeout_ms=100), batches()) == 10
    assert stored(cluster) >= 10


def test_a_topic_that_is_closed_to_writes_is_not_called_missing(proxied, cluster):
    _, settings = proxied
    cluster.create_topic(TopicConfig(TOPIC, 2, 2, permission=PERMISSION_READ))
    with pytest.raises(
        NotAuthorizedError, match=r"NO_PERMISSION\] topic.written. has no queue with"
    ):
        task(settings, iter([rows(5)]), had_topics=True)


def test_a_topic_whose_masters_are_away_is_neither_missing_nor_closed():
    brokers = (BrokerAddresses("one", "cluster", {1: "127.0.0.1:1"}),)
    route = Route((QueueSet("one", 2, 2, PERMISSION_WRITE),), brokers)
    fake = SimpleNamespace(route=lambda _: route)
    with pytest.raises(ConnectError, match="one: its master is unavailable"):
        Producer(cast(Cluster, fake)).queues(TOPIC)


def test_a_task_that_succeeds_has_stored_every_row(proxied, cluster):
    proxy, settings = proxied
    assert task(settings, iter([rows(2_000), rows(1)])) == 2_001
    assert stored(cluster) == 2_001
    assert proxy.accepted > 0


_THROWN = "java.lang.RuntimeException: message{} size exceeded, org.apache.rocketmq.store.Encoder"
_ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. msg body length"
)
REMARKS = {
    "one, 4.9 and 5.x": (13, f"{_ILLEGAL} limit 4194304B, msg properties length limit 32KB."),
    "a batch, 5.x": (1, _THROWN.format(" body")),
    "a batch, 4.9": (1, _THROWN.format("")),
}


@pytest.mark.parametrize("remark", REMARKS)
def test_the_words_of_every_version_for_a_message_too_large_are_one_error(remark: str) -> None:
    code, words = REMARKS[remark]
    error = broker_error(code, words)
    assert isinstance(error, MessageTooLargeError)
    assert not error.retryable
    assert str(error).startswith("[ROCKETMQ_SEND.TOO_LARGE] the broker refused: ")
    assert "raise maxMessageSize at the broker" in str(error)
    assert type(broker_error(code, "something else")) is BrokerError


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("transport", ["tcp", "grpc"])
def test_a_row_larger_than_the_broker_takes_is_refused_at_once(
    broker: Broker, transport: str
) -> None:
    settings = {
        "tcp": ConnectionSettings(name_servers=(broker.name_server,)),
        "grpc": ConnectionSettings(endpoints=broker.endpoints),
    }[transport]
    large = pa.record_batch({"body": pa.array([b"x", bytes(9 << 20), b"y"])})
    began = time.monotonic()
    with pytest.raises(MessageTooLargeError, match=r"ROCKETMQ_SEND.TOO_LARGE\]") as caught:
        task(settings, iter([large]))
    assert "corruptMessages" not in str(caught.value)
    assert time.monotonic() - began < 20


def test_a_last_row_that_is_not_stored_fails_the_task(proxied, cluster):
    proxy, settings = proxied

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(2_000)
        # Behind this nothing passes any more.
        proxy.refuse()
        proxy.reset()
        yield rows(1)

    with pytest.raises((SendOutcomeUnknownError, ConnectError)):
        task(settings, batches())
    assert stored(cluster) <= 2_000


def test_a_broken_connection_loses_nothing(proxied, cluster):
    proxy, settings = proxied

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, 2_000, 500):
            yield rows(500, first)
            proxy.reset()

    assert task(settings, batches()) == 2_000
    found = visible(cluster.settings, TOPIC)
    assert {message.body for message in found} == {b"%d" % number for number in range(2_000)}
    # What was under way when the connection broke is there again, under the same unique keys.
    assert len({(message.body, message.message_id) for message in found}) == 2_000


STORED_SO_FAR = [
    SendStatus.FLUSH_DISK_TIMEOUT,
    SendStatus.FLUSH_SLAVE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE,
]


@pytest.fixture(params=STORED_SO_FAR, ids=lambda status: status.name)
def hesitant(request: pytest.FixtureRequest) -> Iterator[ScriptedBroker]:
    """A broker that has stored what it gets, and waited in vain for its disk or its replica."""
    queue = QueueId(TOPIC, "broker-a", 0)
    message_id = offset_message_id(Host(bytes(4), 10911), 7)

    def script(asked: Request[Reply]) -> Reply | None:
        is_send = isinstance(asked, (SendMessage, SendBatch))
        return SendReply(request.param, message_id, 0, 3) if is_send else None

    with ScriptedBroker({queue: SimulatedQueue(0, 0)}) as broker:
        broker.script = script
        yield broker


def sends_to(broker: ScriptedBroker) -> int:
    return sum(isinstance(one, (SendMessage, SendBatch)) for one in broker.requests)


def test_what_is_stored_is_not_sent_again_whatever_else_is_late(hesitant: ScriptedBroker) -> None:
    settings = ConnectionSettings(name_servers=(hesitant.address,), outage_ms=300)
    with Producer(settings) as producer:
        assert producer.send(Message(TOPIC, b"x")).start == 3
    assert sends_to(hesitant) == 1
    assert task(settings, iter([rows(10)])) == 10
    assert sends_to(hesitant) == 2


def test_a_half_message_that_is_stored_is_one_whatever_else_is_late(
    hesitant: ScriptedBroker,
) -> None:
    settings = ConnectionSettings(name_servers=(hesitant.address,), outage_ms=300)
    layout = SinkLayout({"body": 0}, TOPIC, 10_000, False, immunity_seconds=60)
    with Producer(settings, repeats_unknown=True) as producer:
        requests = SinkRequests(layout, producer, WriteId("write", "0", 0)).of_batch(rows(5))
        half_messages = send_half_messages(producer, requests)
    assert [(half.offset, half.position) for half in half_messages] == [(3, 7)] * 5
    assert sends_to(hesitant) == 5


def named_plan(write_id: str, topic: str | None = None) -> SinkPlan:
    where = {"nameServer": "h:1", "writeId": write_id, **({"topic": topic} if topic else {})}
    columns = [StructField("body", StringType()), StructField("topic", StringType())]
    return sink_plan(write_options(where), StructType(columns))


def test_a_write_with_an_id_is_the_same_write_when_it_runs_again() -> None:
    assert batch_write_id(named_plan("export/7")) == WriteId("export", "7", 0)
    again = [batch_write_id(named_plan("export/7", "a")) for _ in range(2)]
    assert again[0] == again[1] != batch_write_id(named_plan("export/7", "b"))
    assert batch_write_id(named_plan("export/8", "a")).query == again[0].query
    unnamed = [plan_of(ConnectionSettings(("h:1",)), is_grpc=False) for _ in range(2)]
    assert all(plan.named is None for plan in unnamed)


def test_a_write_id_that_does_not_say_enough_or_too_much_is_refused() -> None:
    with pytest.raises(OptionError, match=r"OPTION\.INVALID\] .*'writeId' names by NAME alone"):
        batch_write_id(named_plan("first"))
    with pytest.raises(OptionError, match=r"OPTION\.NOT_HERE\] .*'writeId' is for batch writes"):
        stream_writer(named_plan("first"))
    for text in ("a b", "a||b", "a/b", "a/1/2", "/1", "ä", "x" * 101):
        with pytest.raises(OptionError, match="must be a name, or name/number"):
            named_plan(text)


def test_a_spark_without_arrow_writers_for_streams_names_what_to_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As on Spark 4.0, which does not have the class.
    monkeypatch.setattr(writers, "DataSourceStreamArrowWriter", None)
    message = r"^\[ROCKETMQ_UNSUPPORTED\.SPARK_VERSION\] .*foreachBatch"
    with pytest.raises(UnsupportedError, match=message):
        stream_writer(plan_of(ConnectionSettings(("h:1",)), is_grpc=False))
