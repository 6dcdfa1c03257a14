"""Messages that the benchmark sends are what it says, in both of their forms."""

from __future__ import annotations

from bench.load import batch_request, numbered, numbered_bodies, records_request
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.properties import decode_properties
from rocketmq_wire.records.record import decode_record
from support.batch_entries import decode_batch

QUEUE = QueueId("loaded", "broker-a", 3)
NUMBERS = range(9_998, 10_003)


def test_bodies_begin_with_their_numbers_and_have_the_wanted_size() -> None:
    bodies = numbered_bodies(NUMBERS.start, len(NUMBERS), 100).to_pylist()
    assert [int(body[:12]) for body in bodies] == list(NUMBERS)
    assert {len(body) for body in bodies} == {100}


def test_numbered_texts_keep_their_width() -> None:
    assert numbered("k", 9, 2, 3).to_pylist() == ["k009", "k010"]


def test_records_and_batches_hold_the_same_messages() -> None:
    records = records_request(QUEUE, NUMBERS.start, len(NUMBERS), 100)
    stored = []
    position = 0
    while position < len(records.records):
        message, position = decode_record(records.records, position)
        stored.append((message.body, dict(message.properties)))
    entries = decode_batch(batch_request(QUEUE, NUMBERS.start, len(NUMBERS), 100).body)
    assert stored == [(entry.body, decode_properties(entry.properties)) for entry in entries]
    assert stored[0][1] == {
        "TAGS": "Tag0",
        "KEYS": "k00009998",
        "UNIQ_KEY": "7F00000100002A139A55000000009998",
    }
