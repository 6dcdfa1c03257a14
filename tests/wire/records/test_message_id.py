"""Message ids."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.model import Host
from rocketmq_wire.records.message_id import (
    offset_message_id,
    parse_offset_message_id,
    unique_message_id,
)

GOLDEN = "0A00000100002A9F00000000000003E8"
STORE_HOST = Host(bytes([10, 0, 0, 1]), 10911)


def ms_of(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=timezone.utc).timestamp() * 1000)  # type: ignore[misc, arg-type]


def test_the_golden_id_is_written_and_read():
    assert offset_message_id(STORE_HOST, 1000) == GOLDEN
    assert parse_offset_message_id(GOLDEN) == (STORE_HOST, 1000)
    assert parse_offset_message_id(GOLDEN.lower()) == (STORE_HOST, 1000)


def test_an_ipv6_id_has_56_characters():
    host = Host(bytes(range(16)), 10911)
    text = offset_message_id(host, 2**62)
    assert len(text) == 56
    assert parse_offset_message_id(text) == (host, 2**62)


@pytest.mark.parametrize(
    "text", ["", GOLDEN[:-1], GOLDEN + "0", "Z" * 32, " " * 32, "0A" * 15 + "  ", "01" * 17]
)
def test_other_text_is_refused(text: str):
    with pytest.raises(RemoteProtocolError, match="not an offset message id"):
        parse_offset_message_id(text)


@given(
    st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
)
def test_offset_ids_survive_a_round_trip(address: bytes, port: int, position: int):
    host = Host(address, port)
    assert parse_offset_message_id(offset_message_id(host, position)) == (host, position)


def test_a_unique_id_holds_sender_time_and_counter():
    text = unique_message_id(
        bytes([10, 0, 0, 9]),
        process_id=0x12345,
        loader_hash=-2,
        now_ms=ms_of(2024, 5, 1, 0, 0, 1),
        counter=0x1FFFF,
    )
    assert text == "0A0000092345FFFFFFFE000003E8FFFF"


def test_the_time_of_a_unique_id_counts_from_the_local_month():
    def clock(utc_offset_hours: int) -> str:
        return unique_message_id(
            bytes(4),
            process_id=0,
            loader_hash=0,
            now_ms=ms_of(2024, 5, 1, 0, 0, 0),
            counter=0,
            utc_offset_ms=utc_offset_hours * 3_600_000,
        )[20:28]

    assert clock(0) == "00000000"
    assert clock(2) == f"{2 * 3_600_000:08X}"
    assert clock(-1) == f"{(30 * 24 - 1) * 3_600_000:08X}"


def test_a_unique_id_takes_ipv6():
    text = unique_message_id(bytes(16), process_id=1, loader_hash=1, now_ms=0, counter=1)
    assert len(text) == 56
