"""Light queues in the store: derived from the log like others, believed only where they go on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_arrow.blocks import block_from_message
from rocketmq_broker_sim.servers.shell import EngineShell
from rocketmq_broker_sim.storage.files import OsFiles
from rocketmq_broker_sim.storage.inspection import inspect
from rocketmq_broker_sim.storage.recovery import LOCK_NAME
from rocketmq_broker_sim.storage.repair import carry_out, plan_repair
from rocketmq_broker_sim.storage.settings import FlushMode, StoreConfig
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.lite_topics import light_queue
from rocketmq_wire.model import Bounds, QueueId, TopicConfig
from rocketmq_wire.pop_requests import ack_of
from rocketmq_wire.properties import encode_properties
from rocketmq_wire.requests import CommitProgress, CreateTopic, DeleteTopic, SendMessage
from support.crash_files import Crash, CrashFiles, Disk
from support.engines import PEER, STORE_HOST, EngineUnderTest, queue_of
from support.lite import (
    GROUP,
    PARENT,
    ack_lite,
    begin_lite,
    bind,
    bodies,
    pop_lite,
    queue_of_lite,
    send_lite,
    subscribe,
)
from support.pops import Popped

SIZES = StoreConfig(
    FlushMode.SYNC,
    STORE_HOST,
    segment_size=4_096,
    queue_file_entries=10,
    seal_size=512,
    index_slot_count=16,
    index_entry_count=20,
)
A, B = light_queue(PARENT, "a"), light_queue(PARENT, "b")


def opened(root: Path) -> EngineUnderTest:
    return EngineUnderTest(OsFiles(root), store_config=SIZES, flush="sync")


def killed(broker: EngineUnderTest) -> None:
    """What is left when the process dies."""
    broker.store._lock_file.close()


def filled(root: Path, count: int = 30) -> EngineUnderTest:
    """Two lite topics of messages that take turns, in two queues of the parent."""
    broker = opened(root)
    begin_lite(broker)
    for number in range(count):
        send_lite(broker, "ab"[number % 2], b"%d" % number, queue=number % 3 % 2)
    return broker


def listed(broker: EngineUnderTest, name: str) -> list[bytes]:
    """The bodies of a light queue's messages."""
    start = broker.store.bounds(name, 0).start
    return [message.body for message in broker.messages(QueueId(name, "", 0), start)]


def expected(name: str, count: int = 30) -> list[bytes]:
    numbers = range(0 if name == A else 1, count, 2)
    return [b"%d" % number for number in numbers]


def test_a_clean_restart_reads_nothing_again(tmp_path: Path) -> None:
    filled(tmp_path).store.close()
    broker = opened(tmp_path)
    assert broker.store.report.scanned_records == 0
    assert listed(broker, A) == expected(A)
    send_lite(broker, "a", b"next")
    assert listed(broker, A) == [*expected(A), b"next"]
    broker.store.close()


@pytest.mark.parametrize("checkpoint_at", [None, 0, 7, 30])
def test_after_a_kill_they_are_made_of_the_log(tmp_path: Path, checkpoint_at: int | None) -> None:
    broker = opened(tmp_path)
    begin_lite(broker)
    for number in range(30):
        if number == checkpoint_at:
            broker.store.checkpoint()
        send_lite(broker, "ab"[number % 2], b"%d" % number, queue=number % 3 % 2)
    killed(broker)
    broker = opened(tmp_path)
    assert (listed(broker, A), listed(broker, B)) == (expected(A), expected(B))
    assert broker.store.next_offset(A, 0) == 15
    broker.store.close()


@pytest.mark.parametrize("lost", ["derived.json", "consumequeue"])
def test_what_is_derived_may_be_lost(tmp_path: Path, lost: str) -> None:
    filled(tmp_path).store.close()
    path = tmp_path / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    broker = opened(tmp_path)
    assert (listed(broker, A), listed(broker, B)) == (expected(A), expected(B))
    broker.store.close()


def test_a_record_that_says_what_is_not_so_is_in_no_light_queue(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    # Before the topic has lite topics its batches are taken as they are, and so are these.
    broker.ask(CreateTopic(TopicConfig(PARENT, 1, 1)))
    for name, offset in ((A, "0"), (A, "7"), (light_queue("other", "a"), "0"), (B, "x")):
        forged = {"INNER_MULTI_DISPATCH": name, "INNER_MULTI_QUEUE_OFFSET": offset}
        _append_as_it_is(broker, forged)
    begin_lite(broker)
    killed(broker)
    broker = opened(tmp_path)
    # What is of its own topic and goes on cannot be told from what the broker wrote.
    assert broker.store.light_queues() == [A]
    assert broker.store.bounds(A, 0) == Bounds(0, 1)
    assert broker.store.bounds(PARENT, 0) == Bounds(0, 4)
    send_lite(broker, "a", b"real")
    killed(broker)
    broker = opened(tmp_path)
    assert broker.store.bounds(A, 0) == Bounds(0, 2)
    assert listed(broker, A)[1:] == [b"real"]
    broker.store.close()


def _append_as_it_is(broker: EngineUnderTest, properties: dict[str, str]) -> None:
    block = block_from_message(
        topic=PARENT,
        queue_index=0,
        body=b"forged",
        properties=encode_properties(properties),
        flag=0,
        sys_flag=0,
        born_ms=broker.now_ms,
        born_host=STORE_HOST,
        store_host=STORE_HOST,
        reconsume_times=0,
    )
    broker.store.append(PARENT, 0, block, broker.now_ms)
    broker.store.sync()
    broker.store.publish()


def test_they_expire_with_their_log(tmp_path: Path) -> None:
    broker = filled(tmp_path, 60)
    broker.store.checkpoint()
    late = broker.now_ms + SIZES.retention_ms + 1
    assert broker.store.clean(late).log_files > 1
    first = broker.store.bounds(A, 0).start
    assert first > 0
    assert listed(broker, A) == expected(A, 60)[first:]
    for is_lost in (False, True):
        killed(broker)
        if is_lost:
            (tmp_path / "derived.json").unlink()
        broker = opened(tmp_path)
        assert broker.store.bounds(A, 0) == Bounds(first, 30)
        assert listed(broker, A) == expected(A, 60)[first:]
    broker.store.close()


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_is_deleted_stays_deleted(tmp_path: Path, checkpoint: bool) -> None:
    broker = filled(tmp_path)
    if checkpoint:
        broker.store.checkpoint()
    broker.ask(DeleteTopic(PARENT))
    killed(broker)
    broker = opened(tmp_path)
    assert broker.store.light_queues() == []
    assert not (tmp_path / "consumequeue" / A).exists()
    begin_lite(broker)
    send_lite(broker, "a", b"anew")
    killed(broker)
    broker = opened(tmp_path)
    assert listed(broker, A) == [b"anew"]
    assert broker.store.light_queues() == [A]
    broker.store.close()


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_has_expired_alone_stays_away(tmp_path: Path, checkpoint: bool) -> None:
    broker = filled(tmp_path)
    if checkpoint:
        broker.store.checkpoint()
    broker.store.delete_topic(A)
    send_lite(broker, "a", b"anew")
    for is_lost in (False, True):
        killed(broker)
        if is_lost:
            (tmp_path / "derived.json").unlink()
        broker = opened(tmp_path)
        assert listed(broker, A) == [b"anew"]
        assert listed(broker, B) == expected(B)
        # The messages themselves stay with their parent.
        assert sum(broker.store.bounds(PARENT, index).end for index in range(2)) == 31
    broker.store.close()


@pytest.mark.parametrize("checkpoint", [False, True])
def test_groups_go_on_where_they_were(tmp_path: Path, checkpoint: bool) -> None:
    broker = filled(tmp_path)
    subscribe(broker, "a")
    ack_lite(broker, *pop_lite(broker, count=5))
    pop_lite(broker, count=2)
    for file in (broker.engine.take_progress(), broker.engine.take_orders()):
        assert file is not None
        broker.store.configs.save(file.name, file.content)
    if checkpoint:
        broker.store.checkpoint()
    killed(broker)
    broker = opened(tmp_path)
    assert broker.store.report.clamped_progress == ()
    subscribe(broker, "a")
    # What is out is still out, and then comes again, before what follows.
    assert pop_lite(broker) == []
    broker.now_ms += 60_001
    assert bodies(pop_lite(broker)) == expected(A)[5:]
    broker.store.close()


def make_foreign(root: Path) -> None:
    """Leave what RocketMQ leaves of a store of its own."""
    for name in ("durable.mark", "log.seals", "derived.json"):
        (root / name).unlink()
    (root / "lock").write_bytes(b"lock")
    path = root / "config" / "topics.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({"topicConfigTable": content["topicConfigTable"]}))


def test_those_of_rocketmq_are_taken_over(tmp_path: Path) -> None:
    filled(tmp_path).store.close()
    make_foreign(tmp_path)
    broker = opened(tmp_path)
    assert broker.store.report.adopted is not None
    assert broker.store.report.adopted.records == 30
    assert (listed(broker, A), listed(broker, B)) == (expected(A), expected(B))
    send_lite(broker, "a", b"next")
    killed(broker)
    broker = opened(tmp_path)
    assert listed(broker, A) == [*expected(A), b"next"]
    broker.store.close()


def test_one_that_rocketmq_let_expire_stays_away(tmp_path: Path) -> None:
    filled(tmp_path).store.close()
    make_foreign(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue" / A)
    broker = opened(tmp_path)
    assert broker.store.light_queues() == [B]
    send_lite(broker, "a", b"anew")
    killed(broker)
    (tmp_path / "derived.json").unlink()
    broker = opened(tmp_path)
    assert listed(broker, A) == [b"anew"]
    assert listed(broker, B) == expected(B)
    broker.store.close()


BOTH = ("consumerOffset.json", "lmqConsumerOffset.json")
"""RocketMQ reads the second one where it has lite topics, and the first one elsewhere."""


def progress_files(root: Path) -> list[dict[str, object]]:
    paths = [root / "config" / name for name in BOTH]
    return [json.loads(path.read_text())["offsetTable"] for path in paths if path.exists()]


def flush(broker: EngineUnderTest) -> None:
    file = broker.engine.take_progress()
    assert file is not None
    broker.store.configs.save(file.name, file.content)


def test_progress_is_kept_for_either_kind_of_rocketmq(tmp_path: Path) -> None:
    broker = filled(tmp_path)
    broker.ask(CommitProgress(GROUP, queue_of(PARENT), 3))
    flush(broker)
    assert progress_files(tmp_path) == [{f"{PARENT}@{GROUP}": {"0": 3}}]
    subscribe(broker, "a")
    ack_lite(broker, *pop_lite(broker, count=5))
    flush(broker)
    table = {f"{PARENT}@{GROUP}": {"0": 3}, f"{A}@{GROUP}": {"0": 5}}
    assert progress_files(tmp_path) == [table, table]
    broker.ask(DeleteTopic(PARENT))
    flush(broker)
    assert progress_files(tmp_path) == [{}, {}]
    broker.store.close()


@pytest.mark.parametrize(("stamp", "expected_offset"), [(1_700_000_000_000, 9), (0, 5)])
def test_progress_that_rocketmq_kept_counts_if_it_is_newer(
    tmp_path: Path, stamp: int, expected_offset: int
) -> None:
    broker = filled(tmp_path)
    bind(broker, "other")
    broker.ask(CommitProgress("other", queue_of(PARENT), 3))
    subscribe(broker, "a")
    ack_lite(broker, *pop_lite(broker, count=5))
    flush(broker)
    broker.store.close()
    path = tmp_path / "config" / BOTH[1]
    # As RocketMQ writes it: names of queues are numbers.
    path.write_text(
        f'{{"dataVersion":{{"counter":0,"stateVersion":0,"timestamp":{stamp}}},'
        f'"lmqOffsetTable":{{}},"offsetTable":{{"{A}@{GROUP}":{{0:9}}}}}}'
    )
    make_foreign(tmp_path)
    broker = opened(tmp_path)
    assert broker.engine.progress.get(GROUP, QueueId(A, "", 0)) == expected_offset
    assert broker.engine.progress.get("other", queue_of(PARENT)) == 3
    if stamp:
        assert progress_files(tmp_path)[0] == progress_files(tmp_path)[1]
    broker.store.close()


def test_an_inspection_compares_them_and_counts_messages_once(tmp_path: Path) -> None:
    broker = filled(tmp_path)
    broker.store.close()
    found = inspect(OsFiles(tmp_path))
    assert found.is_sound, (found.problems, found.damaged)
    assert (found.message_count, found.queue_count) == (30, 4)


def test_a_repair_gives_up_a_lost_message_in_both_of_its_queues(tmp_path: Path) -> None:
    broker = filled(tmp_path)
    (record,) = broker.store.read(A, 0, 5, count_max=1, bytes_max=1_000).parts
    position = int.from_bytes(record[28:36], "big")
    broker.store.close()
    path = tmp_path / "commitlog" / f"{position - position % 4_096:020d}"
    data = bytearray(path.read_bytes())
    data[position % 4_096 + 90] ^= 0xFF
    path.write_bytes(data)
    files = OsFiles(tmp_path)
    lock = files.lock(LOCK_NAME)
    carry_out(files, plan_repair(files, lock, keeps_unproven=False))
    lock.close()
    broker = opened(tmp_path)
    assert broker.store.read(A, 0, 5, count_max=1, bytes_max=1_000).lost == 1
    assert broker.store.bounds(A, 0) == Bounds(0, 15)
    subscribe(broker, "a")
    came = []
    while popped := pop_lite(broker):
        came += bodies(popped)
        ack_lite(broker, *popped)
    assert came == [*expected(A)[:5], *expected(A)[6:]]
    broker.store.close()


# --- crashes --------------------------------------------------------------------------------------


class History:
    """What was promised, and what was given up: by points of the disk's journal."""

    def __init__(self) -> None:
        self.files = CrashFiles()
        self.sent: dict[bytes, int] = {}
        self.acked: dict[bytes, int] = {}

    @property
    def point(self) -> int:
        return len(self.files.journal)


def crash_opened(files: CrashFiles) -> EngineUnderTest:
    return EngineUnderTest(files, flush="sync", commit_log_file_bytes=64 * 1024)


def play(seed: int) -> History:
    chance, history = random.Random(seed), History()
    broker = crash_opened(history.files)
    begin_lite(broker)
    subscribe(broker, "a", "b")
    out: list[Popped] = []
    for step in range(40):
        match chance.randrange(6):
            case 0 | 1:
                sent = [b"%d-%d" % (step, index) for index in range(chance.randrange(1, 4))]
                send_lite(broker, chance.choice("ab"), *sent, queue=chance.randrange(2))
                history.sent.update(dict.fromkeys(sent, history.point))
            case 2 | 3:
                out += pop_lite(broker, count=chance.randrange(1, 6), invisible_ms=4_000)
            case 4 if out:
                for one in [out.pop(0) for _ in range(min(3, len(out)))]:
                    history.acked.setdefault(one.body, history.point)
                    # One that comes late may name what was popped again since.
                    with contextlib.suppress(BrokerError):
                        broker.ask(ack_of(GROUP, queue_of_lite(one), one.handle.text()))
            case _:
                broker.now_ms += chance.choice((100, 1_000, 5_000))
                for file in (broker.engine.take_progress(), broker.engine.take_orders()):
                    if file is not None:
                        broker.store.configs.save(file.name, file.content)
                if chance.random() < 0.3:
                    broker.store.checkpoint()
    return history


def some_crashes(files: CrashFiles, chance: random.Random) -> Iterator[Crash]:
    points = set(chance.sample(range(len(files.journal)), min(20, len(files.journal))))
    disk = Disk(files.base)
    for point, operation in enumerate(files.journal):
        if point in points:
            share = chance.choice((0.0, 0.5, 1.0))
            kept = [change for change in disk.pending if chance.random() < share]
            yield Crash(point, disk.state_with(kept))
        disk.step(operation)


def drained(crash: Crash) -> list[bytes]:
    """Every message that comes from a broker started on what a crash left."""
    broker = crash_opened(CrashFiles.of(crash.state))
    if not broker.engine.topics.is_parent(PARENT) or not broker.engine.groups.lite(GROUP).parent:
        return []
    subscribe(broker, "a", "b")
    broker.now_ms += 60_000
    found = []
    while popped := pop_lite(broker):
        found += bodies(popped)
        ack_lite(broker, *popped)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_no_crash_loses_a_lite_message(seed: int) -> None:
    history = play(seed)
    for crash in some_crashes(history.files, random.Random(seed)):
        promised = {body for body, point in history.sent.items() if point <= crash.point}
        acked = {body for body, point in history.acked.items() if point <= crash.point}
        came = drained(crash)
        lost = promised - acked - set(came)
        assert not lost, f"point {crash.point} of {len(history.files.journal)}: {lost}"
        assert len(came) == len(set(came))


def test_a_message_of_a_topic_without_lite_topics_is_in_none(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    broker.ask(CreateTopic(TopicConfig("plain", 1, 1)))
    text = encode_properties({"__LITE_TOPIC": "a"})
    broker.ask(SendMessage("plain", queue_of("plain"), broker.now_ms, b"x", text))
    assert broker.store.light_queues() == []
    broker.store.close()


def test_the_broker_deletes_by_itself_what_nobody_uses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Stored by a clock that stands years back.
    broker = filled(tmp_path)
    config = TopicConfig(PARENT, 2, 2, attributes={"lite.topic.expiration": "60"})
    broker.ask(CreateTopic(config))

    async def served() -> list[str]:
        shell = EngineShell(broker.engine, broker.store, broker.config)
        await shell.start()
        try:
            properties = encode_properties({"__LITE_TOPIC": "b"})
            await shell.ask(SendMessage("p", queue_of(PARENT), 1, b"new", properties), PEER)
            await shell._expire_lite_topics()
            return broker.store.light_queues()
        finally:
            await shell.stop_serving()
            await shell.close()

    with caplog.at_level(logging.INFO):
        assert asyncio.run(served()) == [B]
    assert "expired: 1 lite topic" in [record.getMessage() for record in caplog.records]
