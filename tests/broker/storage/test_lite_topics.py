"""Data directories with lite topics: all messages are served, and lite queues stay unchanged.

`golden/store-with-lite-topics.tar.gz` was written by a broker that served lite topics. In `clean`
topic `chats` has 12 messages in the lite topics `a` and `b`, and topic `orders` has 12 messages;
`killed` has 4 more in `chats`, the first one of lite topic `c` among them, and was not closed.
"""

from __future__ import annotations

import json
import logging
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from rocketmq_broker import Broker
from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.storage.disk.files import OsFiles
from rocketmq_broker.storage.recovery.recover import LOCK_NAME
from rocketmq_broker.storage.repair.inspection import inspect
from rocketmq_broker.storage.repair.repair import carry_out, plan_repair
from rocketmq_broker.storage.settings import FlushMode, LiteParent, StoreConfig
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.groups import PutGroup
from rocketmq_wire.requests.messages import SendMessage
from rocketmq_wire.requests.offsets import CommitOffset
from rocketmq_wire.requests.topics import CreateTopic, DeleteTopic
from support.engines import STORE_HOST, EngineUnderTest, queue_of

GOLDEN = Path(__file__).parents[2] / "golden" / "store-with-lite-topics.tar.gz"
SIZES = StoreConfig(
    FlushMode.SYNC,
    STORE_HOST,
    segment_size=4_096,
    queue_file_entries=10,
    checksum_range_size=512,
    index_slot_count=16,
    index_entry_count=20,
)
LITE_QUEUE = "%LMQ%$chats$"
READERS = f"{LITE_QUEUE}a@readers"
CLEAN = LiteParent("chats", lite_topic_count=2, message_count=12)
KILLED = LiteParent("chats", lite_topic_count=3, message_count=16)
PARENTS = {"clean": CLEAN, "killed": KILLED, "rocketmqs": CLEAN}


def unpacked(folder: Path, name: str) -> Path:
    """A copy of one of the stores; `rocketmqs` is the clean one as RocketMQ leaves it."""
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(folder, filter="data")
    root = folder / ("clean" if name == "rocketmqs" else name)
    if name == "rocketmqs":
        for own in ("durable.mark", "log.seals", "derived.json"):
            (root / own).unlink()
        (root / "lock").write_bytes(b"lock")
        path = root / "config" / "topics.json"
        content = json.loads(path.read_text())
        path.write_text(json.dumps({"topicConfigTable": content["topicConfigTable"]}))
    return root


@pytest.fixture(params=sorted(PARENTS))
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = unpacked(tmp_path, request.param)
    return root.rename(tmp_path / request.param)


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return unpacked(tmp_path, "clean")


def opened(root: Path) -> EngineUnderTest:
    return EngineUnderTest(OsFiles(root), store_config=SIZES, flush="sync")


def killed(broker: EngineUnderTest) -> None:
    """End the process."""
    broker.store._lock_file.close()


def lite_files(root: Path) -> Mapping[str, bytes]:
    paths = (root / "consumequeue").glob(f"{LITE_QUEUE}*/0/*")
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(paths)}


def table(root: Path, name: str, member: str = "offsetTable") -> Mapping[str, object]:
    return dict(json.loads((root / "config" / name).read_text())[member])


def served(broker: EngineUnderTest, topic: str) -> set[bytes]:
    return {each.body for index in (0, 1) for each in broker.messages(queue_of(topic, index))}


def bodies(kind: str, count: int) -> set[bytes]:
    return {f"{kind}-{number}".encode() for number in range(count)}


def send(broker: EngineUnderTest, topic: str, body: bytes, **properties: str) -> None:
    text = encode_properties(properties)
    broker.ask(SendMessage("producers", queue_of(topic), broker.now_ms, body, text))


def test_all_messages_are_served_and_lite_queues_stay_unchanged(root: Path) -> None:
    before, parent = lite_files(root), PARENTS[root.name]
    assert len(before) == parent.lite_topic_count
    for added in range(3):
        broker = opened(root)
        assert broker.store.report.lite_parents == (parent,)
        assert broker.store.report.clamped_offsets == ()
        assert served(broker, "chats") == bodies("lite", parent.message_count)
        assert served(broker, "orders") == bodies("order", 12 + added)
        assert broker.engine.tables.committed.get("buyers", queue_of("orders")) == 4 + added
        send(broker, "orders", b"order-%d" % (12 + added))
        broker.ask(CommitOffset("buyers", queue_of("orders"), 5 + added))
        broker.save_files()
        broker.store.checkpoint()
        if added == 1:
            killed(broker)
        else:
            broker.store.close()
        assert lite_files(root) == before


def test_committed_offsets_in_lite_topics_stay_on_the_disk(root: Path) -> None:
    orders = table(root, "consumerOrderInfo.json", "table")
    broker = opened(root)
    broker.ask(CommitOffset("buyers", queue_of("orders"), 6))
    broker.save_files()
    broker.store.close()
    expected = {"orders@buyers": {"0": 6}, READERS: {"0": 3}}
    # RocketMQ reads the second file where lite topics are enabled, and the first one elsewhere.
    assert table(root, "consumerOffset.json") == expected
    assert table(root, "lmqConsumerOffset.json") == expected
    assert table(root, "consumerOrderInfo.json", "table") == orders
    assert READERS in orders


def test_committed_offsets_of_a_rocketmq_with_lite_topics_are_adopted(tmp_path: Path) -> None:
    root = unpacked(tmp_path, "rocketmqs")
    # As RocketMQ writes it: names of queues are numbers.
    (root / "config" / "lmqConsumerOffset.json").write_text(
        '{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1700000000000},'
        f'"lmqOffsetTable":{{}},"offsetTable":{{"{READERS}":{{0:5}},"orders@buyers":{{0:6}}}}}}'
    )
    broker = opened(root)
    assert broker.engine.tables.committed.get("buyers", queue_of("orders")) == 6
    assert table(root, "consumerOffset.json")[READERS] == {"0": 5}
    broker.store.close()


@pytest.mark.parametrize("name", ["clean", "killed"])
@pytest.mark.parametrize("lost", ["derived.json", f"consumequeue/orders/0/{0:020d}"])
def test_a_rebuild_of_consume_queues_does_not_change_lite_queues(
    tmp_path: Path, name: str, lost: str
) -> None:
    root = unpacked(tmp_path, name)
    before = lite_files(root)
    (root / lost).unlink()
    broker = opened(root)
    assert served(broker, "orders") == bodies("order", 12)
    assert served(broker, "chats") == bodies("lite", PARENTS[name].message_count)
    broker.store.close()
    assert lite_files(root) == before


def test_an_inspection_and_a_repair_do_not_change_lite_queues(clean: Path) -> None:
    before = lite_files(clean)
    found = inspect(OsFiles(clean))
    assert found.is_sound, (found.problems, found.damaged)
    assert (found.message_count, found.queue_count) == (24, 4)
    path = clean / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[data.index(b"lite-3")] ^= 0xFF
    path.write_bytes(data)
    files = OsFiles(clean)
    lock = files.lock(LOCK_NAME)
    plan = plan_repair(files, lock)
    assert [(each.topic, each.queue_index) for each in plan.lost] == [("chats", 1)]
    carry_out(files, plan)
    lock.close()
    broker = opened(clean)
    assert broker.store.report.lite_parents == (CLEAN,)
    assert served(broker, "orders") == bodies("order", 12)
    broker.store.close()
    assert lite_files(clean) == before


def test_lite_queues_are_deleted_with_their_parent_topic(root: Path) -> None:
    broker = opened(root)
    broker.ask(DeleteTopic("chats"))
    broker.save_files()
    broker.store.close()
    assert lite_files(root) == {}
    assert table(root, "consumerOffset.json") == {"orders@buyers": {"0": 4}}
    assert table(root, "consumerOrderInfo.json", "table") == {}
    broker = opened(root)
    assert broker.store.report.lite_parents == ()
    broker.store.close()


def test_the_broker_logs_once_that_it_does_not_serve_lite_topics(
    clean: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), Broker(BrokerConfig(data_dir=str(clean))):
        pass
    lines = [each.getMessage() for each in caplog.records if "lite" in each.getMessage()]
    (line,) = lines
    assert line == (
        "lite topics are not supported: topic chats has 2 lite topics "
        "(12 messages, served as messages of chats). Their queue files are kept"
    )


def refusal_of(broker: EngineUnderTest, topic: str, **properties: str) -> str:
    with pytest.raises(BrokerError) as caught:
        send(broker, topic, b"refused", **properties)
    assert caught.value.code == 13
    return caught.value.remark


def test_lite_messages_are_refused_by_name(clean: Path) -> None:
    broker = opened(clean)
    expected = "topic chats has message.type=LITE: lite topics are not supported"
    assert refusal_of(broker, "chats") == expected
    assert refusal_of(broker, "chats", __LITE_TOPIC="a") == expected
    expected = "the message is of lite topic 'a': lite topics are not supported"
    assert refusal_of(broker, "orders", __LITE_TOPIC="a") == expected
    # A consumer of the parent topic may send a message to its group's retry topic.
    send(broker, "%RETRY%buyers", b"again", __LITE_TOPIC="a")
    broker.store.close()


def test_a_message_is_listed_in_no_queue_but_its_own(clean: Path) -> None:
    before = lite_files(clean)
    broker = opened(clean)
    forged = {"INNER_MULTI_DISPATCH": f"{LITE_QUEUE}a", "INNER_MULTI_QUEUE_OFFSET": "6"}
    send(broker, "orders", b"forged", **forged)
    (message,) = broker.messages(queue_of("orders"), start=6)
    assert message.properties.keys().isdisjoint(forged)
    broker.store.close()
    assert lite_files(clean) == before


def test_nothing_new_is_made_for_lite_topics(clean: Path) -> None:
    broker = opened(clean)
    lite = {"message.type": "LITE"}
    for topic in ("new", "orders"):
        with pytest.raises(
            BrokerError, match=r"cannot have message\.type=LITE: lite topics are not"
        ):
            broker.ask(CreateTopic(TopicConfig(topic, 2, 2, attributes=lite)))
    bound = {"groupName": "buyers", "attributes": {"+lite.bind.topic": "chats"}}
    with pytest.raises(BrokerError, match=r"lite\.bind\.topic is set: lite topics are not"):
        broker.ask(PutGroup(bound))
    # Other settings of existing topics and groups may be changed.
    broker.ask(CreateTopic(TopicConfig("chats", 4, 4, attributes=lite)))
    broker.ask(PutGroup({"groupName": "readers", "attributes": {"lite.bind.topic": "chats"}}))
    broker.store.close()
