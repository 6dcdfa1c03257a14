"""Log that a start does not compare with its checksums: compared while the broker serves."""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import replace

import pytest

from rocketmq_broker.servers.shell.shell import EngineShell
from rocketmq_broker.storage.disk.files import MemoryFiles
from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_broker.storage.store import Store
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.requests.messages import PullMessages, ViewMessage
from rocketmq_wire.requests.offsets import Boundary
from rocketmq_wire.requests.topics import CreateTopic
from support.engines import NOW_MS, PEER, EngineUnderTest, queue_of
from support.storage_blocks import block_of, bodies_of, read_all
from support.storage_histories import TINY

COUNT = 40
BODIES = [b"%03d" % number * 40 for number in range(COUNT)]
SMALL = replace(TINY, verified_size=300)
"""The start compares the last checksum or two."""


def filled(config=SMALL) -> MemoryFiles:
    """The files of a closed store with log that a start does not verify."""
    files = MemoryFiles()
    store = Store.open(files, config, NOW_MS)
    for number, body in enumerate(BODIES):
        store.append("orders", 0, block_of("orders", body), NOW_MS + number)
        store.sync()
        store.publish()
    store.close()
    return files


def flip(files: MemoryFiles, position: int) -> None:
    """Change a byte of the log."""
    base = position - position % TINY.segment_size
    file = files.open(f"commitlog/{base:020d}")
    (byte,) = file.pread(1, position - base)
    file.pwrite(bytes([byte ^ 0x10]), position - base)


def damages(store: Store) -> tuple[list[DamagedStoreError], int]:
    """The damage that comparing the whole log finds, and the size of the sound ranges."""
    found, size = [], 0
    for _ in itertools.repeat(None, 1_000):
        try:
            step = store.verify_step()
        except DamagedStoreError as error:
            found.append(error)
            continue
        if not step:
            return found, size
        size += step
    pytest.fail("the log has no end")


def position_of(files: MemoryFiles, offset: int) -> int:
    """Log position of the record of a queue offset."""
    entry = files.open(f"consumequeue/orders/0/{offset // 4 * 80:020d}").pread(8, offset % 4 * 20)
    return int.from_bytes(entry, "big")


def reading_at(store: Store, offset: int) -> list[bytes] | None:
    """The bodies that a read from an offset on returns; None if it is refused."""
    try:
        found = store.read("orders", 0, offset, count_max=100, bytes_max=1 << 20)
    except DamagedStoreError:
        return None
    assert found.next_begin == offset + found.count
    return bodies_of(found.parts)


def test_start_and_service_together_compare_all_of_the_log() -> None:
    store = Store.open(filled(), SMALL, NOW_MS)
    assert store.report.verified_size < store.durable_end / 2
    assert damages(store) == ([], store.durable_end - store.report.verified_size)
    assert read_all(store, "orders") == BODIES


def test_every_damaged_byte_of_unverified_log_is_found() -> None:
    for position in range(0, position_of(filled(), 9), 41):
        files = filled()
        flip(files, position)
        store = Store.open(files, SMALL, NOW_MS)
        (error,), _ = damages(store)
        assert error.file == f"commitlog/{position - position % 1024:020d}"
        store.close()


def test_a_damaged_range_is_not_served_and_the_log_around_it_is() -> None:
    files = filled()
    position = position_of(files, 10)
    flip(files, position + 100)
    store = Store.open(files, SMALL, NOW_MS)
    (error,), _ = damages(store)
    assert (error.position, "rmq fsck" in str(error)) == (position % 1024, True)
    readings = {offset: reading_at(store, offset) for offset in range(COUNT)}
    served = {offset: bodies for offset, bodies in readings.items() if bodies is not None}
    refused = readings.keys() - served.keys()
    # A checksum covers 300 bytes and a record: two or three of these records.
    assert 10 in refused
    assert len(refused) <= 3
    first, end = min(refused), max(refused) + 1
    assert served == {
        offset: BODIES[offset : first if offset < first else COUNT]
        for offset in range(COUNT)
        if offset not in refused
    }
    with pytest.raises(DamagedStoreError):
        store.record_at(position)
    with pytest.raises(DamagedStoreError):
        store.store_time("orders", 0, 10)
    with pytest.raises(DamagedStoreError):
        store.search_time("orders", 0, NOW_MS + 10, Boundary.LOWER)
    assert store.store_time("orders", 0, end) == NOW_MS + end
    # It is damaged at the next start, too.
    store.close()
    assert len(damages(Store.open(files, SMALL, NOW_MS))[0]) == 1


def test_damage_that_the_start_reads_refuses_the_start() -> None:
    files = filled()
    flip(files, position_of(files, COUNT - 1) + 100)
    with pytest.raises(DamagedStoreError):
        Store.open(files, SMALL, NOW_MS)


def test_log_that_has_expired_is_not_compared() -> None:
    files = filled()
    flip(files, 100)
    store = Store.open(files, SMALL, NOW_MS)
    store.clean(NOW_MS + 10 * 24 * 3_600_000)
    assert store.log_start > 1024
    assert damages(store)[0] == []


def test_a_broker_compares_by_itself_and_tells_who_reads_damaged_log(caplog) -> None:
    files = filled()
    position = position_of(files, 0)
    flip(files, position + 100)

    async def run():
        engine = EngineUnderTest(files, flush="sync", store_config=SMALL)
        shell = EngineShell(engine.engine, engine.store, engine.config)
        await shell.start()
        try:
            await shell.ask(CreateTopic(TopicConfig("orders", 1, 1)), PEER)
            for _ in range(20_000):
                if "[ROCKETMQ_STORAGE.DAMAGED]" in caplog.text:
                    break
                await asyncio.sleep(0.001)
            with pytest.raises(BrokerError, match="rmq fsck") as pulled:
                await shell.ask(PullMessages("g", queue_of("orders"), 0, 10), PEER)
            with pytest.raises(BrokerError, match="rmq fsck") as viewed:
                await shell.ask(ViewMessage(position), PEER)
            found = await shell.ask(PullMessages("g", queue_of("orders"), 20, 100), PEER)
            return (
                pulled.value,
                viewed.value,
                bodies_of([memoryview(part) for part in found.records]),
            )
        finally:
            await shell.stop_serving()
            await shell.close()

    with caplog.at_level(logging.ERROR):
        pulled, viewed, bodies = asyncio.run(run())
    assert "reads of this part of the log fail" in caplog.text
    assert (pulled.code, viewed.code, pulled.retryable) == (1, 1, False)
    assert bodies == BODIES[20:]
