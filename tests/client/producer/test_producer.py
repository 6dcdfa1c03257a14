"""How requests reach the transport, and their outcomes, without a network."""

from __future__ import annotations

import pickle
from typing import cast

import pytest

from rocketmq_broker import Broker, BrokerConfig
from rocketmq_client.cluster import Cluster
from rocketmq_client.errors import EndOutcomeUnknownError, SendOutcomeUnknownError
from rocketmq_client.producer.half_messages import HalfMessage, end_many
from rocketmq_client.producer.producer import Producer, count_on
from rocketmq_client.producer.send_queue import Sent
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.contract import Transport
from rocketmq_wire.errors import LocalProtocolError, RemoteProtocolError
from rocketmq_wire.model import Message, QueueId, TopicConfig
from rocketmq_wire.requests.messages import SendMessage, SendReply, SendStatus
from rocketmq_wire.requests.transactions import Resolution

QUEUES = [QueueId("orders", "broker-a", index) for index in range(2)]
STORED = SendReply(SendStatus.OK, "id", 0, 0)


def test_unique_keys_count_on_and_wrap():
    keys = count_on("0" * 28 + "FFFE", 4).to_pylist()
    assert [key[-4:] for key in keys] == ["FFFE", "FFFF", "0000", "0001"]
    assert {len(key) for key in keys} == {32}


def test_an_unknown_outcome_survives_pickling_and_names_the_risk():
    error = SendOutcomeUnknownError(QUEUES[0], 7, "the connection broke")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.queue, copy.count) == (QUEUES[0], 7)
    assert "OUTCOME_UNKNOWN] topic=orders broker=broker-a queue=0: 7 messages" in str(copy)


class AnsweringTransport:
    """Answers what was submitted when it is asked for answers; `events` tells the order."""

    def __init__(self, events):
        self.events, self.tickets, self.open = events, 0, []

    def submit_many(self, requests, *, timeout_ms):
        del timeout_ms
        self.events += [f"sent {request.body[:1].decode()}" for _, request in requests]
        first, self.tickets = self.tickets, self.tickets + len(requests)
        self.open += range(first, self.tickets)
        return list(range(first, self.tickets))

    def completed(self, *, timeout_ms):
        self.events.append("waited" if timeout_ms else "looked")
        done, self.open = self.open, []
        return [(ticket, STORED) for ticket in done]


def cluster_of(events):
    transport = cast(Transport, AnsweringTransport(events))
    return Cluster(ConnectionSettings(name_servers=("a:1",)), transport)


def sends_of(bodies):
    """What happens when requests with these bodies are made and sent, one queue each."""
    events: list[str] = []
    cluster = Cluster(
        ConnectionSettings(name_servers=("a:1",)), cast(Transport, AnsweringTransport(events))
    )

    def source():
        for number, body in enumerate(bodies):
            events.append(f"made {body[:1].decode()}")
            yield SendMessage("p", QueueId("orders", "broker-a", number), 0, body)

    outcomes = list(Producer(cluster).send_many(source()))
    assert [sent.result for sent in outcomes] == [STORED] * len(bodies)
    return events


def test_a_large_request_is_in_flight_before_the_next_one_is_made():
    events = sends_of([b"a" * 100_000, b"b" * 100_000])
    assert events.index("sent a") < events.index("made b")
    assert events.index("looked") < events.index("made b")


def test_small_requests_are_handed_over_together():
    assert sends_of([b"a", b"b", b"c"])[:6] == [
        *("made a", "made b", "made c"),
        *("sent a", "sent b", "sent c"),
    ]


def test_an_exception_of_the_source_comes_after_the_outcomes_before_it():
    cluster = Cluster(
        ConnectionSettings(name_servers=("a:1",)), cast(Transport, AnsweringTransport([]))
    )

    def source():
        yield SendMessage("p", QUEUES[0], 0, b"a")
        raise ValueError("line 2 is no JSON")

    outcomes: list[Sent] = []
    with pytest.raises(ValueError, match="line 2"):
        outcomes.extend(Producer(cluster).send_many(source()))
    assert [sent.result for sent in outcomes] == [STORED]


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"body": "text"}, "body of a message is bytes, not str"),
        ({"body": {"a": 1}}, "body of a message is bytes, not dict"),
        ({"body": None}, "body of a message is bytes, not NoneType"),
        ({"keys": ["a", "b"]}, "keys is text, not list: join them with blanks"),
        ({"tags": 5}, "tags is text, not int"),
        ({"properties": {"n": 1}}, "properties are text, not 'n': 1"),
    ],
)
def test_a_message_of_wrong_types_is_refused_where_it_is_made(fields, complaint):
    with pytest.raises(TypeError, match=complaint):
        Message(**{"topic": "orders", "body": b"x", **fields})


def test_an_end_whose_answer_cannot_be_read_may_have_been_taken():
    class Garbling:
        def call_many(self, requests, *, timeout_ms):
            del timeout_ms
            return [RemoteProtocolError("nonsense") for _ in requests]

    cluster = Cluster(ConnectionSettings(name_servers=("a:1",)), cast(Transport, Garbling()))
    half = HalfMessage("p", QUEUES[0], 0, 0, "id")
    ((_, error),) = end_many(cluster, [(half, Resolution.COMMIT)])
    assert isinstance(error, EndOutcomeUnknownError)


def test_a_request_that_cannot_be_sent_harms_no_other():
    with Broker(BrokerConfig(flush="memory", grpc=False)) as broker:
        settings = ConnectionSettings(name_servers=(broker.name_server,))
        with Producer(settings) as producer:
            producer.cluster.create_topic(TopicConfig("orders", 1, 1))
            (queue,) = producer.queues("orders")
            bad = SendMessage("p", queue, 0, cast(bytes, "text"))
            (sent,) = producer.send_many([bad])
            assert isinstance(sent.result, LocalProtocolError)
            offsets = [producer.send(Message("orders", b"x")).start for _ in range(3)]
    assert offsets == [0, 1, 2]
