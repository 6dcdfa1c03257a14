"""Transactions, times of delivery and recall, from our producers to a broker over sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.producer.half_messages import HalfMessage
from rocketmq_client.producer.producer import Producer, delayed
from rocketmq_client.producer.transaction_checks import CheckService
from rocketmq_client.producer.transactional import TransactionProducer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import BrokerError, LocalProtocolError
from rocketmq_wire.model import Host, Message, StoredMessage, TopicConfig
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.transactions import CheckTransaction, Resolution
from support.records import lay_out
from support.visible_messages import visible, visible_bodies

COMMIT, ROLLBACK, UNKNOWN = Resolution.COMMIT, Resolution.ROLLBACK, Resolution.UNKNOWN
SECONDS_MAX = 60.0
CHECKS = {"transaction_timeout_ms": 500, "transaction_check_interval_ms": 500}


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    with Broker(config_from({"flush": "memory", "grpc": False, **CHECKS})) as broker:
        yield broker.name_server


@pytest.fixture
def connection(name_server: str) -> ConnectionSettings:
    return ConnectionSettings(name_servers=(name_server,))


@pytest.fixture
def topic(connection: ConnectionSettings, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name))}"
    with open_cluster(connection) as cluster:
        cluster.create_topic(TopicConfig(name, 4, 4))
    return name


@pytest.fixture
def later_ms() -> int:
    """A delay that is long enough to be seen."""
    return 700


class Listener:
    """Does as the message's key says: what to answer at first, and when asked."""

    def __init__(self) -> None:
        self.executed: list[bytes] = []
        self.asked: list[ReceivedMessage] = []
        self.was_asked = threading.Event()

    def execute(self, message: Message, half: HalfMessage) -> Resolution:
        assert half.transaction_id
        self.executed.append(message.body)
        return Resolution[str(message.keys).split("-")[0]]

    def check(self, message: ReceivedMessage) -> Resolution:
        self.asked.append(message)
        self.was_asked.set()
        return Resolution[str(message.keys).split("-")[-1]]


def until(is_done: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not is_done():
        assert time.monotonic() < end, "the condition is not met in time"
        time.sleep(0.02)


def test_committed_messages_are_consumed_and_rolled_back_ones_never(
    connection: ConnectionSettings, topic: str
) -> None:
    listener = Listener()
    with TransactionProducer(connection, f"p-{topic}", listener, topics=[topic]) as producer:
        sent = [
            producer.send_in_transaction(Message(topic, f"{n}".encode(), "Tag", keys=keys))
            for n, keys in enumerate(["COMMIT", "ROLLBACK", "COMMIT"])
        ]
    assert [each.resolution for each in sent] == [COMMIT, ROLLBACK, COMMIT]
    assert [each.error for each in sent] == [None] * 3
    assert listener.executed == [b"0", b"1", b"2"]
    until(lambda: len(visible_bodies(connection, topic)) >= 2)
    messages = sorted(visible(connection, topic), key=lambda message: message.body)
    assert [message.body for message in messages] == [b"0", b"2"]
    assert {message.tags for message in messages} == {"Tag"}
    assert [m.message_id for m in messages] == [sent[n].half.transaction_id for n in (0, 2)]
    assert all(message.sys_flag & 0xC == 0x8 for message in messages)


def test_no_consumer_sees_a_half_message_before_it_is_committed(
    connection: ConnectionSettings, topic: str
) -> None:
    with TransactionProducer(connection, f"p-{topic}", Listener(), topics=[topic]) as producer:
        half = producer.send_half(Message(topic, b"half", keys="COMMIT"))
        assert visible_bodies(connection, topic) == []
        producer.end_transaction(half, COMMIT)
        until(lambda: visible_bodies(connection, topic) == [b"half"])


def test_the_broker_checks_a_half_message_that_is_not_ended(
    connection: ConnectionSettings, topic: str
) -> None:
    listener = Listener()
    with TransactionProducer(connection, f"p-{topic}", listener, topics=[topic]) as producer:
        assert producer.wait_known()
        kept = producer.send_in_transaction(Message(topic, b"kept", keys="UNKNOWN-COMMIT"))
        dropped = producer.send_in_transaction(Message(topic, b"no", keys="UNKNOWN-ROLLBACK"))
        until(lambda: len({message.body for message in listener.asked}) == 2)
        until(lambda: visible_bodies(connection, topic) == [b"kept"])
    asked = {message.body: message for message in listener.asked}
    assert asked[b"kept"].message_id == kept.half.transaction_id
    assert asked[b"no"].message_id == dropped.half.transaction_id
    assert (asked[b"kept"].topic, asked[b"kept"].keys) == (topic, "UNKNOWN-COMMIT")


def test_another_member_answers_the_checks_of_a_dead_one(
    connection: ConnectionSettings, topic: str
) -> None:
    group = f"p-{topic}"
    with TransactionProducer(connection, group, Listener(), topics=[topic]) as dying:
        dying.send_half(Message(topic, b"orphan", keys="UNKNOWN-COMMIT"))
    with TransactionProducer(connection, group, Listener(), topics=[topic]):
        until(lambda: visible_bodies(connection, topic) == [b"orphan"])


def test_the_checks_decide_after_a_listener_has_failed(
    connection: ConnectionSettings, topic: str
) -> None:
    class Failing(Listener):
        def execute(self, message: Message, half: HalfMessage) -> Resolution:
            raise RuntimeError(f"the database is unavailable: {message.keys} {half.position}")

    with TransactionProducer(connection, f"p-{topic}", Failing(), topics=[topic]) as producer:
        sent = producer.send_in_transaction(Message(topic, b"x", keys="COMMIT"))
        assert sent.resolution is UNKNOWN
        until(lambda: visible_bodies(connection, topic) == [b"x"])


def test_the_end_of_another_half_message_is_refused(
    connection: ConnectionSettings, topic: str
) -> None:
    with TransactionProducer(connection, f"p-{topic}", Listener(), topics=[topic]) as producer:
        half = producer.send_half(Message(topic, b"x", keys="ROLLBACK"))
        wrong = HalfMessage(
            half.group, half.queue, half.offset + 1, half.position, half.transaction_id
        )
        with pytest.raises(BrokerError, match="transaction state table offset wrong"):
            producer.end_transaction(wrong, COMMIT)
        producer.end_transaction(half, ROLLBACK)
    assert visible_bodies(connection, topic) == []


def test_a_delayed_message_is_delivered_in_time(
    connection: ConnectionSettings, topic: str, later_ms: int
) -> None:
    with Producer(connection) as producer:
        sent_ms = time.time_ns() // 1_000_000
        producer.send(delayed(Message(topic, b"later"), after_ms=later_ms))
        producer.send(delayed(Message(topic, b"past"), at_ms=sent_ms - 1_000))
        producer.send(Message(topic, b"now"))
    assert visible_bodies(connection, topic) == [b"now", b"past"]
    until(lambda: len(visible_bodies(connection, topic)) == 3)
    (later,) = (m for m in visible(connection, topic) if m.body == b"later")
    # RocketMQ rounds down to its seconds.
    assert later.store_ms >= sent_ms + (later_ms if later_ms < 1_000 else later_ms - 2_000)


def test_a_recalled_message_is_not_delivered(
    connection: ConnectionSettings, topic: str, later_ms: int
) -> None:
    with Producer(connection) as producer:
        queue = producer.queues(topic)[0]
        sent = [
            producer.send(delayed(Message(topic, body), after_ms=later_ms), queue)
            for body in (b"recalled", b"stays")
        ]
        handle = sent[0].recall_handle
        assert handle is not None
        assert producer.recall(handle) == sent[0].transaction_id
        until(lambda: b"stays" in visible_bodies(connection, topic))
        assert visible_bodies(connection, topic) == [b"stays"]
        with pytest.raises(BrokerError) as refused:
            producer.recall(handle)
        assert refused.value.code == 604


def test_thousands_of_checks_at_once_are_all_answered() -> None:
    begin, answered = threading.Event(), []

    def on_check(message: ReceivedMessage) -> Resolution:
        assert begin.wait(SECONDS_MAX)
        answered.append(message.queue_offset)
        return UNKNOWN

    host = Host(bytes(4), 1)
    message = StoredMessage(
        *("t", b"body", {"PGROUP": "p"}, 0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, 0, 0)
    )
    settings = ConnectionSettings(name_servers=("127.0.0.1:1",))
    service = CheckService(settings, "p", [], on_check)
    question = CheckTransaction(0, 0, lay_out(message))
    for _ in range(10_000):
        assert service._respond(question) == Done()
    begin.set()
    until(lambda: len(answered) == 10_000)
    service._pool.shutdown()


def test_a_message_has_one_delay_and_a_half_message_none() -> None:
    with pytest.raises(LocalProtocolError, match="one of level, at_ms and after_ms"):
        delayed(Message("t", b""), level=1, after_ms=5)
    with pytest.raises(LocalProtocolError, match="1 to 18"):
        delayed(Message("t", b""), level=19)
    assert delayed(Message("t", b""), level=3).properties == {"DELAY": "3"}
