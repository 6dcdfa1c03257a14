"""One directory with lite topics, two brokers: each goes on where the other one stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketmq_broker_sim import Broker
from rocketmq_broker_sim.config import BrokerConfig
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.admin_requests import PutGroup
from rocketmq_wire.grpc_public_codes import Code
from rocketmq_wire.grpc_public_messages import LITE, put_duration
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.stubs import public
from support.public_peer import PublicPeer, outgoing, resource
from support.real_cluster import BrokerNode, RealCluster

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

NAME, PARENT, GROUP = "broker-x", "chats", "readers"
VERSION = "5.5.0"
ADD, LITE_PUSH = 0, 5


@contextlib.contextmanager
def ours(folder: Path) -> Iterator[Broker]:
    """The bundled broker on a directory, with files of the sizes that the real one has."""
    config = BrokerConfig(
        data_dir=str(folder),
        broker_name=NAME,
        commit_log_file_bytes=16 << 20,
        consume_queue_file_entries=30_000,
    )
    with Broker(config) as broker:
        yield broker


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BrokerNode]:
    """A real broker that was never started, and its cluster."""
    cluster = RealCluster(VERSION, tmp_path, is_brief=True)
    try:
        cluster.start_name_server()
        lite = {"enableLmq": "true", "enableMultiDispatch": "true"}
        node = BrokerNode(cluster, NAME, 0, lite)
        cluster.brokers.append(node)
        yield node
    finally:
        cluster.close()


@contextlib.contextmanager
def real(node: BrokerNode) -> Iterator[str]:
    """The real broker on its directory, behind a proxy."""
    node.start()
    cluster = node._owner
    if cluster.proxy is None:
        cluster.start_proxy()
    assert cluster.grpc_endpoint is not None
    yield cluster.grpc_endpoint
    node.stop()


def prepare(name_server: str) -> None:
    with open_cluster(ConnectionSettings((name_server,))) as cluster:
        attributes = {"message.type": "LITE"}
        cluster.create_topic(TopicConfig(PARENT, 2, 2, attributes=attributes))
        bound = {"+lite.bind.topic": PARENT}
        cluster.ask_masters(PutGroup({"groupName": GROUP, "attributes": bound}))


def peer(address: str | None, client_id: str) -> PublicPeer:
    assert address is not None
    # The proxy wants to know the language.
    return PublicPeer(address, client_id, **{"x-mq-language": "JAVA", "x-mq-protocol": "v2"})


def send(address: str | None, lite_topic: str, *bodies: bytes) -> None:
    with peer(address, "producer@1") as producer:
        assert producer.be_producer(PARENT).status.code == Code.OK
        for body in bodies:
            message = outgoing(PARENT, body, LITE, lite_topic=lite_topic, message_id=body.decode())
            assert producer.send(message).status.code == Code.OK


def consumed(address: str | None, client_id: str, count: int) -> dict[str, list[tuple[bytes, int]]]:
    """What a client that wants both lite topics gets and acknowledges: bodies and offsets."""
    wait = public.message_class("ReceiveMessageRequest")()
    put_duration(wait.long_polling_timeout, 5_000)
    found: dict[str, list[tuple[bytes, int]]] = {}
    with peer(address, client_id) as consumer:
        assert consumer.be_consumer(GROUP, PARENT, kind=LITE_PUSH).status.code == Code.OK
        consumer.call("Heartbeat", group=resource(GROUP), client_type=LITE_PUSH)
        fields: dict[str, Any] = {"topic": resource(PARENT), "group": resource(GROUP)}
        named = {"action": ADD, "lite_topic_set": ("a", "b")}
        assert consumer.call("SyncLiteSubscription", **fields, **named).status.code == Code.OK
        while sum(map(len, found.values())) < count:
            code, messages = consumer.receive(
                GROUP, PARENT, long_polling_timeout=wait.long_polling_timeout
            )
            assert code == Code.OK, found
            for message in messages:
                system = message.system_properties
                found.setdefault(system.lite_topic, []).append((message.body, system.queue_offset))
                entry = public.message_class("AckMessageEntry")(
                    message_id=system.message_id,
                    receipt_handle=system.receipt_handle,
                    lite_topic=system.lite_topic,
                )
                acked = consumer.call("AckMessage", **fields, entries=[entry])
                assert acked.status.code == Code.OK
        consumer.call("NotifyClientTermination", group=resource(GROUP))
    return found


def test_ours_then_theirs_then_ours(node: BrokerNode) -> None:
    with ours(node.store) as broker:
        prepare(broker.name_server)
        address = broker.endpoints
        send(address, "a", b"a0", b"a1")
        send(address, "b", b"b0")
        assert consumed(address, "one@1", 3) == {"a": [(b"a0", 0), (b"a1", 1)], "b": [(b"b0", 0)]}
        send(address, "a", b"a2", b"a3")
    with real(node) as address:
        send(address, "b", b"b1")
        assert consumed(address, "two@1", 3) == {"a": [(b"a2", 2), (b"a3", 3)], "b": [(b"b1", 1)]}
        send(address, "a", b"a4")
    with ours(node.store) as broker:
        address = broker.endpoints
        send(address, "b", b"b2")
        assert consumed(address, "three@1", 2) == {"a": [(b"a4", 4)], "b": [(b"b2", 2)]}
