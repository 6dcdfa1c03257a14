"""The store without crashes: append, sync, publish, read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rocketmq_broker.storage.disk.files import Files, MemoryFiles, OsFiles
from rocketmq_broker.storage.errors import StorageError, StoreLockedError
from rocketmq_broker.storage.settings import Arrival, FlushMode, StoreConfig
from rocketmq_broker.storage.store import Store
from rocketmq_wire.errors import BrokerBusyError
from rocketmq_wire.hashes import java_hash
from rocketmq_wire.model import Bounds
from support.storage_blocks import block_of, bodies_of, make_block, make_message, read_all

NOW = 1_700_000_000_000
TINY = StoreConfig(segment_size=4096, queue_file_entries=10, checksum_range_size=1024)


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return MemoryFiles() if request.param == "memory" else OsFiles(tmp_path / "data")


@pytest.fixture
def store(files: Files) -> Iterator[Store]:
    store = Store.open(files, TINY, NOW)
    yield store
    store.close()


def test_appended_messages_are_seen_only_once_they_are_durable_and_published(store: Store) -> None:
    appended = store.append("orders", 0, block_of("orders", b"a", b"b"), NOW)
    assert (appended.start, appended.count, appended.physical_start) == (0, 2, 0)
    assert store.publish() == []
    assert store.bounds("orders", 0) == Bounds(0, 0)
    assert store.durable_end == 0
    assert store.sync() == appended.end_position == store.durable_end
    assert store.bounds("orders", 0) == Bounds(0, 0)
    assert store.publish() == [Arrival("orders", 0, 2)]
    assert store.bounds("orders", 0) == Bounds(0, 2)
    assert read_all(store, "orders") == [b"a", b"b"]


def test_messages_appended_during_a_sync_wait_for_the_next_one(store: Store) -> None:
    store.append("orders", 0, block_of("orders", b"a"), NOW)
    store.sync()
    store.append("orders", 0, block_of("orders", b"b"), NOW)
    assert store.publish() == [Arrival("orders", 0, 1)]
    store.sync()
    assert store.publish() == [Arrival("orders", 0, 2)]


def test_parts_of_a_block_go_to_their_queues_in_one_write(store: Store) -> None:
    store.append("orders", 0, block_of("orders", b"first"), NOW)
    block = block_of("orders", b"a", b"b", b"c", b"d", b"e")
    appended = store.append_parts("orders", block, [(0, 2), (1, 1), (0, 1), (0, 1)], NOW)
    assert appended is not None
    assert [(part.start, part.count) for part in appended] == [(1, 2), (0, 1), (3, 1), (4, 1)]
    record_size = int(block.sizes[0])
    begins = [part.physical_start for part in appended]
    assert np.diff(begins).tolist() == [2 * record_size, record_size, record_size]
    assert [part.end_position for part in appended] == [*begins[1:], store.appended_end]
    assert store.sync() == store.appended_end
    assert store.publish() == [Arrival("orders", 0, 5), Arrival("orders", 1, 1)]
    assert read_all(store, "orders", 0) == [b"first", b"a", b"b", b"d", b"e"]
    assert read_all(store, "orders", 1) == [b"c"]
    assert store.append("orders", 0, block_of("orders", b"next"), NOW).start == 5


def test_parts_that_do_not_fit_in_the_file_are_not_written(store: Store) -> None:
    bodies = [b"x" * 300] * 10
    store.append("orders", 0, block_of("orders", *bodies[:8]), NOW)
    end = store.appended_end
    parts = [(0, 5), (1, 5)]
    assert store.append_parts("orders", block_of("orders", *bodies), parts, NOW) is None
    assert store.appended_end == end
    assert store.append("orders", 0, block_of("orders", b"next"), NOW).start == 8


@pytest.mark.parametrize("flush", [FlushMode.ASYNC, FlushMode.MEMORY])
def test_without_sync_flush_messages_are_seen_at_once(flush: FlushMode) -> None:
    store = Store.open(MemoryFiles(), StoreConfig(segment_size=4096, flush=flush), NOW)
    store.append("orders", 1, block_of("orders", b"a"), NOW)
    assert store.publish() == [Arrival("orders", 1, 1)]
    assert read_all(store, "orders", 1) == [b"a"]
    store.close()


def test_a_block_continues_in_the_next_file_and_no_record_spans_files(store: Store) -> None:
    bodies = [bytes([count]) * 300 for count in range(50)]
    appended = store.append("orders", 0, block_of("orders", *bodies), NOW)
    assert (appended.start, appended.count) == (0, 50)
    store.sync()
    store.publish()
    assert read_all(store, "orders") == bodies
    assert appended.end_position > 4 * 4096
    for offset in range(50):
        result = store.read("orders", 0, offset, count_max=1, bytes_max=1)
        (size,) = np.frombuffer(result.sizes, "<i4").tolist()
        assert size == len(result.parts[0])


def test_queues_of_several_topics_are_separate_and_interleaved_records_are_gathered(
    store: Store,
) -> None:
    expected: dict[tuple[str, int], list[bytes]] = {}
    for count in range(120):
        topic, queue = ("orders", count % 3) if count % 2 else ("bills", count % 3)
        body = f"{topic}-{queue}-{count}".encode()
        store.append(topic, queue, block_of(topic, body), NOW + count)
        expected.setdefault((topic, queue), []).append(body)
    store.sync()
    arrivals = store.publish()
    assert {(each.topic, each.queue_index) for each in arrivals} == set(expected)
    for (topic, queue), bodies in expected.items():
        assert read_all(store, topic, queue) == bodies


def test_a_read_stops_at_its_count_and_at_its_bytes_but_returns_one_message(store: Store) -> None:
    store.append("orders", 0, block_of("orders", *[b"x" * 100] * 20), NOW)
    store.sync()
    store.publish()
    assert store.read("orders", 0, 5, count_max=3, bytes_max=1 << 20).next_begin == 8
    one = store.read("orders", 0, 5, count_max=100, bytes_max=1)
    assert (one.count, one.next_begin) == (1, 6)
    size = np.frombuffer(one.sizes, "<i4")[0]
    exact = store.read("orders", 0, 0, count_max=100, bytes_max=int(size) * 4)
    assert exact.count == 4
    assert store.read("orders", 0, 0, count_max=100, bytes_max=int(size) * 4 - 1).count == 3
    stopped = store.read("orders", 0, 4, count_max=100, bytes_max=1 << 20, stops_at_file_end=True)
    assert stopped.next_begin == 10
    assert store.read("orders", 0, 20, count_max=1, bytes_max=1).count == 0


def test_a_filtered_read_returns_matches_and_continues_behind_scanned_entries(store: Store) -> None:
    messages = [
        make_message("orders", b"%d" % count, tags="red" if count % 5 == 0 else "blue")
        for count in range(23)
    ]
    store.append("orders", 0, make_block(messages), NOW)
    store.sync()
    store.publish()
    red = np.array([java_hash("red")], np.int64)
    result = store.read("orders", 0, 1, count_max=9, bytes_max=1 << 20, tag_hashes=red)
    assert bodies_of(result.parts) == [b"5", b"10", b"15", b"20"]
    assert result.next_begin == 23
    result = store.read("orders", 0, 1, count_max=2, bytes_max=1 << 20, tag_hashes=red)
    assert (bodies_of(result.parts), result.next_begin) == ([b"5", b"10"], 15)
    result = store.read("orders", 0, 1, count_max=9, bytes_max=1, tag_hashes=red)
    assert (bodies_of(result.parts), result.next_begin) == ([b"5"], 10)
    result = store.read("orders", 0, 1, count_max=9, bytes_max=1, tag_hashes=red, scan_max=4)
    assert (result.count, result.next_begin) == (0, 5)
    both = np.array([java_hash("red"), java_hash("blue")], np.int64)
    assert store.read("orders", 0, 0, count_max=99, bytes_max=1 << 20, tag_hashes=both).count == 23


def test_appends_are_refused_while_too_many_bytes_wait_for_the_disk() -> None:
    config = StoreConfig(segment_size=4096, unpublished_size_max=600)
    store = Store.open(MemoryFiles(), config, NOW)
    store.append("orders", 0, block_of("orders", b"x" * 1000), NOW)
    with pytest.raises(BrokerBusyError, match="wait for the disk"):
        store.append("orders", 0, block_of("orders", b"y"), NOW)
    store.sync()
    store.publish()
    assert store.append("orders", 0, block_of("orders", b"y"), NOW).start == 1
    store.close()


def test_a_record_larger_than_a_file_is_refused(store: Store) -> None:
    with pytest.raises(StorageError, match="does not fit"):
        store.append("orders", 0, block_of("orders", b"x" * 4096), NOW)


@pytest.mark.usefixtures("store")
def test_a_second_broker_cannot_open_the_same_directory(files: Files) -> None:
    with pytest.raises(StoreLockedError, match=r"^\[ROCKETMQ_STORAGE\.LOCKED\] .*Stop the broker"):
        Store.open(files, TINY, NOW)


def test_store_times_never_step_back(store: Store) -> None:
    for now in (NOW + 5, NOW + 3, NOW + 9):
        store.append("orders", 0, block_of("orders", b"x"), now)
    store.sync()
    store.publish()
    data = b"".join(store.read("orders", 0, 0, count_max=9, bytes_max=1 << 20).parts)
    size = len(data) // 3
    times = [int.from_bytes(data[size * n + 56 : size * n + 64], "big") for n in range(3)]
    assert times == [NOW + 5, NOW + 5, NOW + 9]


def test_a_queue_entry_outside_the_log_fails_with_its_position(tmp_path: Path) -> None:
    store = Store.open(OsFiles(tmp_path), TINY, NOW)
    store.append("orders", 0, block_of("orders", b"a"), NOW)
    store.sync()
    store.publish()
    with (tmp_path / "consumequeue" / "orders" / "0" / ("0" * 20)).open("r+b") as file:
        file.write((1 << 30).to_bytes(8, "big"))
    with pytest.raises(KeyError, match="the log has no position 1073741824"):
        read_all(store, "orders")
    store.close()


def test_a_topic_whose_files_cannot_be_removed_is_deleted_and_takes_no_message_until_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class NoUnlink(OsFiles):
        fails = True

        def unlink(self, name: str) -> None:
            if name.startswith("consumequeue") and self.fails:
                raise StorageError(name, 0, "Input/output error")
            super().unlink(name)

    files = NoUnlink(tmp_path)
    store = Store.open(files, TINY, NOW)
    store.append("orders", 0, block_of("orders", b"a"), NOW)
    store.sync()
    store.publish()
    store.delete_topic("orders")
    assert "Input/output error" in caplog.text
    assert store.bounds("orders", 0) == Bounds(0, 0)
    with pytest.raises(StorageError, match=r"orders/0/0+ .*Input/output error"):
        store.append("orders", 0, block_of("orders", b"b"), NOW)
    files.fails = False
    assert store.append("orders", 0, block_of("orders", b"b"), NOW).start == 0
    store.close()
