"""Stored records: the golden record, every cut, hostile lengths, and all variants of the layout."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import CorruptRecordError, LocalProtocolError
from rocketmq_wire.model import Host, StoredMessage
from rocketmq_wire.records.record import (
    FLAG_BORN_HOST_V6,
    FLAG_STORE_HOST_V6,
    MAGIC_BLANK,
    RECORD_SIZE_MIN,
    body_crc,
    decode_record,
    encode_record,
)

GOLDEN_BYTES = bytes.fromhex(
    "0000006FDAA320A73610A6860000000300000007000000000000002A00000000000003E8000000000000018BCFE568"
    "000A000009000015B30000018BCFE5687B0A00000100002A9F0000000000000000000000000000000568656C6C6F01"
    "54000E544147530154616741026B017602"
)
GOLDEN = StoredMessage(
    topic="T",
    body=b"hello",
    properties={"TAGS": "TagA", "k": "v"},
    flag=7,
    queue_index=3,
    queue_offset=42,
    physical_offset=1000,
    sys_flag=0,
    born_ms=1_700_000_000_000,
    born_host=Host(bytes([10, 0, 0, 9]), 5555),
    store_ms=1_700_000_000_123,
    store_host=Host(bytes([10, 0, 0, 1]), 10911),
    reconsume_times=0,
    prepared_transaction_offset=0,
    body_crc=907_060_870,
    store_size=111,
)
SMALLEST = replace(GOLDEN, topic="", body=b"", properties={}, body_crc=0, store_size=91)

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
hosts = st.builds(
    Host, st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)), i32
)


@st.composite
def stored_messages(draw: st.DrawFn) -> StoredMessage:
    born_host, store_host = draw(hosts), draw(hosts)
    sys_flag = draw(i32) & ~(FLAG_BORN_HOST_V6 | FLAG_STORE_HOST_V6)
    sys_flag |= FLAG_BORN_HOST_V6 if len(born_host.address) == 16 else 0
    sys_flag |= FLAG_STORE_HOST_V6 if len(store_host.address) == 16 else 0
    return StoredMessage(
        topic=draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=200)),
        body=draw(st.binary(max_size=300)),
        properties=draw(st.dictionaries(names, names, max_size=4)),
        flag=draw(i32),
        queue_index=draw(i32),
        queue_offset=draw(i64),
        physical_offset=draw(i64),
        sys_flag=sys_flag,
        born_ms=draw(i64),
        born_host=born_host,
        store_ms=draw(i64),
        store_host=store_host,
        reconsume_times=draw(i32),
        prepared_transaction_offset=draw(i64),
        body_crc=0,
        store_size=0,
    )


def patched(position: int, layout: str, value: int) -> bytes:
    """The golden record with one field overwritten."""
    buffer = bytearray(GOLDEN_BYTES)
    struct.pack_into(layout, buffer, position, value)
    return bytes(buffer)


def test_the_golden_record_is_written_byte_for_byte():
    assert encode_record(GOLDEN) == GOLDEN_BYTES


def test_the_golden_record_is_read_field_for_field():
    assert decode_record(GOLDEN_BYTES) == (GOLDEN, len(GOLDEN_BYTES))


def test_checksum_of_the_golden_body():
    assert body_crc(b"hello") == 907_060_870
    assert body_crc(memoryview(b"hello")) == 0x3610A686


def test_checksum_has_no_sign():
    body = next(b"%d" % n for n in range(100) if zlib.crc32(b"%d" % n) > 2**31)
    assert body_crc(body) == zlib.crc32(body) - 2**31


def test_the_smallest_record_has_91_bytes():
    encoded = encode_record(SMALLEST)
    assert len(encoded) == RECORD_SIZE_MIN == 91
    assert decode_record(encoded) == (SMALLEST, 91)


def test_records_are_read_one_after_the_other():
    buffer = GOLDEN_BYTES + encode_record(SMALLEST)
    _, position = decode_record(buffer)
    assert decode_record(memoryview(buffer), position) == (SMALLEST, len(buffer))


@pytest.mark.parametrize("cut", range(len(GOLDEN_BYTES)))
def test_a_record_cut_anywhere_is_refused(cut: int):
    with pytest.raises(CorruptRecordError):
        decode_record(GOLDEN_BYTES[:cut])


def test_bytes_behind_a_record_are_left_alone():
    assert decode_record(GOLDEN_BYTES + b"\xff\xff") == (GOLDEN, len(GOLDEN_BYTES))


@pytest.mark.parametrize("length", [127, 128, 255, 32_767])
def test_topics_over_127_bytes_take_the_second_layout(length: int):
    message = replace(GOLDEN, topic="t" * length)
    encoded = encode_record(message)
    assert encoded[4:8].hex() == ("daa320a7" if length == 127 else "daa320ab")
    decoded, _ = decode_record(encoded)
    assert decoded.topic == message.topic


def test_a_short_topic_in_the_second_layout_is_read():
    fixed = bytearray(GOLDEN_BYTES[:93])
    fixed[4:8] = bytes.fromhex("daa320ab")
    fixed[0:4] = struct.pack(">i", 112)
    decoded, _ = decode_record(bytes(fixed) + b"\x00\x01T" + GOLDEN_BYTES[95:])
    assert decoded == replace(GOLDEN, store_size=112)


@pytest.mark.parametrize("born_size", [4, 16])
@pytest.mark.parametrize("store_size", [4, 16])
def test_hosts_take_either_address_size(born_size: int, store_size: int):
    sys_flag = (0x10 if born_size == 16 else 0) | (0x20 if store_size == 16 else 0)
    message = replace(
        GOLDEN,
        sys_flag=sys_flag,
        born_host=Host(bytes(range(born_size)), 1),
        store_host=Host(bytes(range(100, 100 + store_size)), 2),
    )
    encoded = encode_record(message)
    assert len(encoded) == 111 + born_size - 4 + store_size - 4
    assert decode_record(encoded)[0] == replace(message, store_size=len(encoded))
    for cut in range(len(encoded)):
        with pytest.raises(CorruptRecordError):
            decode_record(encoded[:cut])


def test_a_sys_flag_that_contradicts_the_address_is_refused():
    with pytest.raises(LocalProtocolError, match="sysFlag 0x10"):
        encode_record(replace(GOLDEN, sys_flag=0x10))
    with pytest.raises(LocalProtocolError, match="16 bytes"):
        encode_record(replace(GOLDEN, store_host=Host(bytes(16), 1)))


@pytest.mark.parametrize(
    ("position", "layout", "value", "reason"),
    [
        (0, ">i", 90, "less than a record takes"),
        (0, ">i", 0, "less than a record takes"),
        (0, ">i", -1, "less than a record takes"),
        (0, ">i", 2**31 - 1, "cut off"),
        (0, ">i", 112, "cut off"),
        (0, ">i", 110, "do not fill"),
        (4, ">i", MAGIC_BLANK, "0xcbd43194"),
        (4, ">i", 0, "magic"),
        (8, ">i", 1, "checksum"),
        (36, ">i", 0x70, "less than its fixed fields take"),
        (84, ">i", -1, "a body of -1 bytes"),
        (84, ">i", 2**31 - 1, "a body of 2147483647 bytes"),
        (84, ">i", 21, "a body of 21 bytes"),
        (93, ">b", -1, "a topic of -1 bytes"),
        (93, ">b", 127, "a topic of 127 bytes"),
        (93, ">b", 16, "a topic of 16 bytes"),
        (95, ">h", -1, "properties of -1 bytes"),
        (95, ">h", 13, "do not fill"),
        (95, ">h", 15, "do not fill"),
    ],
)
def test_a_hostile_field_is_refused(position: int, layout: str, value: int, reason: str):
    with pytest.raises(CorruptRecordError, match=reason) as caught:
        decode_record(b"??" + patched(position, layout, value), 2, where="log")
    assert (caught.value.where, caught.value.position) == ("log", 2)


def test_the_checksum_is_not_compared_without_check_crc():
    decoded, _ = decode_record(patched(8, ">i", 1), check_crc=False)
    assert decoded == replace(GOLDEN, body_crc=1)


def test_a_topic_and_properties_that_are_no_utf8_are_read():
    buffer = bytearray(GOLDEN_BYTES)
    buffer[94] = 0xFF
    buffer[102] = 0xFE
    decoded, _ = decode_record(buffer)
    assert decoded.topic == "�"
    assert decoded.properties == {"TAGS": "�agA", "k": "v"}


@pytest.mark.parametrize(
    "message",
    [
        replace(GOLDEN, topic="t" * 32_768),
        replace(GOLDEN, flag=2**31),
        replace(GOLDEN, queue_offset=2**63),
        replace(GOLDEN, properties={"k": "v" * 32_768}),
    ],
)
def test_what_does_not_fit_the_layout_is_refused(message: StoredMessage):
    with pytest.raises(LocalProtocolError):
        encode_record(message)


@given(stored_messages())
def test_records_survive_a_round_trip(message: StoredMessage):
    encoded = encode_record(message)
    decoded, end = decode_record(encoded)
    assert end == len(encoded)
    assert decoded == replace(message, body_crc=body_crc(message.body), store_size=len(encoded))
    assert encode_record(decoded) == encoded


@given(stored_messages(), st.data())
def test_a_flipped_byte_never_escapes_as_another_error(message: StoredMessage, data: st.DataObject):
    encoded = bytearray(encode_record(message))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decoded, end = decode_record(encoded)
    except CorruptRecordError:
        return
    assert end == len(encoded)
    assert decoded.body == message.body
