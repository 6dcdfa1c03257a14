"""Retention, search by time, keys, and full disks."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketmq_broker.storage.disk.files import File, MemoryFiles, OsFiles
from rocketmq_broker.storage.errors import DamagedStoreError, StorageError
from rocketmq_broker.storage.repair.inspection import inspect
from rocketmq_broker.storage.settings import FlushMode, StoreConfig
from rocketmq_broker.storage.store import Store
from rocketmq_wire.model import Bounds, Buffer
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.offsets import Boundary
from support.faulty_files import FaultyFiles
from support.storage_blocks import block_of, read_all

NOW = 1_700_000_000_000
TINY = StoreConfig(
    segment_size=1024,
    queue_file_entries=5,
    checksum_range_size=300,
    index_slot_count=7,
    index_entry_count=12,
    retention_ms=1_000,
)


def send(
    store: Store, topic: str, body: bytes, now_ms: int, queue: int = 0, keys: str = ""
) -> None:
    store.append(topic, queue, block_of(topic, body, keys=keys), now_ms)
    store.sync()
    store.publish()


def fill(store: Store, count: int, *, every_ms: int = 100) -> None:
    for number in range(count):
        send(store, "orders", b"%03d" % number * 40, NOW + number * every_ms, keys=f"key-{number}")


@pytest.mark.parametrize("flush", list(FlushMode))
def test_retention_deletes_whole_old_files_and_ends_stay(flush: FlushMode, tmp_path: Path) -> None:
    files = MemoryFiles() if flush is FlushMode.MEMORY else OsFiles(tmp_path)
    store = Store.open(files, replace(TINY, flush=flush), NOW)
    send(store, "bills", b"expires", NOW)
    fill(store, 40)
    before = read_all(store, "orders")
    report = store.clean(NOW + 3_000)
    assert report.log_files > 2
    assert report.queue_files > 1
    start = store.bounds("orders", 0).start
    assert 0 < start < 40
    assert store.bounds("orders", 0).end == 40
    assert read_all(store, "orders") == before[start:]
    assert store.bounds("bills", 0) == Bounds(1, 1)
    # Only expired messages are deleted, and not those in the last file of them.
    assert store.store_time("orders", 0, start) >= NOW + 1_000
    assert store.store_time("orders", 0, start - 1) == -1
    assert store.read("orders", 0, start - 1, count_max=1, bytes_max=1).count == 0
    assert store.clean(NOW + 3_000).log_files == 0
    store.close()


def test_bounds_after_retention_outlive_restarts(tmp_path: Path) -> None:
    store = Store.open(OsFiles(tmp_path), TINY, NOW)
    send(store, "bills", b"expires", NOW)
    fill(store, 20)
    store.clean(NOW + 10 * 24 * 3600_000)
    expected = store.bounds("orders", 0)
    assert expected.start > 10
    for _ in range(2):
        # Killed: the operating system keeps all written bytes.
        store._lock_file.close()
        store = Store.open(OsFiles(tmp_path), TINY, NOW)
        assert store.bounds("orders", 0) == expected
        assert store.bounds("bills", 0) == Bounds(1, 1)
    send(store, "bills", b"continues", NOW)
    assert store.bounds("bills", 0) == Bounds(1, 2)
    assert read_all(store, "bills") == [b"continues"]
    (tmp_path / "derived.json").unlink()
    store._lock_file.close()
    store = Store.open(OsFiles(tmp_path), TINY, NOW)
    assert store.bounds("orders", 0) == expected
    assert store.bounds("bills", 0) == Bounds(1, 2)
    store.close()


class FillingFiles(OsFiles):
    """A disk that is as full as the log is long."""

    def disk_used_ratio(self) -> float:
        used = 1024 * len(self.names("commitlog"))
        return used / max(used, 10 * 1024)


def test_a_full_disk_deletes_the_oldest_files_but_never_the_newest(tmp_path: Path) -> None:
    config = replace(TINY, disk_used_ratio_max=0.55)
    store = Store.open(FillingFiles(tmp_path), config, NOW)
    fill(store, 45, every_ms=0)
    assert store.clean(NOW).log_files > 3
    assert len(list((tmp_path / "commitlog").iterdir())) == 5
    assert store.bounds("orders", 0).end == 45
    store.close()
    config = replace(TINY, disk_used_ratio_max=0.0)
    store = Store.open(FillingFiles(tmp_path), config, NOW)
    store.clean(NOW)
    assert len(list((tmp_path / "commitlog").iterdir())) == 1
    assert store.bounds("orders", 0).end == 45
    assert read_all(store, "orders")[-1] == b"044" * 40
    store.close()


@pytest.mark.parametrize(("used", "free", "ratio"), [(80, 20, 0.80), (0, 0, 0.0)])
def test_space_that_the_system_reserves_does_not_count_as_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, used: int, free: int, ratio: float
) -> None:
    """As `df` counts, and RocketMQ."""
    use = SimpleNamespace(total=1000, used=used, free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: use)
    assert OsFiles(tmp_path).disk_used_ratio() == pytest.approx(ratio)


def test_the_used_part_of_the_disk_is_that_of_df(tmp_path: Path) -> None:
    said = subprocess.run(
        ["df", "-Pk", str(tmp_path)], capture_output=True, text=True, check=True
    ).stdout.split()
    (percent,) = [int(word.removesuffix("%")) for word in said if re.fullmatch(r"\d+%", word)]
    used = 100 * OsFiles(tmp_path).disk_used_ratio()
    assert percent - 2 < used < percent + 1


def test_one_cleaning_deletes_a_limited_size_early_and_reports_it(
    tmp_path: Path,
) -> None:
    config = replace(TINY, disk_used_ratio_max=0.55, early_size_max=2 * 1024)
    store = Store.open(FillingFiles(tmp_path), config, NOW)
    fill(store, 45, every_ms=0)
    count = len(list((tmp_path / "commitlog").iterdir()))
    assert count == 12
    for left in (10, 8, 6, 5):
        report = store.clean(NOW)
        assert (report.early_files, report.log_files) == (count - left, count - left)
        assert report.log_start == store.log_start
        assert len(list((tmp_path / "commitlog").iterdir())) == count - report.log_files == left
        count = left
    assert report.disk_used_ratio == pytest.approx(0.5)
    assert store.clean(NOW).log_files == 0
    # Expired files do not count as deleted early.
    report = store.clean(NOW + 10 * 24 * 3600_000)
    assert (report.log_files, report.early_files) == (4, 0)
    store.close()


def test_search_by_time_finds_the_first_at_or_after_and_the_last_at_or_before() -> None:
    store = Store.open(MemoryFiles(), TINY, NOW)
    times = [NOW, NOW, NOW + 10, NOW + 10, NOW + 10, NOW + 30]
    for time_ms in times:
        send(store, "orders", b"x", time_ms)
    for asked in range(NOW - 2, NOW + 35):
        lower = next((n for n, each in enumerate(times) if each >= asked), len(times))
        upper = max((n for n, each in enumerate(times) if each <= asked), default=0)
        assert store.search_time("orders", 0, asked, Boundary.LOWER) == lower
        assert store.search_time("orders", 0, asked, Boundary.UPPER) == upper
    assert store.search_time("orders", 7, NOW, Boundary.LOWER) == 0
    assert [store.store_time("orders", 0, n) for n in range(6)] == times
    assert store.store_time("orders", 0, 6) == -1
    store.close()


def test_a_record_is_found_by_its_log_position_only_where_one_begins() -> None:
    store = Store.open(MemoryFiles(), TINY, NOW)
    fill(store, 12)
    appended = store.append("orders", 0, block_of("orders", b"unsynced"), NOW)
    data = b"".join(store.read("orders", 0, 3, count_max=1, bytes_max=1).parts)
    (position,) = struct.unpack_from(">q", data, 28)
    record = store.record_at(position)
    assert record is not None
    assert bytes(record) == data
    for wrong in (position + 1, -1, appended.physical_start, 1 << 40):
        assert store.record_at(wrong) is None
    store.close()


def test_keys_are_found_through_the_index_also_after_restarts(tmp_path: Path) -> None:
    store = Store.open(OsFiles(tmp_path), TINY, NOW)
    fill(store, 30)
    send(store, "orders", b"two words", NOW + 9_000, keys="key-3 other")
    for _ in range(3):
        while store.index_step():
            pass
        for number in range(30):
            found = store.query_index("orders", f"key-{number}", 10, 0, NOW + 99_000)
            bodies = [_body_at(store, position) for position in found]
            assert b"%03d" % number * 40 in bodies
        newest = store.query_index("orders", "key-3", 10, 0, NOW + 99_000)
        assert newest == sorted(newest, reverse=True)
        assert _body_at(store, newest[0]) == b"two words"
        assert store.query_index("orders", "other", 1, 0, NOW + 99_000)
        assert not store.query_index("orders", "other", 1, 0, NOW + 5_000)
        assert not store.query_index("bills", "key-3", 1, 0, NOW + 99_000)
        store.checkpoint()
        store._lock_file.close()
        store = Store.open(OsFiles(tmp_path), TINY, NOW)
    assert len(list((tmp_path / "index").iterdir())) == 3
    store.clean(NOW + 10 * 24 * 3600_000)
    assert len(list((tmp_path / "index").iterdir())) == 1
    assert not store.query_index("orders", "key-5", 1, 0, NOW + 99_000)
    store.close()


def _body_at(store: Store, position: int) -> bytes:
    record = store.record_at(position)
    assert record is not None
    return decode_record(record)[0].body


class FullFiles(OsFiles):
    """A disk that may be full: then writes to the log stop halfway."""

    is_full = False

    def open(self, name: str, *, create: bool = False) -> File:
        file = super().open(name, create=create)
        return FillingFile(self, file) if name.startswith("commitlog/") else file


class FillingFile:
    def __init__(self, files: FullFiles, file: File) -> None:
        self._files, self._file = files, file
        self.pread, self.sync, self.resize = file.pread, file.sync, file.resize
        self.size, self.map, self.close = file.size, file.map, file.close
        self.reserve, self.data_end = file.reserve, file.data_end

    def pwrite(self, data: Buffer, position: int) -> None:
        if not self._files.is_full:
            self._file.pwrite(data, position)
            return
        view = memoryview(data)
        self._file.pwrite(view[: len(view) * 3 // 4], position)
        raise StorageError("commitlog", position, "No space left on device")


def test_an_append_that_the_full_disk_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    files = FullFiles(tmp_path)
    store = Store.open(files, TINY, NOW)
    send(store, "orders", b"a", NOW)
    files.is_full = True
    with pytest.raises(StorageError, match="No space"):
        store.append("orders", 0, block_of("orders", b"b", b"c", b"d"), NOW)
    files.is_full = False
    # As large as the refused batch's first record: its second one must not line up behind it.
    send(store, "orders", b"e", NOW)
    assert read_all(store, "orders") == [b"a", b"e"]
    store._lock_file.close()
    store = Store.open(OsFiles(tmp_path), TINY, NOW)
    assert store.report.kept_records == 0
    assert read_all(store, "orders") == [b"a", b"e"]
    store.close()


class RoomByClearing(FaultyFiles):
    """A full disk, which has room again once a file of the log is gone."""

    def unlink(self, name: str) -> None:
        super().unlink(name)
        if name.startswith("commitlog/"):
            self.is_full = False


@pytest.mark.parametrize("stays_full", [False, True])
def test_clearing_makes_room_even_if_no_checkpoint_can_be_written_before(
    stays_full: bool, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles() if stays_full else RoomByClearing()
    config = replace(TINY, disk_used_ratio_max=0.5)
    store = Store.open(files, config, NOW)
    fill(store, 45)
    store.checkpoint()
    queue_files = len(files.names("consumequeue/orders/0"))
    files.is_full, files.used_ratio = True, 0.99
    report = store.clean(NOW)
    assert report.early_files == report.log_files > 3
    assert len(files.names("commitlog")) == 1
    bounds = store.bounds("orders", 0)
    assert bounds.start > 35
    assert bounds.end == 45
    if stays_full:
        assert len(files.names("consumequeue/orders/0")) == queue_files
        assert "not all removed yet" in caplog.text
    files.is_full = False
    store.clean(NOW)
    assert len(files.names("consumequeue/orders/0")) <= 2
    files.unlock_all()
    store = Store.open(files, config, NOW)
    assert store.bounds("orders", 0) == bounds
    assert read_all(store, "orders")[-1] == b"044" * 40


class ShortFiles(FullFiles):
    """A full disk on which a file can be cut, and not be extended again."""

    def open(self, name: str, *, create: bool = False) -> File:
        file = super().open(name, create=create)
        if isinstance(file, FillingFile):
            resize = file.resize

            def cut(size: int) -> None:
                if self.is_full and size > file.size():
                    raise StorageError(name, size, "File too large")
                resize(size)

            file.resize = cut
        return file


def test_a_file_that_could_not_be_extended_again_is_extended_by_the_next_write(
    tmp_path: Path,
) -> None:
    files = ShortFiles(tmp_path)
    store = Store.open(files, TINY, NOW)
    send(store, "orders", b"a", NOW)
    files.is_full = True
    for _ in range(2):
        with pytest.raises(StorageError, match=r"No space|too large"):
            store.append("orders", 0, block_of("orders", b"b", b"c"), NOW)
    files.is_full = False
    bodies = [b"a", *(b"%d" % count * 200 for count in range(8))]
    for body in bodies[1:]:
        send(store, "orders", body, NOW)
    assert {path.stat().st_size for path in (tmp_path / "commitlog").iterdir()} == {1024}
    store._lock_file.close()
    store = Store.open(OsFiles(tmp_path), TINY, NOW)
    assert read_all(store, "orders") == bodies
    store.close()


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_start_extends_a_file_that_lacks_only_the_bytes_behind_its_filler(
    tmp_path: Path, is_clean: bool
) -> None:
    store = Store.open(OsFiles(tmp_path), TINY, NOW)
    bodies = [b"%d" % count * 200 for count in range(8)]
    for body in bodies:
        send(store, "orders", body, NOW)
    if is_clean:
        store.close()
    else:
        store._lock_file.close()
    name = tmp_path / "commitlog" / ("0" * 20)
    used = len(name.read_bytes().rstrip(b"\0"))
    assert used < 1024
    with name.open("r+b") as file:
        file.truncate(used)
    assert inspect(OsFiles(tmp_path)).is_sound
    store = Store.open(OsFiles(tmp_path), TINY, NOW)
    assert read_all(store, "orders") == bodies
    store.close()
    with name.open("r+b") as file:
        file.truncate(used - 1)
    assert not inspect(OsFiles(tmp_path)).is_sound
    with pytest.raises(DamagedStoreError, match="too short"):
        Store.open(OsFiles(tmp_path), TINY, NOW)
