"""Starts after a clean close, after a kill, with damage, after deletions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocketmq_broker.storage.disk.files import OsFiles
from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_broker.storage.settings import FlushMode, StoreConfig
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


def open_store(root: Path, config: StoreConfig = TINY) -> Store:
    return Store.open(OsFiles(root), config, NOW)


def send(store: Store, topic: str, *bodies: bytes, queue: int = 0, keys: str = "") -> None:
    store.append(topic, queue, block_of(topic, *bodies, keys=keys), NOW)
    store.sync()
    store.publish()


def kill(store: Store) -> None:
    """End the process: the operating system keeps all written bytes."""
    store._lock_file.close()


def test_a_clean_restart_has_all_messages_and_reads_no_log(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    bodies = [b"%03d" % count * 20 for count in range(60)]
    for body in bodies:
        send(store, "orders", body)
    store.close()
    store = open_store(tmp_path)
    assert store.report.was_clean
    assert store.report.scanned_records == 0
    assert read_all(store, "orders") == bodies
    send(store, "orders", b"next")
    assert store.bounds("orders", 0) == Bounds(0, 61)
    store.close()


def test_after_a_kill_without_checkpoint_queues_are_rebuilt_from_the_log(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    expected: dict[tuple[str, int], list[bytes]] = {}
    for count in range(90):
        topic = ("orders", "bills")[count % 2]
        send(store, topic, b"%d" % count, queue=count % 3)
        expected.setdefault((topic, count % 3), []).append(b"%d" % count)
    kill(store)
    store = open_store(tmp_path)
    assert not store.report.was_clean
    assert store.report.scanned_records == 90
    for (topic, queue), bodies in expected.items():
        assert read_all(store, topic, queue) == bodies
    store.close()


def test_after_a_kill_only_the_log_behind_the_checkpoint_is_read(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for count in range(30):
        send(store, "orders", b"%d" % count)
    assert store.checkpoint()
    assert not store.checkpoint()
    for count in range(30, 37):
        send(store, "orders", b"%d" % count)
    kill(store)
    store = open_store(tmp_path)
    assert store.report.scanned_records == 7
    assert read_all(store, "orders") == [b"%d" % count for count in range(37)]
    store.close()


def test_whole_records_behind_the_mark_are_kept_and_torn_ones_cut(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, "orders", b"a", b"b")
    appended = store.append("orders", 0, block_of("orders", b"c", b"d"), NOW)
    kill(store)
    name = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(name.read_bytes())
    data[appended.end_position - 5 : appended.end_position] = bytes(5)
    name.write_bytes(data)
    store = open_store(tmp_path)
    assert store.report.kept_records == 1
    assert store.report.cut_size > 80
    assert read_all(store, "orders") == [b"a", b"b", b"c"]
    send(store, "orders", b"e")
    store.close()
    store = open_store(tmp_path)
    assert read_all(store, "orders") == [b"a", b"b", b"c", b"e"]
    store.close()


def test_a_torn_body_before_a_torn_record_is_cut(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, "orders", b"a", b"b")
    appended = store.append("orders", 0, block_of("orders", b"c" * 50, b"d"), NOW)
    kill(store)
    name = tmp_path / "commitlog" / f"{0:020d}"
    data = bytearray(name.read_bytes())
    body = data.index(b"c" * 50)
    data[body + 10 : body + 20] = bytes(10)
    # The end of the next record is lost as well, so that its sizes do not add up.
    data[appended.end_position - 40 : appended.end_position] = bytes(40)
    name.write_bytes(data)
    store = open_store(tmp_path)
    assert store.report.kept_records == 0
    assert read_all(store, "orders") == [b"a", b"b"]
    store.close()


def test_messages_of_a_deleted_topic_do_not_return_when_it_is_created_again(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    store.configs.save("topics.json", {"topicConfigTable": {"orders": {}, "bills": {}}})
    store.configs.save("consumerOffset.json", {"offsetTable": {"orders@g": {"0": 2}}})
    send(store, "orders", b"old", b"older")
    send(store, "bills", b"kept")
    store.delete_topic("orders")
    assert store.bounds("orders", 0) == Bounds(0, 0)
    store.configs.save("topics.json", {"topicConfigTable": {"orders": {}, "bills": {}}})
    send(store, "orders", b"new")
    assert read_all(store, "orders") == [b"new"]
    kill(store)
    store = open_store(tmp_path)
    assert read_all(store, "orders") == [b"new"]
    assert read_all(store, "bills") == [b"kept"]
    assert store.configs.load("consumerOffset.json") == {"offsetTable": {}}
    store.close()
    topics = json.loads((tmp_path / "config" / "topics.json").read_text())
    assert set(topics["topicConfigTable"]) == {"orders", "bills"}


def test_a_committed_offset_behind_its_queues_end_is_set_to_the_end(tmp_path: Path) -> None:
    store = open_store(tmp_path, StoreConfig(segment_size=2048, flush=FlushMode.ASYNC))
    store.append("orders", 0, block_of("orders", b"a", b"b"), NOW)
    store.publish()
    table = {"orders@g": {"0": 2}, "orders@h": {"0": 1}}
    store.configs.save("consumerOffset.json", {"offsetTable": table})
    kill(store)
    name = tmp_path / "commitlog" / f"{0:020d}"
    data = name.read_bytes()
    size = int.from_bytes(data[:4], "big")
    name.write_bytes(data[:size])
    store = open_store(tmp_path)
    assert store.bounds("orders", 0) == Bounds(0, 1)
    assert store.report.clamped_offsets == ("orders@g/0",)
    assert store.configs.load("consumerOffset.json") == {
        "offsetTable": {"orders@g": {"0": 1}, "orders@h": {"0": 1}}
    }
    store.close()


def test_a_missing_file_of_acknowledged_log_refuses_to_start(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for count in range(40):
        send(store, "orders", b"%d" % count * 30)
    store.close()
    (tmp_path / "commitlog" / f"{2048:020d}").unlink()
    with pytest.raises(DamagedStoreError, match=r"missing.*rmq fsck"):
        open_store(tmp_path)


def test_lost_or_damaged_derived_files_are_rebuilt(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    bodies = [b"%d" % count for count in range(33)]
    for body in bodies:
        send(store, "orders", body)
    store.close()
    queue = tmp_path / "consumequeue" / "orders" / "0"
    for name in sorted(queue.iterdir()):
        content = name.read_bytes()
        name.unlink()
        store = open_store(tmp_path)
        assert read_all(store, "orders") == bodies
        store.close()
        assert name.read_bytes() == content
    (tmp_path / "derived.json").unlink()
    store = open_store(tmp_path)
    assert read_all(store, "orders") == bodies
    store.close()


@pytest.mark.parametrize("ending", [b"", b"\n00000000\n"])
def test_a_checkpoint_that_is_not_what_was_written_is_not_trusted(
    tmp_path: Path, ending: bytes
) -> None:
    store = open_store(tmp_path)
    bodies = [b"%d" % count for count in range(75)]
    for body in bodies:
        send(store, "orders", body)
    store.close()
    derived = tmp_path / "derived.json"
    text = derived.read_bytes().partition(b"\n")[0]
    damaged = text.replace(b'"orders":{"0":[0,75,', b'"orders":{"0":[0,65,')
    assert damaged != text
    derived.write_bytes(damaged + ending)
    store = open_store(tmp_path)
    assert read_all(store, "orders") == bodies
    store.close()


def test_a_stray_file_among_the_queues_is_removed_with_them(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, "orders", b"a")
    store.close()
    (tmp_path / "derived.json").unlink()
    stray = tmp_path / "consumequeue" / "orders" / "notes.txt"
    stray.write_text("written by nobody")
    store = open_store(tmp_path)
    assert not stray.exists()
    assert read_all(store, "orders") == [b"a"]
    stray.write_text("again")
    store.delete_topic("orders")
    assert not stray.parent.exists()
    store.close()


@pytest.mark.parametrize("is_derived_lost", [False, True])
@pytest.mark.parametrize("checkpoints", ["", "before", "after", "before after"])
def test_a_deletion_that_its_topic_has_outlived_is_void(
    tmp_path: Path, checkpoints: str, is_derived_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    store.configs.save("topics.json", {"topicConfigTable": {"orders": {}, "bills": {}}})
    bodies = [b"%d" % count for count in range(20)]
    for body in bodies[:15]:
        send(store, "orders", body)
    send(store, "bills", b"bill")
    if "before" in checkpoints:
        store.checkpoint()
    dead_before = store.durable_end
    for body in bodies[15:]:
        send(store, "orders", body)
    if "after" in checkpoints:
        store.checkpoint()
    kill(store)
    # As a broker left it that could not complete the deletion, and saved its topics again.
    topics = tmp_path / "config" / "topics.json"
    content = json.loads(topics.read_text())
    del content["crc32"]
    topics.write_text(json.dumps({**content, "deadBefore": {"orders": dead_before}}))
    if is_derived_lost:
        (tmp_path / "derived.json").unlink(missing_ok=True)
    for _ in range(2):
        store = open_store(tmp_path)
        assert read_all(store, "orders") == bodies
        assert read_all(store, "bills") == [b"bill"]
        assert store.configs.dead_before == {}
        kill(store)
    assert json.loads(topics.read_text())["deadBefore"] == {}
    assert caplog.text.count("topic=orders: its deletion was not completed") == 1
