"""An inspection reads the whole store and changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketmq_broker.storage.disk.files import MemoryFiles
from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_broker.storage.log.commit_log import segment_name
from rocketmq_broker.storage.log.durability import LOG_CHECKSUMS_NAME
from rocketmq_broker.storage.repair.inspection import inspect
from rocketmq_broker.storage.store import Store
from support.storage_blocks import block_of, read_all
from support.storage_histories import NOW, TINY

EVERY_MESSAGE = replace(TINY, checksum_range_size=1)
"""A log checksum covers one message."""


def content(files: MemoryFiles, name: str) -> bytes:
    file = files.open(name)
    return file.pread(file.size(), 0)


def test_many_expired_checksums_stay_in_their_file() -> None:
    files = MemoryFiles()
    store = Store.open(files, EVERY_MESSAGE, NOW)
    for number in range(1_200):
        store.append("orders", 0, block_of("orders", b"x" * 50), NOW + number)
        store.sync()
    store.publish()
    store.clean(NOW + 10**6)
    store.close()
    before = content(files, LOG_CHECKSUMS_NAME)
    assert inspect(files).is_sound
    assert content(files, LOG_CHECKSUMS_NAME) == before
    # A start does shorten the file.
    Store.open(files, EVERY_MESSAGE, NOW).close()
    assert len(content(files, LOG_CHECKSUMS_NAME)) < len(before) // 10


def test_a_message_whose_properties_are_cut_off_is_named() -> None:
    files = MemoryFiles()
    store = Store.open(files, TINY, NOW)
    for _ in range(2):
        end = store.append("orders", 0, block_of("orders", b"x", keys="key"), NOW).end_position
    store.sync()
    store.publish()
    store.close()
    files.open(segment_name(0)).resize(end - 2)
    assert inspect(files).damaged == {("orders", 0): [(1, 2)]}


def test_an_entry_that_is_not_what_was_written_is_found_and_rebuilt() -> None:
    config = replace(TINY, verified_size=0)
    files = MemoryFiles()
    store = Store.open(files, config, NOW)
    for number in range(11):
        store.append("orders", 0, block_of("orders", b"%d" % number, tags="red"), NOW)
        store.sync()
        store.publish()
    store.close()
    # The tag's hash of the sixth message: its record is sound.
    name, at = f"consumequeue/orders/0/{80:020d}", 20 + 19
    byte = files.open(name).pread(1, at)[0]
    files.open(name).pwrite(bytes([byte ^ 1]), at)
    found = inspect(files)
    assert found.damaged_queues
    assert name in found.problems[0]
    # A start that compares little does not find it: a read does, and serves no entry of the file.
    store = Store.open(files, config, NOW)
    assert store.read("orders", 0, 0, count_max=4, bytes_max=1 << 20).count == 4
    with pytest.raises(DamagedStoreError, match=name):
        store.read("orders", 0, 4, count_max=1, bytes_max=1 << 20)
    assert store.read("orders", 0, 8, count_max=3, bytes_max=1 << 20).count == 3
    store.close()
    store = Store.open(files, TINY, NOW)
    assert read_all(store, "orders") == [b"%d" % number for number in range(11)]
    store.close()
    assert inspect(files).is_sound
