"""What our producers say of a request whose answer was lost, and what the broker made of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.errors import EndOutcomeUnknownError, SendOutcomeUnknownError
from rocketmq_client.producer.half_messages import HalfMessage
from rocketmq_client.producer.producer import Producer
from rocketmq_client.producer.transactional import TransactionProducer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import Message, QueueId, TopicConfig
from rocketmq_wire.requests.transactions import Resolution
from support.fault_proxy import FaultProxy, Link
from support.visible_messages import visible_bodies

TOPIC = "orders"
QUEUE = QueueId(TOPIC, "broker-a", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config_from({"flush": "memory", "grpc": False})) as broker:
        yield broker


@pytest.fixture
def direct(broker: Broker) -> ConnectionSettings:
    settings = ConnectionSettings(name_servers=(broker.name_server,))
    with open_cluster(settings) as cluster:
        cluster.create_topic(TopicConfig(TOPIC, 1, 1))
    return settings


@pytest.fixture
def proxy(broker: Broker) -> Iterator[FaultProxy]:
    with FaultProxy(broker.name_server) as proxy:
        yield proxy


@pytest.fixture
def proxied(broker: Broker, proxy: FaultProxy) -> ConnectionSettings:
    return ConnectionSettings(
        name_servers=(proxy.address,),
        address_map={broker.name_server: proxy.address},
        request_timeout_ms=500,
        outage_ms=500,
    )


class Deaf:
    """From when it has executed, requests pass and answers do not."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy

    def execute(self, message: Message, half: HalfMessage) -> Resolution:
        del message, half
        self._proxy.link = Link.HALF_OPEN
        return Resolution.COMMIT

    def check(self, message: ReceivedMessage) -> Resolution:
        del message
        return Resolution.UNKNOWN


def test_a_send_whose_answer_is_lost_may_be_stored(
    direct: ConnectionSettings, proxied: ConnectionSettings, proxy: FaultProxy
) -> None:
    with Producer(proxied) as producer:
        producer.send(Message(TOPIC, b"first"), QUEUE)
        proxy.link = Link.HALF_OPEN
        text = r"^\[ROCKETMQ_SEND\.OUTCOME_UNKNOWN\] topic=orders .*1 message may or may not"
        with pytest.raises(SendOutcomeUnknownError, match=text):
            producer.send(Message(TOPIC, b"second"), QUEUE)
    assert visible_bodies(direct, TOPIC) == [b"first", b"second"]


def test_a_transaction_without_an_answer_to_its_end_may_be_ended(
    direct: ConnectionSettings, proxied: ConnectionSettings, proxy: FaultProxy
) -> None:
    with TransactionProducer(proxied, "p", Deaf(proxy), topics=[TOPIC]) as producer:
        sent = producer.send_in_transaction(Message(TOPIC, b"x"), QUEUE)
        proxy.link = Link.OPEN
    assert sent.resolution is Resolution.COMMIT
    assert isinstance(sent.error, EndOutcomeUnknownError)
    assert str(sent.error).startswith("[ROCKETMQ_TRANSACTION.OUTCOME_UNKNOWN] topic=orders ")
    assert visible_bodies(direct, TOPIC) == [b"x"]
