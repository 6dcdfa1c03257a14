"""Blocks hold exactly the records that the scalar codec would write, and refuse hostile input."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_arrow.encode.key_hashes import index_value, key_entries
from rocketmq_arrow.encode.record_block import (
    BatchPart,
    RecordBlock,
    block_from_batches,
    block_from_message,
    block_from_records,
)
from rocketmq_arrow.encode.record_block import join_records as join_senders
from rocketmq_arrow.kernels.java_hashes import java_hashes
from rocketmq_wire.errors import CorruptRecordError, LocalProtocolError, ProtocolError
from rocketmq_wire.hashes import java_hash
from rocketmq_wire.model import Host, StoredMessage
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.records.properties import decode_properties
from rocketmq_wire.records.record import decode_record
from support.batch_blocks import block_from_batch
from support.batch_entries import decode_batch
from support.records import (
    BORN_HOST,
    BORN_HOST_V6,
    STORE_HOST,
    STORE_HOST_V6,
    join_records,
    lay_out,
    make_messages,
    make_records,
    properties_text,
    sealed,
)

PATCH_HOST = Host(bytes((192, 168, 0, 7)), 12345)
ARRIVAL: dict[str, Any] = {
    "topic": "orders",
    "queue_index": 2,
    "born_ms": 1_700_000_000_000,
    "born_host": BORN_HOST,
    "store_host": STORE_HOST,
    "sys_flag": 0,
}


def messages_of(block: RecordBlock) -> list[StoredMessage]:
    buffer = block.buffer.tobytes()
    found, position = [], 0
    for start, size in zip(block.starts.tolist(), block.sizes.tolist(), strict=True):
        assert start == position
        message, position = decode_record(buffer, position)
        assert position == start + size
        found.append(message)
    assert position == len(buffer)
    return found


def tag_hash(properties: dict[str, str]) -> int:
    return java_hash(properties["TAGS"]) if "TAGS" in properties else 0


def batch_of(count: int, body_size: int = 20) -> list[BatchEntry]:
    return [
        BatchEntry(row, message.body, properties_text(message.properties))
        for row, message in enumerate(make_messages(count, body_size))
    ]


# --- records --------------------------------------------------------------------------------


def test_records_are_taken_as_they_are_and_patched() -> None:
    sent = make_messages(300, 30)
    body, sizes = join_records([lay_out(message) for message in sent])
    for given_sizes in (None, sizes):
        block = block_from_records(body, given_sizes)
        assert block.buffer.tobytes() == body
        assert block.sizes.astype("<i4").tobytes() == sizes
        assert block.topic == "orders"
        assert block.tag_hashes.tolist() == [tag_hash(dict(m.properties)) for m in sent]
        block.patch(7, 1000, 5_000_000_000, 1_800_000_000_000, PATCH_HOST)
        assert messages_of(block) == [
            replace(
                message,
                queue_index=7,
                queue_offset=1000 + row,
                physical_offset=5_000_000_000 + int(block.starts[row]),
                store_ms=1_800_000_000_000,
                store_host=PATCH_HOST,
            )
            for row, message in enumerate(sent)
        ]


@pytest.mark.parametrize("host", [Host(bytes(4), 7), Host(bytes(range(16)), 7)])
@pytest.mark.parametrize("born", [Host(bytes(4), 9), Host(bytes(range(1, 17)), 9)])
def test_a_single_record_is_patched_as_many_are(host: Host, born: Host) -> None:
    blocks = [
        block_from_message(
            topic="orders",
            queue_index=0,
            body=b"body",
            properties=b"k\x01v\x02",
            flag=3,
            sys_flag=0,
            born_ms=5,
            born_host=born,
            store_host=host,
        )
        for _ in range(2)
    ]
    blocks[0].patch(7, 1_000, 5_000_000_000, 1_800_000_000_000, host)
    # Given as arrays it takes the way of many.
    blocks[1].patch(np.array([7]), np.array([1_000]), 5_000_000_000, 1_800_000_000_000, host)
    assert blocks[0].buffer.tobytes() == blocks[1].buffer.tobytes()
    other = Host(bytes(4 if len(host.address) == 16 else 16), 1)
    with pytest.raises(LocalProtocolError, match="does not fit into the records"):
        blocks[0].patch(1, 5, 9, 77, other)


def test_patch_knows_ipv6_hosts() -> None:
    plain = make_messages(4, 10)
    sent = [
        sealed(replace(plain[0], sys_flag=0x30, born_host=BORN_HOST_V6, store_host=STORE_HOST_V6)),
        sealed(replace(plain[1], sys_flag=0x20, store_host=STORE_HOST_V6)),
    ]
    block = block_from_records(b"".join(map(lay_out, sent)))
    other = Host(bytes(range(100, 116)), 1)
    block.patch(1, 5, 9, 77, other)
    for row, message in enumerate(messages_of(block)):
        assert message.store_host == other
        assert (message.store_ms, message.queue_offset) == (77, 5 + row)
        assert message.born_host == sent[row].born_host
    with pytest.raises(LocalProtocolError, match="4 bytes"):
        block.patch(1, 5, 9, 77, PATCH_HOST)
    with pytest.raises(CorruptRecordError, match="IPv4 and of IPv6"):
        block_from_records(lay_out(plain[2]) + lay_out(sent[0]))


def test_piece_is_a_block_over_the_same_bytes() -> None:
    body, _ = make_records(10, 30)
    block = block_from_records(body)
    piece = block.piece(3, 6)
    piece.patch(9, 50, 0, 1, STORE_HOST)
    assert [message.queue_offset for message in messages_of(piece)] == [50, 51, 52]
    assert [message.queue_index for message in messages_of(block)] == [0] * 3 + [9] * 3 + [0] * 4
    with pytest.raises(ValueError, match="at least one record"):
        block.piece(3, 3)


def test_block_does_not_change_the_received_bytes() -> None:
    body = bytearray(make_records(3, 30)[0])
    before = bytes(body)
    block_from_records(body).patch(9, 50, 0, 1, STORE_HOST)
    assert body == before


def test_records_of_another_topic_are_refused() -> None:
    body, _ = make_records(3)
    other, _ = make_records(1, topic="other")
    with pytest.raises(CorruptRecordError, match="of topic 'orders'"):
        block_from_records(body, topic="payments")
    with pytest.raises(CorruptRecordError, match="of topic 'other'") as caught:
        block_from_records(body + other)
    assert caught.value.position == len(body)
    assert block_from_records(make_records(2, topic="t" * 200)[0]).topic == "t" * 200


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        (4, 0, "unknown magic"),
        (39, 0x80, "inner batch"),
        (39, 0x04, "transactional"),
        (95, 0xEE, "checksum"),
        (84, 0x70, "body size"),
        (3, 0, "size"),
    ],
)
def test_hostile_records_are_refused_with_their_position(
    position: int, value: int, reason: str
) -> None:
    records = [bytearray(lay_out(message)) for message in make_messages(3, 30)]
    records[1][position] = value
    with pytest.raises(CorruptRecordError, match=reason) as caught:
        block_from_records(b"".join(records))
    if position != 3:
        assert caught.value.position == len(records[0])


def test_records_of_several_senders_become_one_block() -> None:
    sent = [make_records(count, 20) for count in (3, 1, 40)]
    records, sizes = join_senders(sent)
    together = block_from_records(records, sizes, topic="orders", takes_over=True)
    assert together.buffer.tobytes() == b"".join(part[0] for part in sent)
    together.patch(np.repeat([5, 0, 7], [3, 1, 40]), np.arange(44) * 2, 1000, 99, PATCH_HOST)
    messages = messages_of(together)
    assert [message.queue_index for message in messages] == [5] * 3 + [0] + [7] * 40
    assert [message.queue_offset for message in messages] == list(range(0, 88, 2))
    assert records == together.buffer.tobytes()


def test_senders_whose_sizes_only_fit_together_are_refused() -> None:
    records, sizes = make_records(4, 20)
    middle = int.from_bytes(sizes[:4], "little") + 10
    for parts in (
        [(records[:middle], sizes[:8]), (records[middle:], sizes[8:])],
        [(records, sizes), (b"", b"")],
        [(records, sizes + b"x")],
    ):
        with pytest.raises(CorruptRecordError):
            join_senders(parts)


def test_no_records_are_refused() -> None:
    with pytest.raises(CorruptRecordError, match="no record"):
        block_from_records(b"")


THREE_RECORDS = make_records(3, 10)[0]


@settings(max_examples=200)
@given(st.data())
def test_hostile_bytes_never_become_records_that_the_scalar_codec_refuses(
    data: st.DataObject,
) -> None:
    body = bytearray(THREE_RECORDS)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(body) - 1) | st.integers(0, 120))
        body[position] = data.draw(st.integers(0, 255))
    try:
        block = block_from_records(bytes(body))
    except ProtocolError:
        return
    messages = messages_of(block)
    assert block.tag_hashes.tolist() == [tag_hash(dict(m.properties)) for m in messages]


# --- batches --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 1000])
def test_batch_becomes_records_with_every_field_in_position(count: int) -> None:
    entries = batch_of(count)
    block = block_from_batch(encode_batch(entries), **ARRIVAL)
    block.patch(2, 10, 100, 200, STORE_HOST)
    for row, (message, entry) in enumerate(zip(messages_of(block), entries, strict=True)):
        assert (message.body, message.flag) == (entry.body, entry.flag)
        assert message.properties == decode_properties(entry.properties)
        assert (message.topic, message.queue_index, message.queue_offset) == ("orders", 2, 10 + row)
        assert message.physical_offset == 100 + block.starts[row]
        assert (message.born_ms, message.store_ms) == (1_700_000_000_000, 200)
        assert (message.born_host, message.store_host) == (BORN_HOST, STORE_HOST)
        assert (message.reconsume_times, message.prepared_transaction_offset) == (0, 0)
        assert block.tag_hashes[row] == tag_hash(dict(message.properties))


@pytest.mark.parametrize("born_host", [BORN_HOST, BORN_HOST_V6])
@pytest.mark.parametrize("store_host", [STORE_HOST, STORE_HOST_V6])
@pytest.mark.parametrize("topic", ["T", "t" * 127, "t" * 128])
def test_batch_takes_any_host_and_topic(born_host: Host, store_host: Host, topic: str) -> None:
    changed = ARRIVAL | {"born_host": born_host, "store_host": store_host, "topic": topic}
    block = block_from_batch(encode_batch(batch_of(3)), **changed)
    block.patch(2, 10, 100, 200, store_host)
    messages = messages_of(block)
    assert {message.topic for message in messages} == {topic}
    assert {message.born_host for message in messages} == {born_host}
    assert {message.store_host for message in messages} == {store_host}
    assert [message.queue_offset for message in messages] == [10, 11, 12]


@pytest.mark.parametrize("counts", [(1, 2, 3), (700, 1, 40)])
def test_several_batches_become_the_records_that_each_would_become(counts: tuple[int, ...]) -> None:
    parts = [
        BatchPart(encode_batch(batch_of(count, 10 + count % 7)), index, 1_000 + index, host, 0)
        for index, (count, host) in enumerate(
            zip(counts, [BORN_HOST, PATCH_HOST, BORN_HOST], strict=True)
        )
    ]
    together, found = block_from_batches(parts, topic="orders", store_host=STORE_HOST)
    apart = [block_from_batches([part], topic="orders", store_host=STORE_HOST)[0] for part in parts]
    assert found == list(counts)
    assert together.buffer.tobytes() == b"".join(block.buffer.tobytes() for block in apart)
    assert together.sizes.tolist() == [size for block in apart for size in block.sizes.tolist()]
    hashes = [value for block in apart for value in block.tag_hashes.tolist()]
    assert together.tag_hashes.tolist() == hashes
    torn = parts[1]._replace(body=parts[1].body[:-1])
    with pytest.raises(CorruptRecordError):
        block_from_batches([parts[0], torn], topic="orders", store_host=STORE_HOST)


@pytest.mark.parametrize("cut", range(1, 60))
def test_torn_batch_is_refused_or_is_a_shorter_batch(cut: int) -> None:
    body = encode_batch([BatchEntry(1, b"hi", b"a\x01b\x02"), BatchEntry(2, b"ho", b"c\x01d\x02")])
    if cut >= len(body):
        return
    if cut == len(body) // 2:
        assert len(block_from_batch(body[:cut], **ARRIVAL)) == 1
        return
    with pytest.raises(CorruptRecordError) as caught:
        block_from_batch(body[:cut], **ARRIVAL)
    assert caught.value.position in (0, len(body) // 2)


BATCHES = [encode_batch(batch_of(count, 5)) for count in (3, 1100)]


@given(st.data())
def test_hostile_batch_is_refused_or_read_as_the_scalar_codec_reads_it(
    data: st.DataObject,
) -> None:
    body = bytearray(data.draw(st.sampled_from(BATCHES)))
    for _ in range(data.draw(st.integers(0, 3))):
        position = data.draw(st.integers(0, len(body) - 1) | st.integers(0, 60))
        body[position] = data.draw(st.integers(0, 255))
    hostile = bytes(body)
    try:
        block = block_from_batch(hostile, **ARRIVAL)
    except CorruptRecordError:
        with pytest.raises(CorruptRecordError):
            decode_batch(hostile)
        return
    entries = decode_batch(hostile)
    assert [(m.flag, m.body) for m in messages_of(block)] == [(e.flag, e.body) for e in entries]
    assert [m.properties for m in messages_of(block)] == [
        decode_properties(entry.properties) for entry in entries
    ]


@pytest.mark.parametrize(("count", "reason"), [(0, "empty"), (40_001, "40001 messages, over")])
def test_a_batch_of_no_or_too_many_messages_is_refused(count: int, reason: str) -> None:
    with pytest.raises(CorruptRecordError, match=reason):
        block_from_batch(encode_batch([BatchEntry(0, b"x")]) * count, **ARRIVAL)


# --- one message ----------------------------------------------------------------------------


def test_one_message_equals_the_scalar_codecs_record() -> None:
    for born, store in ((BORN_HOST, STORE_HOST), (BORN_HOST_V6, STORE_HOST_V6)):
        expected = replace(
            make_messages(1, 33)[0],
            flag=-5,
            born_host=born,
            store_host=store,
            sys_flag=0x30 if born is BORN_HOST_V6 else 0,
            reconsume_times=3,
            prepared_transaction_offset=11,
            queue_index=4,
        )
        block = block_from_message(
            topic="orders",
            queue_index=4,
            body=memoryview(expected.body),
            properties=properties_text(expected.properties),
            flag=-5,
            sys_flag=0,
            born_ms=expected.born_ms,
            born_host=born,
            store_host=store,
            reconsume_times=3,
            prepared_transaction_offset=11,
        )
        block.patch(4, expected.queue_offset, expected.physical_offset, expected.store_ms, store)
        assert block.buffer.tobytes() == lay_out(expected)
        assert block.tag_hashes.tolist() == [tag_hash(dict(expected.properties))]
        assert len(key_entries(block)[0]) == 2


def test_message_that_does_not_fit_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="more than 32767"):
        block_from_message(**ARRIVAL, flag=0, body=b"x", properties=b"k\x01" + b"v" * 32_767)
    with pytest.raises(LocalProtocolError, match="1 to 255 bytes"):
        block_from_message(**ARRIVAL | {"topic": "t" * 256}, flag=0, body=b"x", properties=b"")


# --- hashes ---------------------------------------------------------------------------------

TEXTS = st.text(max_size=30) | st.text("ab", max_size=3)


@pytest.mark.parametrize(
    "texts",
    [
        [f"{row:032X}" for row in range(50)],
        ["x" * 64, "y" * 64],
        ["x" * 65, "y" * 65],
        ["ab", "\u00e9", "cd"],
        ["", ""],
    ],
)
def test_hashes_of_texts_of_one_length_equal_javas(texts: list[str]) -> None:
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    data = np.frombuffer(b"".join(encoded), np.uint8)
    hashes = java_hashes(data, np.append(0, ends[:-1]), ends)
    assert hashes.tolist() == [java_hash(text) for text in texts]


@given(st.lists(TEXTS, max_size=50))
def test_hashes_equal_javas(texts: list[str]) -> None:
    encoded = [text.encode("utf-8", "replace") for text in texts]
    ends = np.cumsum([len(text) for text in encoded], dtype=np.int64)
    starts = ends - np.array([len(text) for text in encoded], np.int64)
    data = np.frombuffer(b"".join(encoded), np.uint8)
    expected = [java_hash(text.decode()) for text in encoded]
    assert java_hashes(data, starts, ends).tolist() == expected


def test_hashes_of_more_text_than_one_piece_equal_javas() -> None:
    texts = [b"x" * size for size in [32_767, 1, 0, 32_767, 32_767, 32_767, 5] * 3]
    sizes = np.array([len(text) for text in texts])
    ends = np.cumsum(sizes)
    hashes = java_hashes(np.frombuffer(b"".join(texts), np.uint8), ends - sizes, ends)
    assert hashes.tolist() == [java_hash(text.decode()) for text in texts]


KEY_TEXTS = st.lists(st.sampled_from(["k1", "k2", " ", "  ", "größe", "😀", "a"])).map("".join)


@given(st.lists(st.tuples(KEY_TEXTS, st.sampled_from(["", "0A01", "0B02"])), min_size=1))
def test_every_key_of_a_record_is_indexed(keys: list[tuple[str, str]]) -> None:
    records = []
    expected = []
    for row, (text, unique) in enumerate(keys):
        properties = {"KEYS": text, "TAGS": "t t", "UNIQ_KEY": unique}
        records.append(lay_out(make_messages(1)[0], properties=properties_text(properties)))
        words = [word for word in [unique, *text.split(" ")] if word]
        expected += [(index_value(java_hash(f"orders#{word}")), row) for word in words]
    hashes, rows = key_entries(block_from_records(b"".join(records)))
    assert list(zip(hashes.tolist(), rows.tolist(), strict=True)) == expected


def test_index_value_of_the_smallest_hash_is_zero() -> None:
    assert (index_value(-(2**31)), index_value(-7), index_value(7)) == (0, 7, 7)
    assert struct.pack(">i", index_value(2**31 - 1)) == b"\x7f\xff\xff\xff"
