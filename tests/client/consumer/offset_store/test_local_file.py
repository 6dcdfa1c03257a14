"""Where members begin, what they store, and RocketMQ's local file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client.consumer.offset_store.local_file import (
    LocalOffsetFile,
    ProgressFileError,
    decode_progress,
    encode_progress,
)
from rocketmq_client.consumer.offset_store.offset_table import OffsetTable
from rocketmq_client.consumer.offset_store.start_offset import (
    ConsumeFrom,
    Need,
    Start,
    parse_timestamp,
    start_of,
)
from rocketmq_wire.model import QueueId

QUEUE, OTHER = QueueId("orders", "broker-a", 0), QueueId("orders", "broker-a", 1)
RETRY = QueueId("%RETRY%g", "broker-a", 0)
ZERO = Start(Need.NOTHING, 0)


def test_progress_only_increases() -> None:
    table = OffsetTable()
    assert table.update(QUEUE, 10)
    assert not table.update(QUEUE, 9)
    assert table.offsets == {QUEUE: 10}


def test_a_correction_may_go_back() -> None:
    table = OffsetTable({QUEUE: 10})
    assert table.update(QUEUE, 3, increase_only=False)
    assert table.offsets == {QUEUE: 3}


def test_only_owned_queues_are_stored_and_others_forgotten() -> None:
    table = OffsetTable({QUEUE: 10, OTHER: 20})
    assert table.due({OTHER}) == {OTHER: 20}
    assert table.offsets == {OTHER: 20}


@pytest.mark.parametrize("consume_from", ConsumeFrom)
def test_stored_progress_is_followed(consume_from: ConsumeFrom) -> None:
    assert start_of(QUEUE, 7, consume_from) == Start(Need.NOTHING, 7)
    assert start_of(QUEUE, 0, consume_from) == ZERO


@pytest.mark.parametrize(
    ("consume_from", "ordinary", "retry"),
    [
        (ConsumeFrom.LAST, Start(Need.END), ZERO),
        (ConsumeFrom.FIRST, ZERO, ZERO),
        (ConsumeFrom.TIMESTAMP, Start(Need.SEARCH), Start(Need.END)),
    ],
)
def test_a_group_without_progress_begins_as_it_says(
    consume_from: ConsumeFrom, ordinary: Start, retry: Start
) -> None:
    assert start_of(QUEUE, None, consume_from) == ordinary
    assert start_of(RETRY, None, consume_from) == retry


def test_a_timestamp_has_fourteen_digits() -> None:
    assert parse_timestamp("20240102030406") - parse_timestamp("20240102030405") == 1_000
    for text in ("2024", "20240102030405x", "2024010203040", "20241302030405"):
        with pytest.raises(ValueError):  # noqa: PT011 - strptime's own words for a bad month
            parse_timestamp(text)


JAVA_FILE = b"""{
\t"offsetTable":{{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":0,
\t\t\t"topic":"orders"
\t\t}:42,{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":1,
\t\t\t"topic":"orders"
\t\t}:7
\t}
}"""


def test_the_file_of_a_java_member_is_read() -> None:
    assert decode_progress(JAVA_FILE) == {QUEUE: 42, OTHER: 7}


def test_the_file_is_written_as_java_reads_it() -> None:
    assert encode_progress({QUEUE: 42}) == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:42}}'
    )


QUEUES = st.builds(QueueId, st.text(min_size=1), st.text(), st.integers(0, 2**31 - 1))


@given(st.dictionaries(QUEUES, st.integers(0, 2**63 - 1)))
def test_any_progress_survives_the_file(offsets: dict[QueueId, int]) -> None:
    assert decode_progress(encode_progress(offsets)) == offsets


def test_the_files_place_is_rocketmqs(tmp_path: Path) -> None:
    file = LocalOffsetFile("10.0.0.9@4711", "g", tmp_path)
    assert file.path == tmp_path / "10.0.0.9@4711" / "g" / "offsets.json"
    assert file.load() == {}
    file.save({QUEUE: 1})
    file.save({QUEUE: 2})
    assert file.load() == {QUEUE: 2}
    assert decode_progress(file.path.with_name("offsets.json.bak").read_bytes()) == {QUEUE: 1}


def test_a_released_file_is_free_whoever_still_has_its_descriptor(tmp_path: Path) -> None:
    file = LocalOffsetFile("c", "g", tmp_path)
    assert file.claim()
    assert file._claim is not None
    # What a forked child has is a copy like this one.
    copy = os.dup(file._claim.fileno())
    try:
        assert not LocalOffsetFile("c", "g", tmp_path).claim()
        file.release()
        assert file.claim()
        file.release()
    finally:
        os.close(copy)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"offsetTable":[]}', b'{"offsetTable":{"x":1}}'])
def test_a_damaged_file_is_passed_for_its_backup(tmp_path: Path, damage: bytes) -> None:
    file = LocalOffsetFile("c", "g", tmp_path)
    file.save({QUEUE: 1})
    file.save({QUEUE: 2})
    file.path.write_bytes(damage)
    assert file.load() == {QUEUE: 1}


def test_a_file_that_may_not_be_read_is_passed_for_its_backup(tmp_path: Path) -> None:
    file = LocalOffsetFile("c", "g", tmp_path)
    file.save({QUEUE: 1})
    file.save({QUEUE: 2})
    file.path.unlink()
    file.path.mkdir()
    assert file.load() == {QUEUE: 1}


@pytest.mark.parametrize("damage", [b"", b"{", b'{"offsetTable":[]}'])
def test_where_neither_file_can_be_read_nobody_begins_anew_unasked(
    tmp_path: Path, damage: bytes
) -> None:
    file = LocalOffsetFile("c", "g", tmp_path)
    file.save({QUEUE: 1})
    file.path.write_bytes(damage)
    with pytest.raises(ProgressFileError, match=r"offsets\.json and its backup"):
        file.load()
    file.path.unlink()
    assert file.load() == {}
