"""Damage to acknowledged data is never cut: the store refuses to start and names the position."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_broker.storage.store import Store
from support.crash_files import CrashFiles, State
from support.storage_histories import NOW, TINY, History

# Byte positions in a record with IPv4 hosts; later fields count from the end of the body.
FIELDS = {
    "size": 0,
    "magic": 4,
    "body checksum": 8,
    "queue": 12,
    "flag": 16,
    "queue offset": 20,
    "physical offset": 28,
    "sysFlag": 36,
    "born time": 40,
    "born host": 48,
    "store time": 56,
    "store host": 64,
    "reconsume times": 72,
    "prepared transaction offset": 76,
    "body size": 84,
    "body": 88,
    "topic size": 89,
    "topic": 90,
    "properties size": 96,
    "properties": 98,
    "last byte": -1,
}
LOG = "commitlog/" + "0" * 20


def small_store(*, clean: bool) -> tuple[State, list[tuple[int, int]]]:
    """A disk with a few acknowledged records, and their positions and sizes in the log."""
    history = History(config=replace(TINY, segment_size=4096))
    history.put("orders", 0, b"a")
    history.put("orders", 0, b"b", b"c")
    history.put("orders", 1, b"d")
    if clean:
        history.store.close()
    records, position = [], 0
    for sent in history.promises.sent:
        records.append((position, len(sent.record)))
        position += len(sent.record)
    return history.files.state(), records


def flipped(state: State, name: str, position: int, bits: int = 0x01) -> State:
    """The disk with one byte of a file changed."""
    changed = []
    for each, content in state:
        if each == name:
            assert content is not None
            damaged = bytearray(content)
            damaged[position] ^= bits
            content = bytes(damaged)
        changed.append((each, content))
    return tuple(changed)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("field", FIELDS)
def test_a_flipped_field_of_an_acknowledged_record_refuses_to_start(
    field: str, clean: bool
) -> None:
    state, records = small_store(clean=clean)
    for start, size in records:
        position = start + FIELDS[field] % size
        refused = r"^\[ROCKETMQ_STORAGE\.DAMAGED\] .*rmq fsck"
        with pytest.raises(DamagedStoreError, match=refused) as caught:
            Store.open(CrashFiles.of(flipped(state, LOG, position)), TINY, NOW)
        assert caught.value.file == LOG
        assert caught.value.position <= position
        assert caught.value.expected != caught.value.found


def test_a_damaged_body_is_named_with_its_position_and_checksums() -> None:
    state, records = small_store(clean=True)
    start, _ = records[2]
    with pytest.raises(DamagedStoreError, match=f"{LOG} byte={start}: the record's body") as caught:
        Store.open(CrashFiles.of(flipped(state, LOG, start + 88)), TINY, NOW)
    assert 0 < caught.value.expected < 2**31


def test_every_byte_of_the_acknowledged_log_is_guarded() -> None:
    state, records = small_store(clean=True)
    for position in range(records[-1][0] + records[-1][1]):
        with pytest.raises(DamagedStoreError):
            Store.open(CrashFiles.of(flipped(state, LOG, position, 0x80)), TINY, NOW)


def test_one_damaged_slot_of_the_mark_of_a_closed_store_does_no_harm() -> None:
    state, _ = small_store(clean=True)
    for slot in (0, 4096):
        store = Store.open(CrashFiles.of(flipped(state, "durable.mark", slot + 20)), TINY, NOW)
        assert store.bounds("orders", 0).end == 3


def test_a_refused_start_changes_nothing() -> None:
    state, records = small_store(clean=True)
    damaged = flipped(state, LOG, records[1][0] + 50)
    files = CrashFiles.of(damaged)
    with pytest.raises(DamagedStoreError):
        Store.open(files, TINY, NOW)
    assert files.state() == damaged
    with pytest.raises(DamagedStoreError):
        Store.open(files, TINY, NOW)
