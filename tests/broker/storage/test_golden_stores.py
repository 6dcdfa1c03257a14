"""Data directories that an earlier version wrote: opened, served whole, written the same way.

`clean` and `killed` hold the requests of `fill`; `killed` has some more, and was not closed.
`clean.json` and `killed.json` list the messages and key index as that version read them.
`half-repaired` is `clean` with a damaged record, in the middle of a repair: its plan is stored.
"""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from rocketmq_broker.storage.disk.files import OsFiles
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.recovery.recover import LOCK_NAME
from rocketmq_broker.storage.repair.inspection import inspect
from rocketmq_broker.storage.repair.repair import carry_out, plan_repair
from rocketmq_broker.storage.settings import FlushMode, StoreConfig
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.records.message_id import parse_offset_message_id
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.groups import Heartbeat, PutGroup
from rocketmq_wire.requests.messages import SendMessage, SendReply
from rocketmq_wire.requests.offsets import CommitOffset
from rocketmq_wire.requests.topics import CreateTopic, DeleteTopic
from rocketmq_wire.requests.transactions import EndTransaction, Resolution
from support.engines import NOW_MS, STORE_HOST, EngineUnderTest, queue_of

GOLDEN = Path(__file__).parents[2] / "golden" / "stores-of-all-kinds.tar.gz"
SIZES = StoreConfig(
    FlushMode.SYNC,
    STORE_HOST,
    segment_size=4_096,
    queue_file_entries=10,
    checksum_range_size=512,
    index_slot_count=16,
    index_entry_count=20,
)
COMMITTED = {
    ("buyers", "orders", 0): 1,
    ("buyers", "orders", 1): 2,
    ("buyers", "orders", 2): 3,
    ("buyers", "orders", 3): 4,
    ("auditors", "bills", 1): 3,
}
HOUR_MS = 3_600_000


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def opened(root: Path, now_ms: int = NOW_MS) -> EngineUnderTest:
    broker = EngineUnderTest(OsFiles(root), store_config=SIZES, flush="sync")
    broker.now_ms = now_ms
    broker.ask(Heartbeat("c@1", ("producers",)))
    return broker


def send(
    broker: EngineUnderTest,
    topic: str,
    index: int,
    body: bytes,
    *,
    sys_flag: int = 0,
    **properties: str,
) -> SendReply:
    text = encode_properties(properties)
    queue = queue_of(topic, index)
    return broker.ask(SendMessage("producers", queue, broker.now_ms, body, text, 7, sys_flag))


def send_half(broker: EngineUnderTest, body: bytes) -> SendReply:
    names = {"TRAN_MSG": "true", "PGROUP": "producers", "UNIQ_KEY": body.hex()}
    return send(broker, "orders", 1, body, sys_flag=0x4, **names)


def end(broker: EngineUnderTest, sent: SendReply, resolution: Resolution) -> None:
    _, position = parse_offset_message_id(sent.message_id)
    broker.ask(EndTransaction("producers", sent.start, position, resolution, sent.message_id))


def advance(broker: EngineUnderTest, ms: int) -> None:
    broker.now_ms += ms
    while broker.engine.deliver_delayed(broker.now_ms):
        pass
    broker.make_visible()


def fill(broker: EngineUnderTest) -> None:
    """The requests that the earlier version was asked."""
    for topic, count in (("orders", 4), ("bills", 2), ("gone", 1)):
        broker.ask(CreateTopic(TopicConfig(topic, count, count)))
    broker.ask(PutGroup({"groupName": "buyers", "retryMaxTimes": 3}))
    broker.ask(PutGroup({"groupName": "auditors"}))
    for number in range(6):
        for index in range(4):
            body, keys = b"order-%d-%d" % (index, number), f"key-{index}-{number} shared"
            send(broker, "orders", index, body, TAGS="AB"[number % 2], KEYS=keys)
        send(broker, "bills", number % 2, b"bill-%d" % number)
        send(broker, "gone", 0, b"dead-%d" % number)
        broker.now_ms += 10
    broker.ask(DeleteTopic("gone"))
    broker.ask(CreateTopic(TopicConfig("gone", 1, 1)))
    send(broker, "gone", 0, b"alive")
    for (group, topic, index), offset in COMMITTED.items():
        broker.ask(CommitOffset(group, queue_of(topic, index), offset))
    send(broker, "orders", 0, b"delayed-5s", DELAY="2")
    send(broker, "orders", 1, b"delayed-5s-too", DELAY="2")
    send(broker, "orders", 2, b"delayed-1h", DELAY="17")
    soon, later = str(broker.now_ms + 3_000), str(broker.now_ms + HOUR_MS)
    send(broker, "orders", 0, b"timed-3s", TIMER_DELIVER_MS=soon, UNIQ_KEY="01")
    send(broker, "orders", 3, b"timed-1h", TIMER_DELIVER_MS=later, UNIQ_KEY="02")
    end(broker, send_half(broker, b"committed"), Resolution.COMMIT)
    end(broker, send_half(broker, b"rolled-back"), Resolution.ROLLBACK)
    send_half(broker, b"pending")
    advance(broker, 6_000)
    while broker.store.index_step():
        pass
    broker.store.checkpoint()
    broker.save_files()


def served(broker: EngineUnderTest, queues: dict[str, Any]) -> dict[str, Any]:
    """Each queue's messages: offset, log position, store time, body and properties."""
    found = {}
    for name in queues:
        topic, _, index = name.rpartition("/")
        found[name] = [
            [
                message.queue_offset,
                message.physical_offset,
                message.store_ms,
                message.body.decode(),
                dict(message.properties),
            ]
            for message in broker.messages(queue_of(topic, int(index)))
        ]
    return found


def bodies(broker: EngineUnderTest, topic: str, index: int) -> list[bytes]:
    return [message.body for message in broker.messages(queue_of(topic, index))]


def contents(root: Path) -> dict[str, bytes]:
    paths = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("name", ["clean", "killed"])
@pytest.mark.parametrize("lost", ["", "derived.json", "consumequeue/orders/0", "index"])
def test_everything_is_served(golden: Path, name: str, lost: str) -> None:
    expected, root = json.loads((golden / f"{name}.json").read_text()), golden / name
    for path in [path for path in contents(root) if lost and path.startswith(lost)]:
        (root / path).unlink()
    broker = opened(root, expected["now_ms"])
    assert broker.store.report.was_clean is (name == "clean")
    assert broker.store.report.clamped_offsets == ()
    assert served(broker, expected["queues"]) == expected["queues"]
    for (group, topic, index), offset in COMMITTED.items():
        assert broker.engine.tables.committed.get(group, queue_of(topic, index)) == offset
    while broker.store.index_step():
        pass
    for key, positions in expected["keys"].items():
        assert broker.store.query_index("orders", key, 64, 0, 2**62) == positions
    while broker.store.verify_step():
        pass
    broker.store.close()
    found = inspect(OsFiles(root))
    assert found.is_sound, (found.problems, found.damaged)


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_waiting_messages_are_delivered(golden: Path, name: str) -> None:
    expected = json.loads((golden / f"{name}.json").read_text())
    broker = opened(golden / name, expected["now_ms"])
    (pending,) = broker.messages(queue_of("RMQ_SYS_TRANS_HALF_TOPIC"), start=2)
    ended = EndTransaction("producers", 2, pending.physical_offset, Resolution.COMMIT, "")
    broker.ask(ended)
    assert bodies(broker, "orders", 1)[-1] == b"pending"
    before = {index: bodies(broker, "orders", index) for index in range(4)}
    advance(broker, HOUR_MS + 60_000)
    assert bodies(broker, "orders", 2) == [*before[2], b"delayed-1h"]
    assert bodies(broker, "orders", 3) == [*before[3], b"timed-1h"]
    # Delivered before the store was closed: not a second time.
    assert bodies(broker, "orders", 0) == before[0]
    assert bodies(broker, "orders", 1) == before[1]
    assert bodies(broker, "bills", 0)[3:] == ([b"late-delayed"] if name == "killed" else [])
    broker.store.close()


def test_the_same_requests_write_the_same_bytes(golden: Path, tmp_path: Path) -> None:
    broker = opened(tmp_path / "again")
    fill(broker)
    broker.store.close()
    found, expected = contents(tmp_path / "again"), contents(golden / "clean")
    assert sorted(found) == sorted(expected)
    for name, content in expected.items():
        written = found[name]
        if name == "derived.json":
            # The golden one has no checksums.
            derived = json.loads(written.partition(b"\n")[0])
            for queues in derived["queues"].values():
                queues.update({index: numbers[:2] for index, numbers in queues.items()})
            written = json.dumps(derived, separators=(",", ":")).encode()
        elif name.startswith("config/"):
            written = re.sub(rb',\n\t"crc32": "[0-9a-f]{8}"\n}$', b"\n}", written)
        assert written == content, name


def test_the_same_damage_has_the_same_plan(golden: Path) -> None:
    path = golden / "clean" / "commitlog" / f"{0:020d}"
    path.write_bytes((golden / "half-repaired" / "commitlog" / f"{0:020d}").read_bytes())
    files = OsFiles(golden / "clean")
    lock = files.lock(LOCK_NAME)
    plan = plan_repair(files, lock)
    lock.close()
    assert plan.encode() == (golden / "half-repaired" / "repair.plan").read_bytes()


def test_a_repair_that_was_cut_short_is_finished(golden: Path) -> None:
    root = golden / "half-repaired"
    with pytest.raises(StorageError, match="a repair was begun and not finished"):
        opened(root)
    stored = (root / "repair.plan").read_bytes()
    files = OsFiles(root)
    lock = files.lock(LOCK_NAME)
    plan = plan_repair(files, lock)
    assert plan.encode() == stored
    assert [(each.topic, each.queue_index, each.start, each.end) for each in plan.lost] == [
        ("orders", 2, 1, 2)
    ]
    carry_out(files, plan)
    lock.close()
    report = json.loads((root / "quarantine" / "0001" / "report.json").read_text())
    assert report["lostMessages"] == 1
    expected = json.loads((golden / "clean.json").read_text())
    del expected["queues"]["orders/2"]
    broker = opened(root, expected["now_ms"])
    assert served(broker, expected["queues"]) == expected["queues"]
    assert broker.store.read("orders", 2, 1, count_max=9, bytes_max=9_999).lost == 1
    read = broker.messages(queue_of("orders", 2), start=2)
    assert [message.body for message in read] == [b"order-2-%d" % number for number in range(2, 6)]
    broker.store.close()
