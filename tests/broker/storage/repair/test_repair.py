"""A repair sets damage aside: sound messages keep their offsets, lost ones leave holes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.queues.lost_messages import LOST_NAME
from rocketmq_broker.storage.recovery.recover import LOCK_NAME
from rocketmq_broker.storage.repair.repair import carry_out, plan_repair
from rocketmq_broker.storage.repair.repair_plan import RepairPlan
from rocketmq_broker.storage.settings import PLAN_NAME
from rocketmq_broker.storage.store import Store
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.offsets import Boundary
from support.crash_files import CrashFiles, Density, State, crashes
from support.storage_blocks import block_of
from support.storage_histories import KNOWN_QUEUES, NOW, TINY, History

CONFIG = replace(TINY, segment_size=4096)
LOG = "commitlog/" + "0" * 20
Shown = dict[tuple[str, int], dict[int, bytes | None]]


def filled(*, clean: bool = True) -> History:
    """Three queues in two files of the log, with checkpoints between."""
    history = History(config=CONFIG)
    for count in range(12):
        history.now_ms = NOW + count * 1000
        history.put("orders", 0, b"a%02d" % count * 20)
        history.put("orders", 1, b"b%02d" % count * 10, b"c%02d" % count)
        if count == 6:
            history.put("bills", 0, b"only")
            history.index()
            history.store.checkpoint()
    if clean:
        history.store.close()
    return history


def messages_of(history: History) -> list[tuple[int, int, tuple[str, int, int]]]:
    """Log position, size and queue offset of each message."""
    found = []
    for sent in history.promises.sent:
        message = decode_record(sent.record)[0]
        found.append(
            (message.physical_offset, len(sent.record), (sent.topic, sent.queue, sent.offset))
        )
    return found


def changed(state: State, name: str, change: Callable[[bytes], bytes | None]) -> State:
    """The disk with other content in one file, or without the file."""
    found = []
    for each, content in state:
        if each == name:
            assert content is not None
            content = change(content)
            if content is None:
                continue
        found.append((each, content))
    return tuple(found)


def flipped(state: State, position: int) -> State:
    def flip(content: bytes) -> bytes:
        damaged = bytearray(content)
        damaged[position % 4096] ^= 0x01
        return bytes(damaged)

    return changed(state, f"commitlog/{position - position % 4096:020d}", flip)


def repaired(state: State, *, keeps_unproven: bool = False) -> tuple[CrashFiles, RepairPlan]:
    files = CrashFiles.of(state)
    lock = files.lock(LOCK_NAME)
    plan = plan_repair(files, lock, keeps_unproven=keeps_unproven)
    assert files.state() == CrashFiles.of(state).state(), "planning changed something"
    carry_out(files, plan)
    lock.close()
    return files, plan


def shown(store: Store) -> Shown:
    """The body of each offset of each queue; None if a read reports it as lost."""
    found: Shown = {}
    for key in KNOWN_QUEUES:
        bounds = store.bounds(*key)
        found[key] = {}
        offset = bounds.start
        while offset < bounds.end:
            result = store.read(*key, offset, count_max=100, bytes_max=1 << 20)
            assert (result.count > 0) != (result.lost > 0)
            data, at = b"".join(result.parts), 0
            for each in range(offset, result.next_begin):
                if result.lost:
                    found[key][each] = None
                else:
                    message, at = decode_record(data, at)
                    assert message.queue_offset == each
                    found[key][each] = message.body
            offset = result.next_begin
    return found


def sent_bodies(history: History, lost: set[tuple[str, int, int]]) -> Shown:
    found: Shown = {key: {} for key in KNOWN_QUEUES}
    for sent in history.promises.sent:
        body = decode_record(sent.record)[0].body
        is_lost = (sent.topic, sent.queue, sent.offset) in lost
        found[sent.topic, sent.queue][sent.offset] = None if is_lost else body
    return found


def check(files: CrashFiles, history: History, lost: set[tuple[str, int, int]]) -> None:
    """The store opens, repeatedly, with exactly this loss; no offset is used twice."""
    expected = sent_bodies(history, lost)
    store = Store.open(files, CONFIG, NOW)
    assert shown(store) == expected
    for topic, queue in KNOWN_QUEUES:
        appended = store.append(topic, queue, block_of(topic, b"later"), NOW + 60_000)
        assert appended.start == max(expected[topic, queue], default=-1) + 1
        expected[topic, queue][appended.start] = b"later"
    store.sync()
    store.publish()
    while store.index_step():
        pass
    assert shown(store) == expected
    store.close()
    again = Store.open(files, CONFIG, NOW)
    assert shown(again) == expected
    again.checkpoint()
    again.close()
    # Without the derived files the start reads the log and the list of lost messages.
    state = changed(files.state(), "derived.json", lambda _: None)
    rebuilt = CrashFiles.of(state)
    assert shown(Store.open(rebuilt, CONFIG, NOW)) == expected


@pytest.mark.parametrize("field", [0, 4, 8, 12, 20, 28, 84, 88])
def test_a_damaged_record_is_lost_alone(field: int) -> None:
    history = filled(clean=field % 8 == 0)
    for index in (0, 5, len(messages_of(history)) - 1):
        position, size, key = messages_of(history)[index]
        damaged = flipped(history.files.state(), position + field % size)
        with pytest.raises(StorageError):
            Store.open(CrashFiles.of(damaged), CONFIG, NOW)
        files, plan = repaired(damaged)
        assert plan.lost_count == 1, (index, plan)
        assert plan.lost_by_queue() == {key[:2]: [(key[2], key[2] + 1)]}
        check(files, history, {key})


def test_damage_of_a_field_without_checksum_loses_the_range_of_the_log_checksum() -> None:
    history = filled()
    position, _, key = messages_of(history)[3]
    damaged = flipped(history.files.state(), position + 45)
    files, plan = repaired(damaged)
    assert 1 < plan.lost_count < 8
    assert key[2] in range(*plan.lost_by_queue()[key[:2]][0])
    lost = {(h.topic, h.queue_index, o) for h in plan.lost for o in range(h.start, h.end)}
    check(files, history, lost)
    files, plan = repaired(damaged, keeps_unproven=True)
    assert plan.lost_count == 0
    assert plan.unproven_count > 1
    check(files, history, set())


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("base", [0, 4096])
def test_a_missing_file_loses_what_was_in_it(base: int, clean: bool) -> None:
    history = filled(clean=clean)
    state = changed(history.files.state(), f"commitlog/{base:020d}", lambda _: None)
    files, plan = repaired(state)
    lost = {key for position, _, key in messages_of(history) if base <= position < base + 4096}
    assert plan.lost_count == len(lost) > 5
    check(files, history, lost)


def test_a_file_that_was_cut_short_loses_what_is_cut() -> None:
    history = filled()
    state = changed(history.files.state(), LOG, lambda content: content[:1000])
    files, _ = repaired(state)
    lost = {key for position, size, key in messages_of(history) if 1000 - size < position < 4096}
    check(files, history, lost)


def test_a_block_of_zeros_loses_the_records_that_it_touches() -> None:
    history = filled()
    zeros = lambda content: content[:1024] + bytes(512) + content[1536:]  # noqa: E731
    files, plan = repaired(changed(history.files.state(), LOG, zeros))
    lost = {key for position, size, key in messages_of(history) if 1024 - size < position < 1536}
    assert len(plan.damaged_ranges) == 1
    check(files, history, lost)


def test_damage_of_a_filler_loses_nothing() -> None:
    history = filled()
    for position in (4095, 4096 - 60):
        files, plan = repaired(flipped(history.files.state(), position))
        if plan.lost_count:
            continue
        check(files, history, set())
        return
    pytest.fail("no file of this history ends with a filler")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", ["durable.mark", "log.seals"])
@pytest.mark.parametrize("is_missing", [True, False])
def test_a_lost_mark_or_lost_checksums_lose_no_message(
    name: str, is_missing: bool, clean: bool
) -> None:
    history = filled(clean=clean)
    state = changed(
        history.files.state(), name, lambda content: None if is_missing else b"\xff" * len(content)
    )
    files, plan = repaired(state)
    assert plan.rewritten == (name,)
    assert plan.lost_count == 0
    check(files, history, set())


def test_a_second_repair_keeps_what_the_first_one_lost() -> None:
    history = filled()
    everything = messages_of(history)
    files, first = repaired(flipped(history.files.state(), everything[2][0] + 90))
    Store.open(files, CONFIG, NOW).close()
    # The blank record that replaced it, and another message.
    again = flipped(files.state(), everything[2][0] + 90)
    files, second = repaired(flipped(again, everything[9][0] + 90))
    assert (first.folder, second.folder) == ("quarantine/0001", "quarantine/0002")
    assert second.lost_count == 1
    check(files, history, {everything[2][2], everything[9][2]})


def test_the_damaged_bytes_and_a_report_are_in_the_quarantine() -> None:
    history = filled()
    position, size, (topic, queue, offset) = messages_of(history)[4]
    damaged = flipped(history.files.state(), position + 90)
    files, plan = repaired(damaged)
    disk = dict(files.state())
    log = dict(damaged)[LOG]
    assert log is not None
    name = f"quarantine/0001/commitlog-{0:020d}-{position}-{size}"
    assert disk[name] == log[position : position + size]
    report = json.loads(disk["quarantine/0001/report.json"] or b"")
    assert report["damaged"][0]["file"] == LOG
    assert (report["damaged"][0]["position"], report["damaged"][0]["length"]) == (position, size)
    assert report["lost"] == [
        {"topic": topic, "queue": queue, "start": offset, "end": offset + 1, "count": 1}
    ]
    assert report == json.loads(json.dumps(plan.report()))


def test_times_are_searched_across_a_hole() -> None:
    history = filled()
    everything = messages_of(history)
    lost = [entry for entry in everything if entry[2] in (("orders", 0, 5), ("orders", 0, 6))]
    state = history.files.state()
    for position, _, _ in lost:
        state = flipped(state, position + 90)
    files, _ = repaired(state)
    store = Store.open(files, CONFIG, NOW)
    for count in (0, 4, 7, 11):
        found = store.search_time("orders", 0, NOW + count * 1000, Boundary.LOWER)
        assert found == count
    assert store.store_time("orders", 0, 5) == -1
    assert store.record_at(lost[0][0]) is None


def test_holes_end_with_their_log_and_with_their_topic() -> None:
    history = filled()
    position, _, _ = messages_of(history)[0]
    files, _ = repaired(flipped(history.files.state(), position + 90))
    store = Store.open(files, CONFIG, NOW)
    store.delete_topic("orders")
    appended = store.append("orders", 0, block_of("orders", b"new"), NOW)
    assert appended.start == 0
    store.close()
    store = Store.open(files, CONFIG, NOW)
    assert shown(store)["orders", 0] == {0: b"new"}
    assert json.loads(dict(files.state())[LOST_NAME] or b"")["lostMessages"] == []
    store.close()
    files, _ = repaired(flipped(history.files.state(), position + 90))
    store = Store.open(files, CONFIG, NOW)
    store.clean(NOW + 10**9)
    assert store.bounds("orders", 0).start > 0
    store.close()
    store = Store.open(files, CONFIG, NOW)
    assert None not in shown(store)["orders", 0].values()
    assert json.loads(dict(files.state())[LOST_NAME] or b"")["lostMessages"] == []


def small() -> State:
    """A store with two damaged records, so small that every crash of its repair can be tried."""
    history = History(config=CONFIG)
    history.put("orders", 0, b"a")
    history.put("orders", 1, b"b", b"c")
    history.put("bills", 0, b"d")
    history.put("orders", 0, b"e")
    history.store.close()
    found = messages_of(history)
    return flipped(flipped(history.files.state(), found[1][0] + 88), found[4][0] + 88)


def test_a_repair_that_is_cut_short_is_finished_by_the_next() -> None:
    state = small()
    files, plan = repaired(state)
    finished, whole = files.state(), shown(Store.open(CrashFiles.of(files.state()), CONFIG, NOW))
    assert plan.lost_count == 2
    files = CrashFiles.of(state)
    carry_out(files, plan)
    tried = set[int]()
    started = refused = 0
    for crash in crashes(files, Density(subset_bits=5, samples=8, tears=3)):
        if hash(crash.state) in tried:
            continue
        tried.add(hash(crash.state))
        after = CrashFiles.of(crash.state)
        try:
            # A broker that starts now is refused, unless the repair was complete.
            assert shown(Store.open(CrashFiles.of(crash.state), CONFIG, NOW)) == whole
            started += 1
        except StorageError:
            refused += 1
        lock = after.lock(LOCK_NAME)
        again = plan_repair(after, lock)
        if not again.is_empty:
            carry_out(after, again)
        lock.close()
        left = [entry for entry in after.state() if not entry[0].endswith(".tmp")]
        wanted = [entry for entry in finished if not entry[0].endswith(".tmp")]
        assert left == wanted, crash.point
    assert started > 0
    assert refused > 50


def test_a_broker_does_not_start_on_half_a_repair() -> None:
    files = CrashFiles.of(small())
    lock = files.lock(LOCK_NAME)
    plan = plan_repair(files, lock)
    files.open(PLAN_NAME, create=True).pwrite(plan.encode(), 0)
    lock.close()
    with pytest.raises(StorageError, match="rmq fsck --repair"):
        Store.open(files, CONFIG, NOW)
    assert plan_repair(files, files.lock(LOCK_NAME)) == plan
