"""The local offset file: Java's format, crashes, locks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client.consumer.membership.offset_store import (
    LocalOffsetFile,
    decode_offsets,
    encode_offsets,
)
from rocketmq_client.errors import ProgressFileError
from rocketmq_wire.model import QueueId

QUEUE, OTHER = QueueId("orders", "broker-a", 0), QueueId("orders", "broker-a", 1)


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
    assert decode_offsets(JAVA_FILE) == {QUEUE: 42, OTHER: 7}


def test_the_file_is_written_as_java_reads_it() -> None:
    assert encode_offsets({QUEUE: 42}) == (
        b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:42}}'
    )


QUEUES = st.builds(QueueId, st.text(min_size=1), st.text(), st.integers(0, 2**31 - 1))


@given(st.dictionaries(QUEUES, st.integers(0, 2**63 - 1)))
def test_any_offsets_survive_the_file(offsets: dict[QueueId, int]) -> None:
    assert decode_offsets(encode_offsets(offsets)) == offsets


def test_the_files_path_is_rocketmqs(tmp_path: Path) -> None:
    file = LocalOffsetFile("10.0.0.9@4711", "g", tmp_path)
    assert file.path == tmp_path / "10.0.0.9@4711" / "g" / "offsets.json"
    assert file.load() == {}
    file.save({QUEUE: 1})
    file.save({QUEUE: 2})
    assert file.load() == {QUEUE: 2}
    assert decode_offsets(file.path.with_name("offsets.json.bak").read_bytes()) == {QUEUE: 1}


def test_a_released_file_is_free_though_a_child_has_its_descriptor(tmp_path: Path) -> None:
    file = LocalOffsetFile("c", "g", tmp_path)
    assert file.acquire()
    assert file._lock is not None
    # What a forked child has is a copy like this one.
    copy = os.dup(file._lock.fileno())
    try:
        assert not LocalOffsetFile("c", "g", tmp_path).acquire()
        file.release()
        assert file.acquire()
        file.release()
    finally:
        os.close(copy)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"offsetTable":[]}', b'{"offsetTable":{"x":1}}'])
def test_the_backup_replaces_a_damaged_file(tmp_path: Path, damage: bytes) -> None:
    file = LocalOffsetFile("c", "g", tmp_path)
    file.save({QUEUE: 1})
    file.save({QUEUE: 2})
    file.path.write_bytes(damage)
    assert file.load() == {QUEUE: 1}


def test_the_backup_replaces_an_unreadable_file(tmp_path: Path) -> None:
    file = LocalOffsetFile("c", "g", tmp_path)
    file.save({QUEUE: 1})
    file.save({QUEUE: 2})
    file.path.unlink()
    file.path.mkdir()
    assert file.load() == {QUEUE: 1}


@pytest.mark.parametrize("damage", [b"", b"{", b'{"offsetTable":[]}'])
def test_two_unreadable_files_raise_instead_of_a_new_start(tmp_path: Path, damage: bytes) -> None:
    file = LocalOffsetFile("c", "g", tmp_path)
    file.save({QUEUE: 1})
    file.path.write_bytes(damage)
    with pytest.raises(ProgressFileError, match=r"offsets\.json and its backup"):
        file.load()
    file.path.unlink()
    assert file.load() == {}
