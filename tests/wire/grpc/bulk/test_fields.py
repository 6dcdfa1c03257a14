"""Large protobuf fields joined and split by hand agree with the protobuf library."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.grpc.bulk.shapes import BODY_FIELD, SIZES_FIELD, join_fields, split_fields
from rocketmq_wire.stubs import message_class

CHUNK = message_class("RecordChunk")
SMALL = CHUNK(range_index=3, start=7, end=1 << 40, remark="ä").SerializeToString()
WHOLE = CHUNK(range_index=3, start=7, remark="ä", sizes=b"1234", records=b"abc").SerializeToString()


def test_a_joined_message_has_these_very_bytes() -> None:
    joined = join_fields(b"\x08\x03", {SIZES_FIELD: (b"\x02\0\0\0",), BODY_FIELD: (b"a", b"b")})
    assert joined == bytes.fromhex("0803 720402000000 7a02 6162")


@given(st.binary(max_size=300), st.lists(st.binary(max_size=20_000), max_size=3))
@example(sizes=b"", parts=[b"x" * 127])
@example(sizes=b"y" * 128, parts=[b"x" * (1 << 14)])
def test_the_library_reads_what_is_joined(sizes: bytes, parts: list[bytes]) -> None:
    joined = join_fields(SMALL, {SIZES_FIELD: (sizes,), BODY_FIELD: parts})
    expected = CHUNK(
        range_index=3, start=7, end=1 << 40, remark="ä", sizes=sizes, records=b"".join(parts)
    )
    assert joined == expected.SerializeToString()


@given(st.binary(min_size=1, max_size=300), st.binary(min_size=1, max_size=20_000))
def test_what_the_library_writes_is_split_without_a_copy(sizes: bytes, records: bytes) -> None:
    message = CHUNK(range_index=3, start=7, end=1 << 40, remark="ä", sizes=sizes, records=records)
    content = message.SerializeToString()
    small, large = split_fields(content)
    assert small == SMALL
    assert large == {SIZES_FIELD: sizes, BODY_FIELD: records}
    assert all(view.obj is content for view in large.values())


def test_fields_in_any_order_are_taken_and_the_last_of_a_repeated_one_counts() -> None:
    first = join_fields(b"", {BODY_FIELD: (b"old",)})
    second = join_fields(b"", {BODY_FIELD: (b"new",)})
    small, large = split_fields(first + SMALL[:2] + second + SMALL[2:])
    assert small == SMALL
    assert large == {BODY_FIELD: b"new"}


def test_unknown_fields_of_every_wire_type_are_kept_with_the_small_ones() -> None:
    varint, fixed_64, fixed_32 = b"\xf8\x07\x01", b"\xf9\x07" + b"8" * 8, b"\xfd\x07" + b"4" * 4
    text = b"\xfa\x07\x02hi"
    small, large = split_fields(varint + fixed_64 + fixed_32 + text)
    assert (small, large) == (varint + fixed_64 + fixed_32 + text, {})


@pytest.mark.parametrize("cut", range(len(WHOLE)))
def test_every_cut_is_refused_or_is_a_whole_shorter_message(cut: int) -> None:
    try:
        expected = CHUNK.FromString(WHOLE[:cut])
    except DecodeError:
        with pytest.raises(RemoteProtocolError):
            split_fields(WHOLE[:cut])
    else:
        small, large = split_fields(WHOLE[:cut])
        assert CHUNK.FromString(join_fields(small, {n: (v,) for n, v in large.items()})) == expected


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"\x7b\x01", "wire type 3 at byte 0"),
        (b"\x7a\xff\xff\xff\xff\x0f", "field 15 at byte 0 ends at byte 4294967301 of 6"),
        (b"\x08" + b"\xff" * 11, "a varint at byte 1 has no end"),
        (b"\x08\x80", "a varint is cut off at byte 2"),
        (b"\x0d\x01", "field 1 at byte 0 ends at byte 5 of 2"),
    ],
)
def test_hostile_bytes_are_refused_with_their_position(content: bytes, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        split_fields(content)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_give_fields_or_a_protocol_error(content: bytes) -> None:
    try:
        small, large = split_fields(content)
    except RemoteProtocolError:
        return
    assert len(small) + sum(len(view) for view in large.values()) <= len(content)
