"""Brokers that register with a bundled name server: their topics, their ends, its absence."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketmq_broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import TopicNotFoundError, UnsupportedRequestError
from rocketmq_wire.model import ConsumerInfo, QueueId, TopicConfig
from rocketmq_wire.requests.groups import Heartbeat, QueryAssignment
from rocketmq_wire.requests.messages import SendMessage
from rocketmq_wire.requests.topics import GetRoute
from rocketmq_wire.signing import Credentials
from support.accounts import ADMIN, MEMBER, SCHEMES, guarded_config
from support.remoting_peer import RemotingPeer

MEMORY = {"flush": "memory", "grpc": False}


def until(is_done: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


@contextmanager
def broker(name: str, name_server: str = "", **settings: object) -> Iterator[Broker]:
    values = {**MEMORY, "broker_name": name, "name_server": name_server, **settings}
    with Broker(config_from(values)) as running:
        yield running


@pytest.fixture
def first() -> Iterator[Broker]:
    with broker("broker-a") as running:
        yield running


@pytest.fixture
def cluster(first: Broker) -> Iterator[Cluster]:
    with open_cluster(ConnectionSettings((first.name_server,))) as opened:
        yield opened


def brokers_of(cluster: Cluster, topic: str) -> set[str]:
    """The brokers in the route of a topic; none if it has no route."""
    try:
        return {queue.broker for queue in cluster.queues(topic)}
    except TopicNotFoundError:
        return set()


def address_of(cluster: Cluster, name: str = "broker-b") -> str:
    (found,) = (each for each in cluster.cluster_info().brokers if each.name == name)
    return found.addresses[0]


def consumer_of(group: str) -> ConsumerInfo:
    return ConsumerInfo(group, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")


def test_a_topic_has_its_route_over_all_brokers_once_it_is_created(
    first: Broker, cluster: Cluster
) -> None:
    with broker("broker-b", first.name_server), broker("broker-c", first.name_server) as third:
        assert third.name_server == first.name_server
        assert set(cluster.masters()) == {"broker-a", "broker-b", "broker-c"}
        for number in range(20):
            cluster.create_topic(TopicConfig(f"topic-{number}", 2, 2))
            assert len(cluster.queues(f"topic-{number}")) == 6
    assert set(cluster.masters()) == {"broker-a"}
    assert brokers_of(cluster, "topic-0") == {"broker-a"}


def test_topics_that_a_broker_creates_by_itself_get_their_routes(
    first: Broker, cluster: Cluster
) -> None:
    with broker("broker-b", first.name_server):
        with RemotingPeer(address_of(cluster)) as peer:
            peer.call(SendMessage("g", QueueId("by-a-send", "broker-b", 0), 0, b"body"))
            peer.call(Heartbeat("client", (), (consumer_of("readers"),)))
        until(lambda: brokers_of(cluster, "by-a-send") == {"broker-b"})
        until(lambda: brokers_of(cluster, "%RETRY%readers") == {"broker-b"})


def test_a_broker_with_name_servers_elsewhere_is_none(first: Broker, cluster: Cluster) -> None:
    with (
        broker("broker-b", first.name_server),
        RemotingPeer(address_of(cluster)) as peer,
        pytest.raises(UnsupportedRequestError),
    ):
        peer.call(GetRoute("TBW102"))


def test_any_broker_assigns_the_queues_of_all_brokers() -> None:
    with broker("broker-a") as first:
        where = ConnectionSettings((first.name_server,))
        with broker("broker-b", first.name_server), open_cluster(where) as cluster:
            cluster.create_topic(TopicConfig("orders", 2, 2))
            asked = QueryAssignment("g", "orders", "c", "AVG", "BROADCASTING")
            with RemotingPeer(address_of(cluster)) as peer:
                found = peer.call(asked).assignments
                assert found is not None
                assert [each.queue for each in found] == list(cluster.queues("orders"))
                first.stop()
                # A member without an answer keeps the queues that it has.
                assert peer.call(asked).assignments is None


def test_a_broker_waits_for_a_name_server_and_returns_when_it_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with broker("broker-a") as first:
        where = first.name_server
    port = int(where.rpartition(":")[2])
    with broker("broker-b", where), open_cluster(ConnectionSettings((where,))) as cluster:
        for outage in (1, 2):
            with broker("broker-a", port=port):
                until(lambda: "broker-b" in cluster.masters())
                cluster.create_topic(TopicConfig("orders", 1, 1))
                assert brokers_of(cluster, "orders") == {"broker-a", "broker-b"}
                said = [line for line in caplog.messages if where in line]
                assert sum("is not registered there" in line for line in said) == outage
                assert sum("is registered again" in line for line in said) == outage


def test_a_broker_registers_with_every_name_server(first: Broker, cluster: Cluster) -> None:
    with broker("other") as other, open_cluster(ConnectionSettings((other.name_server,))) as there:
        with broker("broker-b", f"{first.name_server};{other.name_server}"):
            for each in (cluster, there):
                assert "broker-b" in each.masters()
        assert there.masters() == ("other",)


def test_a_second_broker_of_a_name_serves_nobody(
    first: Broker, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    with broker("broker-a", first.name_server):
        assert set(cluster.masters()) == {"broker-a"}
        (line,) = [each for each in caplog.messages if first.name_server in each]
    assert "brokerName broker-a belongs to the name server's own broker" in line


def keys_of(credentials: Credentials) -> dict[str, object]:
    return {
        "name_server_access_key": credentials.access_key,
        "name_server_secret_key": credentials.secret_key,
    }


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_name_server_with_accounts_takes_an_administrators_brokers(
    tmp_path: Path, scheme: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(guarded_config(scheme, tmp_path, grpc=False)) as first:
        where = ConnectionSettings((first.name_server,), credentials=ADMIN)
        senders = {"unsigned": {}, "member": keys_of(MEMBER), "admin": keys_of(ADMIN)}
        with open_cluster(where) as cluster:
            for name, keys in senders.items():
                with broker(name, first.name_server, **keys):
                    assert (name in cluster.masters()) is (name == "admin")
    lines = [line for line in caplog.messages if "is not registered there" in line]
    assert len(lines) == 2


def test_a_broker_on_all_addresses_registers_the_one_that_it_uses(
    first: Broker, cluster: Cluster
) -> None:
    with broker("broker-b", first.name_server, host="0.0.0.0"):
        assert address_of(cluster).startswith("127.0.0.1:")


def test_many_topics_are_registered_in_parts(first: Broker, cluster: Cluster) -> None:
    with broker("broker-b", first.name_server), RemotingPeer(address_of(cluster)) as peer:
        for start in range(0, 5_000, 1_000):
            groups = [f"group-{number}" for number in range(start, start + 1_000)]
            peer.call(Heartbeat("client", (), tuple(consumer_of(each) for each in groups)))
        until(lambda: sum(name.startswith("%RETRY%") for name in cluster.topics()) == 5_000)
        cluster.create_topic(TopicConfig("one-more", 3, 3), "broker-b")
        assert len(cluster.queues("one-more")) == 3
