"""A write's task against a broker: it succeeds when all is stored, and only then."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_rocketmq import writers
from pyspark_rocketmq.errors import OptionError, UnsupportedError
from pyspark_rocketmq.options import parse_options, require_sink
from pyspark_rocketmq.sink_plan import sink_plan
from pyspark_rocketmq.sink_requests import SinkLayout
from pyspark_rocketmq.sink_schema import SinkColumns
from pyspark_rocketmq.sink_stamps import WriteId
from pyspark_rocketmq.writers import SinkPlan, batch_write_id, stream_writer, write_task
from rocketmq_broker_sim import Broker
from rocketmq_broker_sim.config import BrokerConfig
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.producer import SendOutcomeUnknownError
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import ConnectError
from rocketmq_wire.model import Bounds, TopicConfig
from support.fault_proxy import FaultProxy

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


def task(settings: ConnectionSettings, batches: Iterator[pa.RecordBatch]) -> int:
    is_grpc = settings.endpoints is not None
    plan = plan_of(settings, is_grpc=is_grpc)
    return write_task(plan, WriteId("write", "0", 0), batches).rows


def plan_of(settings: ConnectionSettings, *, is_grpc: bool) -> SinkPlan:
    layout = SinkLayout(SinkColumns({"body": 0}), TOPIC, 10_000, is_grpc)
    return SinkPlan(settings, layout, "producers", 8, "write")


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"body": pa.array([b"%d" % number for number in range(count)])})


def stored(cluster: Cluster) -> int:
    found = cluster.bounds(cluster.queues(TOPIC)).values()
    return sum(bounds.end for bounds in found if isinstance(bounds, Bounds))


def test_a_task_that_succeeds_has_stored_every_row(proxied, cluster):
    proxy, settings = proxied
    assert task(settings, iter([rows(2_000), rows(1)])) == 2_001
    assert stored(cluster) == 2_001
    assert proxy.accepted > 0


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
        for _ in range(4):
            yield rows(500)
            proxy.reset()

    assert task(settings, batches()) == 2_000
    # What was under way when the connection broke is there again, under the same unique keys.
    assert stored(cluster) >= 2_000


def named_plan(write_id: str, topic: str | None = None) -> SinkPlan:
    where = {"nameServer": "h:1", "writeId": write_id, **({"topic": topic} if topic else {})}
    columns = [StructField("body", StringType()), StructField("topic", StringType())]
    return sink_plan(require_sink(parse_options(where)), StructType(columns))


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
        with pytest.raises(OptionError, match="NAME or NAME/NUMBER"):
            named_plan(text)


def test_a_spark_without_arrow_writers_for_streams_is_told_what_to_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As on Spark 4.0, which does not have the class.
    monkeypatch.setattr(writers, "DataSourceStreamArrowWriter", None)
    told = r"^\[ROCKETMQ_UNSUPPORTED\.SPARK_VERSION\] .*foreachBatch"
    with pytest.raises(UnsupportedError, match=told):
        stream_writer(plan_of(ConnectionSettings(("h:1",)), is_grpc=False))
