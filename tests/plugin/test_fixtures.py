"""The plugin's fixtures, used as tests of other projects use them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pytest_rocketmq import RocketMQ, RocketMQFaults
from rocketmq_client.cluster import open_cluster
from rocketmq_client.download.contract import ReadSpec
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import ConnectError, ConnectionLostError, DeadlineExceededError
from rocketmq_wire.model import Message, OffsetRange

# What the connector's own time-outs are is not the question here.
QUICK = {"connect_timeout_ms": 300, "request_timeout_ms": 300}


def over(faults: RocketMQFaults, **more: Any) -> ConnectionSettings:
    """The way that `options` describes."""
    return ConnectionSettings(
        name_servers=(faults.name_server,),
        address_map=dict([faults.address_map.split("=")]),
        **{**QUICK, **more},
    )


def test_produced_messages_are_consumed_unchanged(rocketmq: RocketMQ) -> None:
    bodies: list[str | bytes | Mapping[str, object] | Message] = [
        "text",
        b"bytes",
        {"json": 1},
        Message("", b"whole", "T", "k", {"colour": "red"}),
    ]
    stored = rocketmq.produce(bodies, tags="A", properties={"n": "1"})
    assert stored == [(0, 0), (1, 0), (2, 0), (3, 0)]
    found = rocketmq.consume_all()
    assert [message.body for message in found] == [b"text", b"bytes", b'{"json": 1}', b"whole"]
    assert [message.tags for message in found] == ["A", "A", "A", "T"]
    assert found[0].properties["n"] == "1"
    assert (found[3].keys, found[3].properties["colour"]) == ("k", "red")


@pytest.mark.parametrize("body", ["text", b"bytes", {"json": 1}, Message("", b"whole")])
def test_a_single_body_is_refused(rocketmq: RocketMQ, body: Any) -> None:
    with pytest.raises(TypeError, match=r"produce\(\[body\]\)"):
        rocketmq.produce(body)
    assert rocketmq.consume_all() == []


def test_many_messages_keep_their_order_within_a_queue(rocketmq: RocketMQ) -> None:
    stored = rocketmq.produce((str(number) for number in range(2_000)), queue=1)
    assert stored == [(1, offset) for offset in range(2_000)]
    assert [int(each.body) for each in rocketmq.consume_all()] == list(range(2_000))
    large = rocketmq.produce([bytes(900_000)] * 3, queue=2)
    assert large == [(2, 0), (2, 1), (2, 2)]


@pytest.mark.parametrize("_again", [1, 2])
def test_each_test_has_a_topic_and_a_group_of_its_own(rocketmq: RocketMQ, _again: int) -> None:
    assert rocketmq.consume_all() == []
    rocketmq.produce(["here"])
    other = rocketmq.create_topic(queues=2)
    assert other != rocketmq.topic
    assert len(rocketmq.cluster.queues(other)) == 2
    assert rocketmq.group.startswith("test_each_test_has_a_topic")


def test_lag_is_what_a_group_has_not_consumed(rocketmq: RocketMQ) -> None:
    rocketmq.produce(range_of(10))
    assert rocketmq.lag() == 10
    queues = rocketmq.cluster.queues(rocketmq.topic)
    rocketmq.cluster.commit(rocketmq.group, {queues[0]: 2, queues[1]: 3})
    assert rocketmq.lag() == 5
    assert rocketmq.lag("another-group") == 10


def range_of(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def test_a_missing_queue_is_named(rocketmq: RocketMQ) -> None:
    with pytest.raises(ValueError, match="has no queue 9"):
        rocketmq.produce(["x"], queue=9)


def test_a_server_behaves_the_same_in_its_own_process(
    rocketmq: RocketMQ, rocketmq_server: RocketMQ
) -> None:
    assert rocketmq_server.name_server != rocketmq.name_server
    rocketmq_server.produce(["there"])
    assert [each.body for each in rocketmq_server.consume_all()] == [b"there"]
    with open_cluster(ConnectionSettings(endpoints=rocketmq_server.endpoints)) as cluster:
        assert rocketmq_server.topic in cluster.topics()


def test_a_factory_makes_brokers_with_settings(
    rocketmq_factory: Callable[..., RocketMQ],
) -> None:
    one = rocketmq_factory(broker_name="one", grpc=False)
    two = rocketmq_factory(process=True, broker_name="two", grpc=True)
    assert {queue.broker for queue in one.cluster.queues(one.topic)} == {"one"}
    assert {queue.broker for queue in two.cluster.queues(two.topic)} == {"two"}
    with pytest.raises(RuntimeError, match="use name_server"):
        _ = one.endpoints
    assert two.endpoints


@pytest.mark.parametrize("process", [False, True])
def test_a_factory_makes_a_cluster(
    rocketmq_factory: Callable[..., RocketMQ], process: bool
) -> None:
    three = rocketmq_factory(brokers=3, process=process)
    names = {"broker-a", "broker-b", "broker-c"}
    assert {queue.broker for queue in three.cluster.queues(three.topic)} == names
    three.produce(range_of(24))
    assert {message.broker for message in three.consume_all()} == names
    assert three.log_lines is not None
    assert three.log_lines()
    with pytest.raises(RuntimeError, match="use name_server"):
        _ = three.endpoints
    three.brokers["broker-c"].stop()
    assert {queue.broker for queue in three.cluster.queues(three.topic)} == names - {"broker-c"}


def test_a_factory_refuses_a_number_of_brokers(rocketmq_factory: Callable[..., RocketMQ]) -> None:
    with pytest.raises(ValueError, match="brokers must be 1 to 26, got 0"):
        rocketmq_factory(brokers=0)


def test_a_faulty_network_delays_and_heals(rocketmq_faults: RocketMQFaults) -> None:
    topic = rocketmq_faults.topic
    with open_cluster(over(rocketmq_faults)) as cluster:
        assert topic in cluster.topics()
        rocketmq_faults.delay(1_000)
        with pytest.raises(DeadlineExceededError):
            cluster.topics()
        rocketmq_faults.heal()
        rocketmq_faults.reset()
    for break_it in (rocketmq_faults.drop, rocketmq_faults.half_open):
        break_it()
        with open_cluster(over(rocketmq_faults)) as cluster, pytest.raises(DeadlineExceededError):
            cluster.topics()
        rocketmq_faults.heal()
        with open_cluster(over(rocketmq_faults, request_timeout_ms=10_000)) as cluster:
            assert topic in cluster.topics()
    rocketmq_faults.refuse()
    with (
        open_cluster(over(rocketmq_faults)) as cluster,
        pytest.raises((ConnectError, ConnectionLostError)),
    ):
        cluster.topics()


def test_a_throttled_network_has_the_given_rate(rocketmq_faults: RocketMQFaults) -> None:
    body = bytes(100_000)
    ((index, offset),) = rocketmq_faults.produce([body])
    queue = rocketmq_faults.cluster.queues(rocketmq_faults.topic)[index]
    wanted = [OffsetRange(queue, offset, offset + 1)]
    with open_cluster(over(rocketmq_faults, request_timeout_ms=30_000)) as cluster:
        rocketmq_faults.throttle(200_000)
        began = time.monotonic()
        (chunk,) = cluster.read_ranges(wanted, ReadSpec("throttled"))
        # The last piece has passed before its pause.
        assert time.monotonic() - began > 0.4
        assert body in bytes(chunk.body)
        rocketmq_faults.heal()
        assert [proxy.bytes_per_second for proxy in rocketmq_faults._proxies] == [None, None]


def test_what_was_acknowledged_survives_a_kill(rocketmq_faults: RocketMQFaults) -> None:
    rocketmq_faults.produce(["kept"])
    before = rocketmq_faults.name_server
    rocketmq_faults.kill()
    rocketmq_faults.restart()
    assert [each.body for each in rocketmq_faults.consume_all()] == [b"kept"]
    rocketmq_faults.produce(["more"])
    assert len(rocketmq_faults.consume_all()) == 2
    assert rocketmq_faults.name_server == before
