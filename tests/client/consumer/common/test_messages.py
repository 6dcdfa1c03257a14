"""The fast decoder of message objects equals the scalar codec."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client.consumer.common.messages import ReceivedMessage, decode_messages
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.model import Host, StoredMessage
from rocketmq_wire.records.record import (
    FLAG_BORN_HOST_V6,
    FLAG_COMPRESSED,
    FLAG_STORE_HOST_V6,
    decode_record,
    encode_record,
)

PLAIN = StoredMessage(
    topic="orders",
    body=b"hello",
    properties={"TAGS": "TagA", "UNIQ_KEY": "0A"},
    flag=7,
    queue_index=3,
    queue_offset=42,
    physical_offset=1_000,
    sys_flag=0,
    born_ms=1_700_000_000_000,
    born_host=Host(bytes((10, 0, 0, 9)), 5_555),
    store_ms=1_700_000_000_123,
    store_host=Host(bytes((10, 0, 0, 1)), 10_911),
    reconsume_times=2,
    prepared_transaction_offset=0,
    body_crc=0,
    store_size=0,
)


def decoded(
    *messages: StoredMessage, topic: str = "orders", tags: frozenset[str] = frozenset()
) -> list[ReceivedMessage]:
    body = b"".join(map(encode_record, messages))
    return decode_messages(body, broker="broker-a", topic=topic, tags=tags)


def assert_equal(found: ReceivedMessage, stored: StoredMessage) -> None:
    # The codec computes size and checksum.
    stored, _ = decode_record(encode_record(stored))
    assert found.broker == "broker-a"
    assert (Host(*found.born_host), Host(*found.store_host)) == (
        stored.born_host,
        stored.store_host,
    )
    for name in (
        *("topic", "body", "properties", "flag", "queue_index", "queue_offset", "sys_flag"),
        *("physical_offset", "born_ms", "store_ms", "reconsume_times", "store_size"),
    ):
        assert getattr(found, name) == getattr(stored, name), name


HOSTS = st.builds(Host, st.binary(min_size=4, max_size=4), st.integers(0, 65_535))
HOSTS_V6 = st.builds(Host, st.binary(min_size=16, max_size=16), st.integers(0, 65_535))
LONGS = st.integers(0, 2**62)


@st.composite
def stored_messages(draw: st.DrawFn) -> StoredMessage:
    is_v6 = draw(st.booleans())
    return replace(
        PLAIN,
        topic=draw(st.sampled_from(("orders", "other", "t" * 200))),
        body=draw(st.binary(max_size=50)),
        flag=draw(st.integers(-(2**31), 2**31 - 1)),
        queue_offset=draw(LONGS),
        physical_offset=draw(LONGS),
        born_ms=draw(LONGS),
        store_ms=draw(LONGS),
        reconsume_times=draw(st.integers(0, 20)),
        born_host=draw(HOSTS_V6 if is_v6 else HOSTS),
        store_host=draw(HOSTS_V6 if is_v6 else HOSTS),
        sys_flag=FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6 if is_v6 else 0,
    )


@given(st.lists(stored_messages(), max_size=6))
def test_messages_equal_those_of_the_scalar_codec(messages: list[StoredMessage]) -> None:
    found = decoded(*messages)
    assert len(found) == len(messages)
    for one, stored in zip(found, messages, strict=True):
        assert_equal(one, stored)


@given(stored_messages(), st.data())
def test_a_cut_or_flipped_record_is_refused_or_equal_to_the_scalar_reading(
    message: StoredMessage, data: st.DataObject
) -> None:
    whole = bytearray(encode_record(message))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    damaged = bytes(whole[: data.draw(st.integers(1, len(whole)))])
    try:
        stored, _ = decode_record(damaged)
    except CorruptRecordError:
        stored = None
    if stored is None:
        with pytest.raises(CorruptRecordError):
            decode_messages(damaged, broker="broker-a", topic="orders")
    elif not stored.sys_flag & FLAG_COMPRESSED:
        (found,) = decode_messages(damaged, broker="broker-a", topic=stored.topic)[:1]
        assert (found.body, found.queue_offset) == (stored.body, stored.queue_offset)


def test_only_the_wanted_tags_pass() -> None:
    other = replace(PLAIN, properties={"TAGS": "TagB"})
    none = replace(PLAIN, properties={})
    (found,) = decoded(other, PLAIN, none, tags=frozenset({"TagA", "TagC"}))
    assert found.tags == "TagA"


def test_a_retried_message_shows_its_first_topic() -> None:
    retried = replace(PLAIN, topic="%RETRY%g", properties={"RETRY_TOPIC": "orders"})
    (found,) = decoded(retried, topic="%RETRY%g")
    assert found.topic == "orders"


def test_compressed_bodies_are_inflated() -> None:
    packed = replace(PLAIN, body=zlib.compress(b"hello" * 100), sys_flag=FLAG_COMPRESSED)
    (found,) = decoded(packed)
    assert found.body == b"hello" * 100
    with pytest.raises(CorruptRecordError, match="offset 42"):
        decoded(replace(packed, body=packed.body[:-9]))


def test_ids_are_the_senders_and_the_brokers() -> None:
    (found,) = decoded(PLAIN)
    assert (found.message_id, found.offset_message_id) == ("0A", "0A00000100002A9F00000000000003E8")
    (found,) = decoded(replace(PLAIN, properties={}))
    assert found.message_id == found.offset_message_id


def test_the_start_of_consumption_shows_as_a_property() -> None:
    (found,) = decoded(PLAIN)
    found.consume_start_ms = 77
    assert found.properties["CONSUME_START_TIME"] == "77"
