"""An inspection reads the whole store and changes nothing."""

from __future__ import annotations

from dataclasses import replace

from rocketmq_broker.storage.disk.files import MemoryFiles
from rocketmq_broker.storage.log.commit_log import segment_name
from rocketmq_broker.storage.log.durability import LOG_CHECKSUMS_NAME
from rocketmq_broker.storage.repair.inspection import inspect
from rocketmq_broker.storage.store import Store
from support.storage_blocks import block_of
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
