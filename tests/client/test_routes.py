"""Addresses of brokers, and what a route proves about a queue."""

from __future__ import annotations

from rocketmq_client.loss import Standing
from rocketmq_client.routing import BrokerDirectory, standing_of
from rocketmq_wire.model import BrokerAddresses, QueueId, QueueSet, Route

QUEUE = QueueId("orders", "broker-a", 3)


def broker(name, **addresses):
    return BrokerAddresses(name, "c", {int(key[1:]): value for key, value in addresses.items()})


def test_the_master_is_asked_and_a_replica_while_there_is_none():
    directory = BrokerDirectory({})
    directory.learn([broker("a", b0="m:1", b1="s:1"), broker("b", b2="t:1", b1="s:2")])
    assert (directory.address("a"), directory.address("b")) == ("m:1", "s:2")
    assert directory.address("c") is None


def test_a_broker_missing_from_a_route_keeps_its_address():
    directory = BrokerDirectory({})
    directory.learn([broker("a", b0="m:1")])
    directory.learn([broker("b", b0="m:2"), broker("a")])
    assert directory.address("a") == "m:1"


def test_a_suspect_is_looked_up_again_and_then_trusted():
    directory = BrokerDirectory({})
    directory.learn([broker("a", b0="m:1")])
    directory.suspect("m:1")
    assert not directory.is_settled("a")
    directory.learn([broker("a", b0="m:1")])
    assert directory.is_settled("a")


def test_hosts_and_addresses_are_mapped():
    directory = BrokerDirectory({"10.0.0.1:7": "x:8", "10.0.0.2": "y"})
    directory.learn([broker("a", b0="10.0.0.1:7"), broker("b", b0="10.0.0.2:7")])
    assert (directory.address("a"), directory.address("b")) == ("x:8", "y:7")


def test_a_broker_missing_from_a_known_topics_route_is_only_unavailable():
    route = Route((QueueSet("broker-b", 4, 4, 6),), ())
    assert standing_of(QUEUE, route) is Standing.PROVISIONAL
    assert standing_of(QUEUE, Route((QueueSet("broker-a", 4, 4, 6),), ())) is Standing.SERVED
    acting = Route((QueueSet("broker-a", 4, 4, 4),), ())
    assert standing_of(QUEUE, acting) is Standing.PROVISIONAL
    assert standing_of(QUEUE, None) is Standing.TOPIC_GONE
    shrunk = Route((QueueSet("broker-a", 3, 8, 6),), ())
    assert standing_of(QUEUE, shrunk) is Standing.QUEUE_GONE
