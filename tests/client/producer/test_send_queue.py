"""Order, retries and outcomes of sends, without a network."""

from __future__ import annotations

import pytest

from rocketmq_client.errors import SendOutcomeUnknownError
from rocketmq_client.producer.send_queue import SendQueue
from rocketmq_client.retry_schedules import SEND
from rocketmq_wire.errors import BrokerError, ConnectError, broker_error
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.messages import SendMessage, SendReply, SendStatus

QUEUES = [QueueId("orders", "broker-a", index) for index in range(2)]
STORED = SendReply(SendStatus.OK, "id", 0, 0)
BUSY = broker_error(2, "busy")
SEND_1_S = SEND.within(1_000)


def message(queue, text):
    return SendMessage("p", QUEUES[queue], 0, text)


def sends_of(*messages, in_flight_max=8, per_queue=1, retry=SEND_1_S):
    sends = SendQueue(in_flight_max=in_flight_max, in_flight_per_queue_max=per_queue, retry=retry)
    for item in messages:
        sends.add(item)
    return sends


def started(sends, now_ms=0):
    """Bodies of the requests to send now, with their indexes."""
    return [(index, request.body) for index, request in sends.next_requests(now_ms)]


def test_one_request_a_queue_is_in_flight_at_a_time():
    sends = sends_of(message(0, b"a"), message(0, b"b"), message(1, b"c"))
    assert started(sends) == [(0, b"a"), (2, b"c")]
    assert sends.on_result(0, STORED, 1).index == 0
    assert started(sends) == [(1, b"b")]


def test_more_requests_are_in_flight_if_the_order_does_not_matter():
    sends = sends_of(message(0, b"a"), message(0, b"b"), message(0, b"c"), per_queue=2)
    assert [body for _, body in started(sends)] == [b"a", b"b"]


def test_a_busy_broker_gets_the_request_again_before_those_behind_it():
    sends = sends_of(message(0, b"a"), message(0, b"b"))
    started(sends)
    assert sends.on_result(0, BUSY, 10) is None
    assert started(sends, 10) == []
    assert 0 < sends.wait_ms(10, 1_000) < 1_000
    assert started(sends, 500) == [(0, b"a")]


@pytest.mark.parametrize("error", [BUSY, ConnectError("broker-a", "refused")])
def test_a_send_that_stays_refused_is_given_up_after_the_limit(error):
    sends = sends_of(message(0, b"a"))
    now_ms, outcome = 0, None
    while outcome is None:
        for index, _ in started(sends, now_ms):
            outcome = sends.on_result(index, error, now_ms)
        now_ms += 10
    assert outcome.result is error
    assert 1_000 <= now_ms < 2_500
    assert sends.is_empty


def test_a_final_refusal_is_an_outcome_at_once():
    sends = sends_of(message(0, b"a"))
    started(sends)
    error = BrokerError(13, "illegal")
    assert sends.on_result(0, error, 1).result is error
    assert sends.is_empty


def test_a_send_queue_takes_no_more_than_it_can_hold():
    sends = sends_of(in_flight_max=2)
    while sends.wants_more:
        sends.add(message(0, b"x"))
    assert len(started(sends)) == 1
    sends = sends_of(message(0, bytes(64 << 20)), in_flight_max=100)
    assert not sends.wants_more


def test_a_send_of_unknown_outcome_is_repeated_before_later_ones_on_request():
    unknown = SendOutcomeUnknownError(QUEUES[0], 1, "closed")
    sends = SendQueue(
        in_flight_max=8,
        in_flight_per_queue_max=1,
        retry=SEND_1_S,
        retried=(SendOutcomeUnknownError,),
    )
    sends.add(message(0, b"a"))
    sends.add(message(0, b"b"))
    started(sends)
    assert sends.on_result(0, unknown, 10) is None
    assert started(sends, 500) == [(0, b"a")]
    sent = sends.on_result(0, unknown, 1_500)
    assert sent is not None
    assert sent.result is unknown
