"""A directory that RocketMQ has written to is adopted whole, or refused unchanged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from rocketmq_broker.storage.disk.files import OsFiles
from rocketmq_broker.storage.errors import DamagedStoreError, StorageError
from rocketmq_broker.storage.settings import StoreConfig
from rocketmq_broker.storage.store import Store
from rocketmq_wire.model import Bounds
from support.storage_blocks import block_of, read_all

NOW = 1_700_000_000_000
TINY = StoreConfig(
    segment_size=2048,
    queue_file_entries=10,
    checksum_range_size=512,
    index_slot_count=16,
    index_entry_count=20,
)
OTHER_SIZES = StoreConfig(index_slot_count=16, index_entry_count=20)
"""Other sizes than the store has: the adoption takes them from the files."""
LOG = "commitlog"


def open_store(root: Path, config: StoreConfig = OTHER_SIZES) -> Store:
    return Store.open(OsFiles(root), config, NOW)


def send(store: Store, topic: str, *bodies: bytes, queue: int = 0) -> None:
    for body in bodies:
        store.append(topic, queue, block_of(topic, body, keys="k"), NOW)
        store.sync()
        store.publish()


def bodies(count: int, first: int = 0) -> list[bytes]:
    return [b"%03d" % number * 20 for number in range(first, first + count)]


def name_topics(root: Path, *topics: str) -> None:
    """Write `topics.json` as RocketMQ does: without this broker's own members."""
    table = {topic: {"topicName": topic, "readQueueNums": 2} for topic in topics}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def make_rocketmqs(root: Path) -> None:
    """Change a store of this broker to one that RocketMQ wrote."""
    for name in ("durable.mark", "log.seals", "derived.json"):
        (root / name).unlink()
    (root / "lock").write_bytes(b"lock")


def filled(root: Path, *, count: int = 60) -> None:
    """Two queues of "orders" in several files of each kind, closed."""
    store = open_store(root, TINY)
    for number, body in enumerate(bodies(count)):
        send(store, "orders", body, queue=number % 2)
    store.close()
    name_topics(root, "orders")


def content_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def test_every_record_of_rocketmqs_store_is_served_and_none_is_changed(tmp_path: Path) -> None:
    filled(tmp_path)
    make_rocketmqs(tmp_path)
    before = content_of(tmp_path)
    store = open_store(tmp_path)
    assert store.report.adopted is not None
    assert (store.report.adopted.records, store.report.adopted.queues) == (60, 2)
    assert read_all(store, "orders", 0) == bodies(60)[::2]
    assert read_all(store, "orders", 1) == bodies(60)[1::2]
    while store.index_step():
        pass
    assert len(store.query_index("orders", "k", 100, 0, NOW)) == 60
    send(store, "orders", b"next")
    store.close()
    after = content_of(tmp_path)
    for name, content in before.items():
        if name.startswith(LOG):
            used = content.rstrip(b"\x00")
            assert after[name].startswith(used)
    store = open_store(tmp_path)
    assert store.report.adopted is None
    assert store.report.was_clean
    assert store.bounds("orders", 0) == Bounds(0, 31)
    store.close()


def test_queue_entries_of_delayed_messages_have_their_due_times(tmp_path: Path) -> None:
    waiting = "SCHEDULE_TOPIC_XXXX"
    store = open_store(tmp_path, TINY)
    block = block_of(waiting, b"one", b"two", tags="T")
    store.append_parts(waiting, block, [(2, 1), (4, 1)], NOW)
    store.append(waiting, 4, block_of(waiting, b"three", tags="T"), NOW)
    store.close()
    name_topics(tmp_path)
    queues = tmp_path / "consumequeue" / waiting
    due = {
        str(path.relative_to(queues)): path.read_bytes() for path in queues.glob("*/*")
    }  # fmt: skip
    assert int.from_bytes(due[f"2/{0:020d}"][12:20], "big") == NOW + 10_000
    assert int.from_bytes(due[f"4/{0:020d}"][32:40], "big") == NOW + 60_000
    make_rocketmqs(tmp_path)
    store = open_store(tmp_path)
    store.close()
    assert store.report.adopted is not None
    assert due == {str(path.relative_to(queues)): path.read_bytes() for path in queues.glob("*/*")}


def test_an_own_store_that_rocketmq_used_is_adopted_again(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "lock").write_bytes(b"lock")
    store = open_store(tmp_path)
    assert store.report.adopted is not None
    assert read_all(store, "orders", 1) == bodies(60)[1::2]
    store.close()


def test_queues_keep_their_offsets_when_the_oldest_files_have_expired(tmp_path: Path) -> None:
    store = open_store(tmp_path, TINY)
    send(store, "expired", *bodies(4))
    send(store, "orders", *bodies(60))
    store.close()
    name_topics(tmp_path, "orders", "expired")
    make_rocketmqs(tmp_path)
    for path in sorted((tmp_path / LOG).iterdir())[:2]:
        path.unlink()
    for _ in range(2):
        store = open_store(tmp_path)
        bounds = store.bounds("orders", 0)
        assert 0 < bounds.start < bounds.end == 60
        assert read_all(store, "orders") == bodies(60)[bounds.start :]
        assert store.bounds("expired", 0) == Bounds(4, 4)
        store.close()
    # RocketMQ takes an entry of zeros as its queue's end.
    (first, *_) = sorted((tmp_path / "consumequeue" / "orders" / "0").iterdir())
    assert int.from_bytes(first.read_bytes()[8:12], "big") > 0


def test_records_of_deleted_topics_stay_dead(tmp_path: Path) -> None:
    store = open_store(tmp_path, TINY)
    for topic in ("again", "gone"):
        send(store, topic, *bodies(5))
        store.delete_topic(topic)
    send(store, "again", b"new life")
    store.close()
    name_topics(tmp_path, "again")
    make_rocketmqs(tmp_path)
    for _ in range(2):
        store = open_store(tmp_path)
        assert read_all(store, "again") == [b"new life"]
        assert store.bounds("gone", 0) == Bounds(0, 0)
        if store.report.adopted is not None:
            assert store.report.adopted.dead_records == {"again": 5, "gone": 5}
        store.close()


def flip(root: Path, position: int) -> None:
    path = sorted((root / LOG).iterdir())[position // 2048]
    content = bytearray(path.read_bytes())
    content[position % 2048] ^= 0x40
    path.write_bytes(content)


def shorten(root: Path, _: int) -> None:
    sorted((root / LOG).iterdir())[-1].unlink()


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("position", [100, 2048 + 300, 3 * 2048 + 600])
def test_a_damaged_store_of_rocketmq_is_refused_and_not_changed(
    tmp_path: Path, position: int, is_clean: bool
) -> None:
    filled(tmp_path)
    make_rocketmqs(tmp_path)
    if not is_clean:
        (tmp_path / "abort").touch()
    flip(tmp_path, position)
    before = content_of(tmp_path)
    with pytest.raises(DamagedStoreError, match="damaged here"):
        open_store(tmp_path)
    assert content_of(tmp_path) == before


@pytest.mark.parametrize("damage", [shorten, flip])
def test_a_store_that_rocketmq_used_without_acknowledged_messages_is_refused(
    tmp_path: Path, damage: Callable[[Path, int], None]
) -> None:
    filled(tmp_path)
    (tmp_path / "lock").write_bytes(b"lock")
    (tmp_path / "abort").touch()
    damage(tmp_path, 100)
    with pytest.raises(DamagedStoreError):
        open_store(tmp_path)


def test_a_log_that_ends_inside_a_listed_records_fields_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, count=3)
    store = open_store(tmp_path)
    start = store.appended_end
    send(store, "orders", b"last")
    store.close()
    make_rocketmqs(tmp_path)
    (tmp_path / "abort").touch()
    with (tmp_path / LOG / ("0" * 20)).open("r+b") as file:
        file.truncate(start + 60)
    with pytest.raises(DamagedStoreError, match="damaged here"):
        open_store(tmp_path)


def test_torn_records_are_cut_and_those_before_them_kept(tmp_path: Path) -> None:
    filled(tmp_path, count=5)
    make_rocketmqs(tmp_path)
    path = tmp_path / LOG / f"{0:020d}"
    content = path.read_bytes()
    last = content.rindex(b"004" * 20)
    path.write_bytes((content[: last - 40] + b"\x00" * 2048)[:2048])
    with pytest.raises(StorageError):
        open_store(tmp_path)
    (tmp_path / "abort").touch()
    # RocketMQ's queue lists the record, and its head is there: that is damage, not a torn record.
    with pytest.raises(DamagedStoreError):
        open_store(tmp_path)
    start = content.index(b"003" * 20) + 60
    start = content.index(b"\xda\xa3\x20\xa7", start) - 4
    path.write_bytes((content[:start] + b"\x00" * 2048)[:2048])
    store = open_store(tmp_path)
    assert read_all(store, "orders", 0) == bodies(5)[:4:2]
    store.close()


def test_an_own_store_without_its_mark_is_not_adopted(tmp_path: Path) -> None:
    filled(tmp_path)
    (tmp_path / "durable.mark").unlink()
    with pytest.raises(StorageError, match="mark"):
        open_store(tmp_path)


def test_topics_in_rocksdb_are_refused_with_the_remedy(tmp_path: Path) -> None:
    filled(tmp_path)
    make_rocketmqs(tmp_path)
    (tmp_path / "config" / "topics.json").unlink()
    (tmp_path / "config" / "topics").mkdir()
    with pytest.raises(StorageError, match=r"^\[ROCKETMQ_STORAGE\] .*rocksDBConfigToJson"):
        open_store(tmp_path)


class PowerCutError(Exception):
    """The crash."""


class CutFiles(OsFiles):
    """Crashes after a number of changes of names; each save of a file ends in one."""

    def __init__(self, root: Path, changes_left: int) -> None:
        super().__init__(root)
        self.changes_left = changes_left

    def rename(self, old: str, new: str) -> None:
        self._count()
        super().rename(old, new)

    def unlink(self, name: str) -> None:
        self._count()
        super().unlink(name)

    def _count(self) -> None:
        if self.changes_left == 0:
            raise PowerCutError
        self.changes_left -= 1


def test_an_adoption_that_a_crash_interrupts_is_repeated(tmp_path: Path) -> None:
    steps = 0
    while True:
        root = tmp_path / str(steps)
        store = open_store(root, TINY)
        send(store, "again", *bodies(5))
        store.delete_topic("again")
        for number, body in enumerate(bodies(40)):
            send(store, "orders", body, queue=number % 2)
        send(store, "again", b"new life")
        store.close()
        name_topics(root, "orders", "again")
        make_rocketmqs(root)
        (sorted((root / LOG).iterdir())[0]).unlink()
        try:
            Store.open(CutFiles(root, steps), OTHER_SIZES, NOW).close()
            is_whole = True
        except PowerCutError:
            is_whole = False
        store = open_store(root)
        for queue in range(2):
            start = store.bounds("orders", queue).start
            assert 0 < start < 20
            assert read_all(store, "orders", queue) == bodies(40)[queue::2][start:]
        assert read_all(store, "again") == [b"new life"]
        store.close()
        if is_whole:
            break
        steps += 1
    assert steps > 8


def test_an_adoption_without_a_lock_file_may_be_interrupted_twice(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = open_store(root, TINY)
    send(store, "expired", *bodies(3))
    send(store, "orders", *bodies(20))
    store.close()
    name_topics(root, "orders", "expired")
    make_rocketmqs(root)
    (root / "lock").unlink()
    (sorted((root / LOG).iterdir())[0]).unlink()
    for cut in range(8):
        # The mark is there, but not the next offsets of queues whose messages have expired.
        half = shutil.copytree(root, tmp_path / f"half-{cut}")
        with suppress(PowerCutError):
            Store.open(CutFiles(half, cut), OTHER_SIZES, NOW).close()
        if (half / "durable.mark").exists() and not (half / "derived.json").exists():
            break
    else:
        raise AssertionError("no such moment")
    for cut in range(9):
        again = shutil.copytree(half, tmp_path / f"again-{cut}")
        with suppress(PowerCutError):
            Store.open(CutFiles(again, cut), OTHER_SIZES, NOW).close()
        store = open_store(again)
        assert store.bounds("expired", 0) == Bounds(3, 3)
        assert store.bounds("orders", 0).end == 20
        store.close()
