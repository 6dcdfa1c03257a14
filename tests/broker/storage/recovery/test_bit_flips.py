"""One bit of any file of a data directory changes: the start or the read shows it, or repairs it.

A flip is repaired from the other files, refused by an error with the file and the byte, or changes
nothing that a client gets. `BIT_FLIPS=1000000` tries that many, `BIT_FLIPS_SEED` chooses others.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from rocketmq_broker.storage.disk.config_files import damaged_configs
from rocketmq_broker.storage.errors import DamagedStoreError, StorageError
from rocketmq_broker.storage.repair.inspection import inspect
from rocketmq_broker.storage.settings import StoreConfig
from rocketmq_broker.storage.store import Store
from rocketmq_wire.hashes import java_hash
from support.crash_files import CrashFiles, State
from support.storage_blocks import block_of, bodies_of

NOW = 1_700_000_000_000
INSPECTED_COUNT = 600
COUNT = int(os.environ.get("BIT_FLIPS", "10000"))
SEED = int(os.environ.get("BIT_FLIPS_SEED", "1"))
SMALL = StoreConfig(
    segment_size=2048,
    queue_file_entries=8,
    checksum_range_size=600,
    index_slot_count=8,
    index_entry_count=20,
)
LAZY = replace(SMALL, verified_size=0)
"""A start compares as little as with a very large store."""
QUEUES = (("orders", 0), ("orders", 1), ("bills", 0))
RED = np.array([java_hash("red")], np.int64)
CONFIGS: dict[str, dict[str, object]] = {
    "topics.json": {"topicConfigTable": {"orders": {"readQueueNums": 2}, "bills": {}}},
    "consumerOffset.json": {"offsetTable": {"orders@g": {"0": 7, "1": 3}}},
    "subscriptionGroup.json": {"subscriptionGroupTable": {"g": {"retryMaxTimes": 16}}},
    "delayOffset.json": {"offsetTable": {"1": 12}},
    "timers.json": {"deliveredUntilMs": 5, "readFrom": 3},
    "transactionChecks.json": {"checks": {"7": 2}},
    "consumerOrderInfo.json": {"table": {"orders@g": {"0": {"pt": 1}}}},
    "messageRequestMode.json": {"orders": {"g": "POP"}},
    "addresses.json": {"port": 9876},
}

Shown = dict[str, object]


@pytest.fixture(autouse=True)
def _no_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    """Nearly every flip is logged, which would take as long as to find it."""
    caplog.set_level(logging.CRITICAL)


@cache
def directory(*, is_clean: bool) -> tuple[State, Shown]:
    """A data directory, and what a client gets from it."""
    files = CrashFiles()
    store = Store.open(files, SMALL, NOW)
    for name, content in CONFIGS.items():
        store.configs.save(name, content)
    for number in range(20):
        for topic, queue in (*QUEUES, ("gone", 0)):
            tags = ("red", "blue")[number % 2]
            body = b"%s-%d-%d" % (topic.encode(), queue, number)
            store.append(topic, queue, block_of(topic, body, tags=tags, keys="k"), NOW + number)
        store.sync()
        store.publish()
        if number == 15:
            store.delete_topic("gone")
            store.checkpoint()
    shown = shown_by(store)
    if is_clean:
        while store.index_step():
            pass
        store.close()
    return files.state(), shown


def shown_by(store: Store) -> Shown:
    """What clients get; a refused read is shown as its error."""
    shown: Shown = {}
    for name, content in CONFIGS.items():
        loaded = store.configs.load(name)
        shown[name] = {key: loaded.get(key) for key in content}
    # What the start did not compare, a broker compares while it serves.
    for _ in range(100):
        with suppress(DamagedStoreError):
            store.verify_step()
    for topic, queue in QUEUES:
        shown[f"{topic}/{queue} bounds"] = store.bounds(topic, queue)
        for tags in (None, RED):
            shown[f"{topic}/{queue} {tags}"] = bodies_or_error(store, topic, queue, tags)
    return shown


def bodies_or_error(
    store: Store, topic: str, queue: int, tags: npt.NDArray[np.int64] | None
) -> list[bytes] | DamagedStoreError:
    bounds, bodies = store.bounds(topic, queue), []
    offset = bounds.start
    try:
        while offset < bounds.end:
            found = store.read(
                topic, queue, offset, count_max=100, bytes_max=1 << 20, tag_hashes=tags
            )
            bodies += bodies_of(found.parts)
            offset = found.next_begin
    except DamagedStoreError as error:
        return error
    return bodies


def flips_of(state: State, count: int) -> Iterator[tuple[str, int]]:
    """Bits of one file after the other, but for the zeros at their ends."""
    used = {name: len(content.rstrip(b"\0")) for name, content in sorted(state) if content}
    chance = random.Random(SEED)
    for name in itertools.islice(itertools.cycle(used), count):
        yield name, chance.randrange(8 * max(used[name], 1))


def flip(state: State, name: str, bit: int) -> State:
    changed = []
    for each, content in state:
        if each == name:
            assert content is not None
            damaged = bytearray(content)
            damaged[bit // 8] ^= 1 << bit % 8
            content = bytes(damaged)
        changed.append((each, content))
    return tuple(changed)


def check(state: State, name: str, bit: int, expected: Shown, config: StoreConfig) -> str:
    """Returns what became of the flip."""
    where = f"{name}, bit {bit}"
    try:
        store = Store.open(CrashFiles.of(flip(state, name, bit)), config, NOW)
        shown = shown_by(store)
    except StorageError as error:
        return "refused" if error.file else ""
    outcome = "repaired or harmless"
    for key, value in expected.items():
        if isinstance(shown[key], DamagedStoreError):
            outcome = "refused"
        else:
            assert shown[key] == value, f"{where}: {key}"
    return outcome


@pytest.mark.exhaustive
@pytest.mark.parametrize("config", [SMALL, LAZY], ids=["compared", "lazy"])
@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "killed"])
def test_no_flipped_bit_is_served_or_loses_anything_in_silence(
    is_clean: bool, config: StoreConfig
) -> None:
    state, expected = directory(is_clean=is_clean)
    outcomes: dict[str, set[str]] = {}
    for name, bit in flips_of(state, COUNT // 4):
        outcome = check(state, name, bit, expected, config)
        outcomes.setdefault(name.partition("/")[0], set()).add(outcome)
    assert {"commitlog", "config", "consumequeue", "derived.json", "durable.mark"} <= set(outcomes)
    assert "refused" in outcomes["commitlog"]
    assert "refused" in outcomes["config"]


@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "killed"])
def test_an_inspection_finds_what_a_start_finds(is_clean: bool) -> None:
    state, _ = directory(is_clean=is_clean)
    outcomes: set[tuple[bool, bool]] = set()
    for name, bit in flips_of(state, INSPECTED_COUNT // 2):
        damaged = flip(state, name, bit)
        try:
            store = Store.open(CrashFiles.of(damaged), SMALL, NOW)
        except StorageError:
            # An inspection that cannot continue reports it, too.
            with suppress(StorageError):
                found = inspect(CrashFiles.of(damaged))
                assert not found.is_sound or damaged_configs(CrashFiles.of(damaged)), (name, bit)
            outcomes.add((False, False))
            continue
        found = inspect(CrashFiles.of(damaged))
        bounds = [store.bounds(*queue) for queue in (*QUEUES, ("gone", 0))]
        assert found.message_count == sum(each.end - each.start for each in bounds), (name, bit)
        # A start makes damaged queues again from the log.
        assert found.is_sound or found.damaged_queues, (name, bit)
        outcomes.add((True, found.is_sound))
    assert outcomes == {(False, False), (True, False), (True, True)}
