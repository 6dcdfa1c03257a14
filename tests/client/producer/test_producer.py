"""The order, retries and outcomes of sends, without a network."""

from __future__ import annotations

import pickle

import pytest

from rocketmq_client.cluster import Cluster
from rocketmq_client.producer.column_batches import count_on
from rocketmq_client.producer.producer import Producer, SendOutcomeUnknownError
from rocketmq_client.producer.send_queue import SendQueue
from rocketmq_client.retry import SEND
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import BrokerError, ConnectError, broker_error
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.messages import SendMessage, SendReply, SendStatus

QUEUES = [QueueId("orders", "broker-a", index) for index in range(2)]
STORED = SendReply(SendStatus.OK, "id", 0, 0)
BUSY = broker_error(2, "busy")
SEND_1_S = SEND.within(1_000)


def message(queue, text):
    return SendMessage("p", QUEUES[queue], 0, text)


def line_of(*messages, in_flight_max=8, per_queue=1, retry=SEND_1_S):
    line = SendQueue(in_flight_max=in_flight_max, in_flight_per_queue_max=per_queue, retry=retry)
    for item in messages:
        line.add(item)
    return line


def started(line, now_ms=0):
    """Bodies of the requests to send now, with their indexes."""
    return [(i, r.body) for i, r in iter(lambda: line.next_request(now_ms), None)]


def test_one_request_a_queue_is_under_way_at_a_time():
    line = line_of(message(0, b"a"), message(0, b"b"), message(1, b"c"))
    assert started(line) == [(0, b"a"), (2, b"c")]
    assert line.on_result(0, STORED, 1).index == 0
    assert started(line) == [(1, b"b")]


def test_more_may_be_under_way_where_the_order_does_not_matter():
    line = line_of(message(0, b"a"), message(0, b"b"), message(0, b"c"), per_queue=2)
    assert [body for _, body in started(line)] == [b"a", b"b"]


def test_a_busy_broker_gets_the_request_again_before_those_behind_it():
    line = line_of(message(0, b"a"), message(0, b"b"))
    started(line)
    assert line.on_result(0, BUSY, 10) is None
    assert started(line, 10) == []
    assert 0 < line.wait_ms(10, 1_000) < 1_000
    assert started(line, 500) == [(0, b"a")]


@pytest.mark.parametrize("error", [BUSY, ConnectError("broker-a", "refused")])
def test_what_stays_refused_is_given_up_after_the_retry_time(error):
    line = line_of(message(0, b"a"))
    now_ms, outcome = 0, None
    while outcome is None:
        for index, _ in started(line, now_ms):
            outcome = line.on_result(index, error, now_ms)
        now_ms += 10
    assert outcome.result is error
    assert 1_000 <= now_ms < 2_500
    assert line.is_empty


def test_a_final_refusal_is_an_outcome_at_once():
    line = line_of(message(0, b"a"))
    started(line)
    error = BrokerError(13, "illegal")
    assert line.on_result(0, error, 1).result is error
    assert line.is_empty


def test_the_line_takes_no_more_than_it_can_hold():
    line = line_of(in_flight_max=2)
    while line.wants_more:
        line.add(message(0, b"x"))
    assert len(started(line)) == 1
    line = line_of(message(0, bytes(64 << 20)), in_flight_max=100)
    assert not line.wants_more


def test_unique_keys_count_on_and_wrap():
    keys = count_on("0" * 28 + "FFFE", 4).to_pylist()
    assert [key[-4:] for key in keys] == ["FFFE", "FFFF", "0000", "0001"]
    assert {len(key) for key in keys} == {32}


def test_an_unknown_outcome_survives_pickling_and_says_what_to_think_of():
    error = SendOutcomeUnknownError(QUEUES[0], 7, "the connection broke")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.queue, copy.count) == (QUEUES[0], 7)
    assert "OUTCOME_UNKNOWN] topic=orders broker=broker-a queue=0: 7 messages" in str(copy)


def test_what_may_be_stored_goes_again_before_those_behind_it_where_that_is_wanted():
    unknown = SendOutcomeUnknownError(QUEUES[0], 1, "closed")
    line = SendQueue(
        in_flight_max=8,
        in_flight_per_queue_max=1,
        retry=SEND_1_S,
        retried=(SendOutcomeUnknownError,),
    )
    line.add(message(0, b"a"))
    line.add(message(0, b"b"))
    started(line)
    assert line.on_result(0, unknown, 10) is None
    assert started(line, 500) == [(0, b"a")]
    assert line.on_result(0, unknown, 1_500).result is unknown


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


def sends_of(bodies):
    """What happens when requests with these bodies are made and sent, one queue each."""
    events = []
    cluster = Cluster(ConnectionSettings(name_servers=("a:1",)), AnsweringTransport(events))

    def source():
        for number, body in enumerate(bodies):
            events.append(f"made {body[:1].decode()}")
            yield SendMessage("p", QueueId("orders", "broker-a", number), 0, body)

    outcomes = list(Producer(cluster).send_many(source()))
    assert [sent.result for sent in outcomes] == [STORED] * len(bodies)
    return events


def test_a_large_request_is_on_its_way_before_the_next_one_is_made():
    events = sends_of([b"a" * 100_000, b"b" * 100_000])
    assert events.index("sent a") < events.index("made b")
    assert events.index("looked") < events.index("made b")


def test_small_requests_are_handed_over_together():
    assert sends_of([b"a", b"b", b"c"])[:6] == [
        *("made a", "made b", "made c"),
        *("sent a", "sent b", "sent c"),
    ]


def test_what_the_source_raises_comes_after_the_outcomes_before_it():
    cluster = Cluster(ConnectionSettings(name_servers=("a:1",)), AnsweringTransport([]))

    def source():
        yield message(0, b"a")
        raise ValueError("line 2 is no JSON")

    outcomes = []
    with pytest.raises(ValueError, match="line 2"):
        outcomes.extend(Producer(cluster).send_many(source()))
    assert [sent.result for sent in outcomes] == [STORED]
