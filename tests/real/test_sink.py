"""Writes through Spark, rows sent back and look-ups, on unmodified RocketMQ."""

from __future__ import annotations

import time

import pytest

import spark.test_lookup as lookup
import spark.test_sink as sink
import spark.test_sink_send_back as send_back
import spark.test_sink_transactions as sink_transactions
from real.adoption import adopt
from rocketmq_client.producer.producer import Producer
from rocketmq_wire.errors import MessageTooLargeError
from rocketmq_wire.model import Message
from support.loader import Loader
from support.real_cluster import RealCluster

_NO_BROKER = "asks nothing of a broker"

globals().update(
    adopt(
        sink,
        without={
            "test_what_cannot_be_written_is_refused_before_anything_is_sent": _NO_BROKER,
            "test_modes_that_make_no_sense_say_what_to_write": _NO_BROKER,
            "test_rows_of_other_producers_are_no_replays": "is about rows that were read",
        },
        short=("test_rows_come_back_as_they_were_written",),
    )
)
globals().update(
    adopt(
        send_back,
        without={"test_what_cannot_be_sent_back_is_refused": _NO_BROKER},
        short=(),
    )
)
globals().update(adopt(lookup, without={}))
globals().update(adopt(sink_transactions, without={}))


@pytest.fixture
def where(broker: RealCluster) -> dict[str, str]:
    """Real clusters speak the TCP protocol; gRPC in bulk is the bundled broker's."""
    return {"nameServer": broker.name_server}


@pytest.mark.short
def test_a_row_larger_than_a_broker_takes_is_refused_at_once(
    broker: RealCluster, topic: str
) -> None:
    with broker.open() as cluster, Producer(cluster) as producer:
        (queue, *_) = Loader(cluster).create(topic)
        large = Message(topic, bytes(9 << 20))
        requests = (
            producer.message_request(large, queue),
            producer.batch_request(queue, [large]),
            producer.batch_request(queue, [Message(topic, bytes(5 << 20))] * 2),
        )
        for request in requests:
            began = time.monotonic()
            (sent,) = producer.send_many([request])
            assert isinstance(sent.result, MessageTooLargeError)
            assert time.monotonic() - began < 10
