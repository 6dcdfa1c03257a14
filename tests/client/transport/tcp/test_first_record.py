"""Records of other queues instead of a queue's first message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketmq_client.transport.tcp.download import first_offset
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.record import encode_record
from support.records import make_messages

ORDERS = QueueId("orders", "broker-a", 3)
(FIRST,) = make_messages(1, topic="orders", queue_index=3)


def test_the_queues_own_first_message_is_not_foreign():
    assert first_offset(ORDERS, encode_record(FIRST)) == 0
    second = replace(FIRST, queue_offset=1)
    assert first_offset(ORDERS, encode_record(FIRST) + encode_record(second)) == 0


@pytest.mark.parametrize("other", [{"topic": "refund"}, {"queue_index": 2}], ids=str)
def test_a_record_of_the_same_size_is_foreign(other):
    record = encode_record(replace(FIRST, **other))
    assert len(record) == len(encode_record(FIRST))
    assert first_offset(ORDERS, memoryview(record)) is None


def test_a_later_message_of_the_queue_is_known_by_its_offset():
    assert first_offset(ORDERS, encode_record(replace(FIRST, queue_offset=7))) == 7


def test_the_head_of_a_longer_record_is_foreign():
    longer = encode_record(replace(FIRST, body=bytes(4_000)))
    assert first_offset(ORDERS, longer[: len(encode_record(FIRST))]) is None


def test_damage_is_left_to_the_decoder():
    damaged = bytearray(encode_record(FIRST))
    damaged[4:8] = bytes(4)
    assert first_offset(ORDERS, bytes(damaged)) == 0
