"""The key index: RocketMQ's layout of its files, and the chains of entries."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from rocketmq_broker.storage.disk.files import MemoryFiles, OsFiles
from rocketmq_broker.storage.keys.key_index import ENTRY, HEADER, KeyEntries, KeyIndex, index_hash
from rocketmq_broker.storage.queues.consume_queue import OpenFiles
from rocketmq_wire.hashes import java_hash

NOW = 1_700_000_000_000


def test_index_files_have_rocketmqs_layout(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    open_files = OpenFiles(OsFiles(tmp_path))
    index = KeyIndex(OsFiles(tmp_path), open_files, slots=4, entries=100)
    hashes = np.array([5, 1, 9, 5, 2], np.int32)
    positions = np.array([10, 20, 30, 40, 50], np.int64)
    times = np.array([NOW, NOW + 999, NOW + 1000, NOW + 2500, NOW + 2500], np.int64)
    index.add(KeyEntries(hashes[:2], positions[:2], times[:2]))
    index.add(KeyEntries(hashes[2:], positions[2:], times[2:]))
    index.flush()
    open_files.close()
    (path,) = (tmp_path / "index").iterdir()
    data = path.read_bytes()
    assert path.name == "20231114221320000"
    assert len(data) == 40 + 4 * 4 + 20 * 100
    assert HEADER.unpack_from(data) == (NOW, NOW + 2500, 10, 50, 2, 6)
    assert struct.unpack_from(">4i", data, 40) == (0, 4, 5, 0)
    entries = np.frombuffer(data, ENTRY, 6, 56)
    assert entries[1:].tolist() == [
        (5, 10, 0, 0),
        (1, 20, 0, 1),
        (9, 30, 1, 2),
        (5, 40, 2, 3),
        (2, 50, 2, 0),
    ]


def test_a_bulk_insert_makes_the_same_chains_as_single_ones() -> None:
    chance = np.random.default_rng(7)
    hashes = chance.integers(0, 50, 400).astype(np.int32)
    positions = np.arange(400, dtype=np.int64) * 100
    times = np.full(400, NOW, np.int64)
    bulk, single = (
        KeyIndex(MemoryFiles(), OpenFiles(_with_directory()), slots=11, entries=1000)
        for _ in range(2)
    )
    bulk.add(KeyEntries(hashes, positions, times))
    for row in range(400):
        single.add(
            KeyEntries(hashes[row : row + 1], positions[row : row + 1], times[row : row + 1])
        )
    for key_hash in range(50):
        expected = positions[hashes == key_hash][::-1].tolist()
        for index in (bulk, single):
            found = index.query(key_hash, count_max=1000, begin_ms=0, end_ms=2 * NOW)
            assert found == expected


def _with_directory() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("index")
    return files


def test_a_key_hash_is_never_negative() -> None:
    # "polygenelubricants" is a well-known text whose Java hash is the smallest int.
    assert java_hash("polygenelubricants") == -(2**31)
    assert index_hash("orders", "key") == abs(java_hash("orders#key"))
