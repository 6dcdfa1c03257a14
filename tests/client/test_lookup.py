"""Messages by key and by id while a broker has no master: from its replica, or an error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.lookup import find_by_id, find_by_key, offsets_of_key
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import BrokerError, ConnectError, broker_error
from rocketmq_wire.model import BrokerAddresses, QueueId, StoredMessage
from rocketmq_wire.records.message_id import offset_message_id
from rocketmq_wire.records.properties import KEYS, UNIQUE_KEY
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import QueryMessages, RecordsReply, ViewMessage
from support.records import BORN_HOST, STORE_HOST, lay_out
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue

QUEUE = QueueId("orders", "broker-a", 0)
POSITION = 4_096
STORED = lay_out(
    StoredMessage(
        "orders", b"x", {KEYS: "k", UNIQUE_KEY: "U1"}, 0, 2, 7, POSITION, 0,
        1_000, BORN_HOST, 1_000, STORE_HOST, 0, 0, 0, 0,
    )
)  # fmt: skip


def answer(request: Request[Reply], record: bytes | None) -> Reply | BrokerError | None:
    if isinstance(request, QueryMessages):
        is_found = record is not None and request.key in ("k", "U1")
        return RecordsReply((record or b"",)) if is_found else broker_error(22, "nothing")
    if isinstance(request, ViewMessage):
        is_found = record is not None and request.physical_offset == POSITION
        return RecordsReply((record or b"",)) if is_found else broker_error(1, "nothing")
    return None


@pytest.fixture
def replica() -> Iterator[ScriptedBroker]:
    """What is left of `broker-b`."""
    with ScriptedBroker({}, "broker-b") as broker:
        broker.script = lambda request: answer(request, STORED)
        yield broker


@pytest.fixture
def cluster(replica: ScriptedBroker) -> Iterator[Cluster]:
    with ScriptedBroker({QUEUE: SimulatedQueue(0, 9)}) as broker:
        broker.script = lambda request: answer(request, None)
        broker.others = (BrokerAddresses("broker-b", "DefaultCluster", {1: replica.address}),)
        settings = ConnectionSettings(
            (broker.address,), request_timeout_ms=2_000, retry_delay_ms=10
        )
        with open_cluster(settings) as cluster:
            yield cluster


def test_what_only_a_replica_can_tell_is_found(cluster: Cluster) -> None:
    assert offsets_of_key(cluster, "orders", "k") == [(QueueId("orders", "broker-b", 2), 7)]
    for found in (
        find_by_key(cluster, "orders", "k", 5),
        find_by_id(cluster, "orders", "U1", 5),
        find_by_id(cluster, "orders", offset_message_id(STORE_HOST, POSITION), 5),
    ):
        assert [(at.broker, at.message.body) for at in found] == [("broker-b", b"x")]
    assert find_by_id(cluster, "orders", offset_message_id(STORE_HOST, 9), 5) == []


def test_a_broker_that_nobody_answers_for_is_an_error(
    cluster: Cluster, replica: ScriptedBroker
) -> None:
    replica.stop()
    with pytest.raises(ConnectError):
        offsets_of_key(cluster, "orders", "k")
    with pytest.raises(ConnectError):
        find_by_key(cluster, "orders", "k", 5)
    for message_id in ("U1", offset_message_id(STORE_HOST, POSITION)):
        with pytest.raises(ConnectError):
            find_by_id(cluster, "orders", message_id, 5)
