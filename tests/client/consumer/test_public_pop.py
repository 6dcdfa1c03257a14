"""Pops over the public gRPC service of the bundled broker; tests/real uses a real proxy."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer import public_pop as public_pop_consumer
from rocketmq_client.consumer.common import io_thread
from rocketmq_client.consumer.pop import PoppedRecords
from rocketmq_client.consumer.public_pop import PublicPopClient, PublicPopConsumer
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import BrokerError, ConnectError, ConnectionLostError, TopicNotFoundError
from rocketmq_wire.model import Message, StoredMessage, Subscription, TopicConfig
from rocketmq_wire.records.record import decode_record
from support.consuming import until

SHORTEST_MS = 10_000


@pytest.fixture(scope="module")
def addresses() -> Iterator[tuple[str, str]]:
    """A name server, and the endpoints of its cluster's public service."""
    with Broker(config_from({"flush": "memory"})) as broker:
        assert broker.endpoints is not None
        yield broker.name_server, broker.endpoints


@pytest.fixture
def topic(addresses: tuple[str, str], request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name))}"
    with open_cluster(ConnectionSettings((addresses[0],))) as cluster:
        cluster.create_topic(TopicConfig(name, 2, 2))
    return name


@pytest.fixture
def client(addresses: tuple[str, str], topic: str) -> Iterator[PublicPopClient]:
    client = client_of(addresses, topic)
    yield client
    client.close()


def client_of(addresses: tuple[str, str], topic: str, *, tags: str = "*") -> PublicPopClient:
    settings = ConnectionSettings(endpoints=addresses[1])
    return PublicPopClient(settings, f"g-{topic}", {topic: Subscription(tags)})


def begun(client: PublicPopClient, topic: str, **more: object) -> PublicPopConsumer:
    """A consumer that has received once: a new group starts behind the newest message."""
    consumer = PublicPopConsumer(client, topic, **more)  # type: ignore[arg-type]
    assert consumer.receive_records(wait_ms=1_000) is None
    return consumer


def send(addresses: tuple[str, str], topic: str, *messages: Message) -> None:
    connection = ConnectionSettings((addresses[0],))
    with open_cluster(connection) as cluster, Producer(connection) as producer:
        queues = cluster.queues(topic)
        for number, message in enumerate(messages):
            producer.send(message, queue=queues[number % len(queues)])


def numbered(topic: str, count: int, tags: str | None = None) -> list[Message]:
    return [
        Message(topic, b"%d" % n, tags, keys=f"k{n}", properties={"n": str(n)})
        for n in range(count)
    ]


def taken(consumer: PublicPopConsumer, count: int) -> list[PoppedRecords]:
    found: list[PoppedRecords] = []

    def is_enough() -> bool:
        one = consumer.receive_records(wait_ms=1_000)
        if one is not None:
            found.append(one)
        return sum(len(each.handles) for each in found) >= count

    until(is_enough)
    return found


def decoded(records: bytes) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    position = 0
    while position < len(records):
        message, position = decode_record(records, position)
        found.append(message)
    return found


def stored(popped: list[PoppedRecords]) -> list[StoredMessage]:
    return [message for one in popped for message in decoded(one.records)]


def test_messages_are_received_as_records_with_handles(
    addresses: tuple[str, str], topic: str, client: PublicPopClient
) -> None:
    consumer = begun(client, topic)
    send(addresses, topic, *numbered(topic, 10, "TagA"))
    popped = taken(consumer, 10)
    for one in popped:
        messages = decoded(one.records)
        assert [(m.queue_index, m.queue_offset) for m in messages] == [
            (handle.queue_index, handle.offset) for handle in one.handles
        ]
        assert consumer.ack_handles(one.handles) == []
    messages = sorted(stored(popped), key=lambda message: int(message.body))
    assert [message.body for message in messages] == [b"%d" % n for n in range(10)]
    third = messages[3]
    assert third.topic == topic
    assert third.properties.items() >= {"n": "3", "TAGS": "TagA", "KEYS": "k3"}.items()
    assert abs(third.store_ms - time.time() * 1_000) < 60_000
    assert third.reconsume_times == 0


def test_a_deferred_message_is_redelivered_in_time_with_its_attempts(
    addresses: tuple[str, str], topic: str, client: PublicPopClient
) -> None:
    consumer = begun(client, topic, invisible_ms=300_000)
    send(addresses, topic, *numbered(topic, 1))
    (popped,) = taken(consumer, 1)
    (renewed,) = consumer.change_handles(popped.handles, 300_000)
    assert not isinstance(renewed, Exception)
    (soon,) = consumer.change_handles([renewed], 0)
    assert not isinstance(soon, Exception)
    again = taken(consumer, 1)
    assert [(m.body, m.reconsume_times) for m in stored(again)] == [(b"0", 1)]
    assert consumer.ack_handles(again[0].handles) == []


def test_close_hands_back_messages_that_were_not_returned(
    addresses: tuple[str, str], topic: str, client: PublicPopClient
) -> None:
    consumer = begun(client, topic, invisible_ms=300_000)
    send(addresses, topic, *numbered(topic, 1))

    def has_arrived() -> bool:
        client.channel.turn(100)
        return _has_arrived(consumer)

    until(has_arrived)
    consumer.close()
    other = client_of(addresses, topic)
    assert [m.body for m in stored(taken(PublicPopConsumer(other, topic), 1))] == [b"0"]
    other.close()


def test_a_broken_connection_is_reopened(
    addresses: tuple[str, str], topic: str, client: PublicPopClient
) -> None:
    consumer = begun(client, topic)
    client.channel.forget()
    with pytest.raises(ConnectionLostError, match="connects again"):
        consumer.receive_records()
    send(addresses, topic, *numbered(topic, 1))
    assert len(stored(taken(consumer, 1))) == 1


def test_only_wanted_tags_are_received(addresses: tuple[str, str], topic: str) -> None:
    client = client_of(addresses, topic, tags="TagA")
    consumer = begun(client, topic, subscription=Subscription("TagA"))
    send(addresses, topic, *numbered(topic, 4, "TagA"), *numbered(topic, 4, "TagB"))
    assert {m.properties["TAGS"] for m in stored(taken(consumer, 4))} == {"TagA"}
    client.close()


def test_a_missing_topic_and_a_short_invisible_time_raise(
    client: PublicPopClient, topic: str
) -> None:
    with pytest.raises(TopicNotFoundError):
        PublicPopConsumer(client, "nowhere").receive_records()
    with pytest.raises(BrokerError, match="40011"):
        PublicPopConsumer(client, topic, invisible_ms=1).receive_records(wait_ms=5_000)


def test_a_missing_server_raises_at_once() -> None:
    settings = ConnectionSettings(endpoints="127.0.0.1:1")
    consumer = PublicPopConsumer(PublicPopClient(settings, "g", {}), "t")
    with pytest.raises(ConnectError):
        consumer.receive_records()


def test_a_late_message_of_a_long_receive_is_returned(
    addresses: tuple[str, str], topic: str, client: PublicPopClient
) -> None:
    """Its invisible time begins at its arrival, not at the request."""
    consumer = begun(client, topic, invisible_ms=SHORTEST_MS)
    asked = time.monotonic()
    while time.monotonic() - asked < SHORTEST_MS * 0.35 / 1_000:
        assert consumer.receive_records(wait_ms=500) is None
    send(addresses, topic, *numbered(topic, 1))
    began = time.monotonic()
    popped = taken(consumer, 1)
    assert time.monotonic() - began < 5, "it was handed back and redelivered"
    assert [message.reconsume_times for message in stored(popped)] == [0]
    assert consumer.ack_handles(popped[0].handles) == []


def _has_arrived(consumer: PublicPopConsumer) -> bool:
    return any(receive.pending.is_done for receive in consumer._receives.values())


def test_messages_that_waited_unread_are_handed_back_and_redelivered(
    addresses: tuple[str, str],
    topic: str,
    client: PublicPopClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    consumer = begun(client, topic, invisible_ms=SHORTEST_MS)
    # One message only: a second one may arrive by another receive, which is read.
    send(addresses, topic, *numbered(topic, 1))
    now_ms, late_ms = io_thread.now_ms, 0
    monkeypatch.setattr(public_pop_consumer, "now_ms", lambda: now_ms() + late_ms)

    def have_arrived() -> bool:
        client.channel.turn(50)
        return any(
            receive.pending.is_done and receive.pending.frames
            for receive in consumer._receives.values()
        )

    until(have_arrived)
    late_ms = SHORTEST_MS // 2
    (message,) = stored(taken(consumer, 1))
    assert message.body == b"0"
    assert message.reconsume_times == 1, "it was handed back before"
    assert f"topic={topic}: 1 message waited unread" in caplog.text


def test_a_closed_channel_ends_a_waiting_call(client: PublicPopClient, topic: str) -> None:
    begun(client, topic)
    pending = client.channel.start("Heartbeat", b"", 60_000)
    client.channel.close()
    assert pending.is_done
    assert isinstance(pending.error, ConnectionLostError)
