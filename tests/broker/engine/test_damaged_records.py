"""Records whose bytes changed: they are logged, other messages do not wait, none becomes valid.

A record that is stored again gets a new checksum. So the broker compares the old one first; else
clients would take a changed body for the one that was sent.
"""

from __future__ import annotations

from typing import Any

import pytest

from rocketmq_broker.engine.engine import Engine
from rocketmq_broker.storage.disk.files import MemoryFiles
from rocketmq_broker.storage.errors import DamagedStoreError
from rocketmq_broker.storage.settings import FlushMode, StoreConfig
from rocketmq_wire.errors import BrokerError, CorruptRecordError
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.records.pop_checkpoints import REVIVE_TOPIC_PREFIX
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.groups import Heartbeat
from rocketmq_wire.requests.messages import SendBack, SendMessage
from rocketmq_wire.requests.topics import CreateTopic
from rocketmq_wire.requests.transactions import END_TOPIC, HALF_TOPIC, EndTransaction, Resolution
from support.engines import STORE_HOST, EngineUnderTest, queue_of
from support.pops import GROUP, TOPIC, Popped, pop, turn

SMALL_RANGES = StoreConfig(
    FlushMode.SYNC, STORE_HOST, segment_size=1 << 20, checksum_range_size=200, verified_size=300
)


def opened(files: MemoryFiles, config: StoreConfig | None = None) -> EngineUnderTest:
    broker = EngineUnderTest(files, flush="sync", store_config=config)
    broker.ask(CreateTopic(TopicConfig(TOPIC, 1, 1)))
    return broker


def restarted(broker: EngineUnderTest, config: StoreConfig | None = None) -> EngineUnderTest:
    assert isinstance(broker.files, MemoryFiles)
    broker.save_files()
    broker.store.close()
    again = opened(broker.files, config)
    again.now_ms = broker.now_ms
    return again


def position_of(broker: EngineUnderTest, content: bytes, nth: int = 0) -> int:
    """Log position of the last byte of the `nth` occurrence of some content."""
    at, data = -1, broker.files.open("commitlog/" + "0" * 20).pread(1 << 20, 0)
    for _ in range(nth + 1):
        at = data.index(content, at + 1)
    return at + len(content) - 1


def flip(broker: EngineUnderTest, position: int) -> None:
    """Change a byte of the log, or change it back."""
    file = broker.files.open("commitlog/" + "0" * 20)
    file.pwrite(bytes([file.pread(1, position)[0] ^ 1]), position)


def store_later(broker: EngineUnderTest) -> None:
    """Store more messages: a start compares only the newest log, and refuses damage in it."""
    for _ in range(4):
        broker.store_messages(queue_of("later"), b"z" * 300)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


# --- pops ---------------------------------------------------------------------------------------


def in_flight(count: int) -> EngineUnderTest:
    """In-flight messages, each of its own pop, whose checkpoints are stored."""
    broker = opened(MemoryFiles(), SMALL_RANGES)
    for number in range(count):
        broker.store_messages(queue_of(TOPIC), b"%d" % number)
        assert len(pop(broker, 1, invisible_ms=60_000)) == 1
    turn(broker, after_ms=4_000)
    store_later(broker)
    return broker


def came(broker: EngineUnderTest) -> list[int]:
    turn(broker, after_ms=120_000)
    return sorted(int(one.body) for one in pop(broker))


def test_a_damaged_checkpoint_of_a_pop_delays_no_other(caplog) -> None:
    broker = in_flight(3)
    flip(broker, position_of(broker, b'"so":1'))
    assert came(restarted(broker, SMALL_RANGES)) == [0, 2]
    (line,) = errors(caplog)
    assert REVIVE_TOPIC_PREFIX in line
    assert "passed over" in line
    assert "checksum is" in line


def test_a_damaged_range_of_the_revive_topic_is_skipped_and_logged_once(
    caplog, monkeypatch
) -> None:
    broker = restarted(in_flight(24), SMALL_RANGES)
    revive_topic = REVIVE_TOPIC_PREFIX + broker.config.cluster_name
    real, failed = broker.store.read, []

    def read(topic: str, queue_index: int, start: int, **more: Any) -> object:
        if topic == revive_topic and queue_index == 3 and start < 2:
            failed.append(start)
            raise DamagedStoreError("00000", 7, "it changed", 1, 2)
        return real(topic, queue_index, start, **more)

    monkeypatch.setattr(broker.store, "read", read)
    broker.engine = Engine(broker.config, broker.store, broker.identity)
    assert failed == [0, 1]
    assert len(came(broker)) == 22
    (line,) = errors(caplog)
    assert "rmq fsck" in line


def test_a_damaged_message_of_a_pop_waits_alone(caplog) -> None:
    broker = opened(MemoryFiles())
    broker.store_messages(queue_of(TOPIC), *(body * 50 for body in (b"a", b"b", b"c")))
    assert len(pop(broker, 3, invisible_ms=10_000)) == 3
    position = position_of(broker, b"b" * 50)
    flip(broker, position)
    turn(broker, after_ms=20_000)
    assert sorted(one.body[:1] for one in pop(broker)) == [b"a", b"c"]
    assert any("cannot be revived" in line and "checksum is" in line for line in errors(caplog))
    flip(broker, position)
    turn(broker, after_ms=60_000)
    assert b"b" * 50 in [one.body for one in pop(broker)]


def hide(broker: EngineUnderTest, monkeypatch, *queues: tuple[str, int]) -> None:
    """Make reads of some queues fail as reads of a damaged range of the log do."""
    real = broker.store.read

    def read(topic: str, queue_index: int, start: int, **more: Any) -> object:
        if (topic, queue_index) in queues:
            raise DamagedStoreError("00000", 7, "it changed", 1, 2)
        return real(topic, queue_index, start, **more)

    monkeypatch.setattr(broker.store, "read", read)


@pytest.mark.parametrize("is_orderly", [False, True])
def test_an_unreadable_queue_delays_no_other(caplog, monkeypatch, is_orderly: bool) -> None:
    broker = opened(MemoryFiles())
    broker.ask(CreateTopic(TopicConfig(TOPIC, 4, 4)))
    for index in range(4):
        broker.store_messages(queue_of(TOPIC, index), b"%d" % index)
    hide(broker, monkeypatch, (TOPIC, 1))
    popped = pop(broker, is_orderly=is_orderly)
    assert sorted(one.body for one in popped) == [b"0", b"2", b"3"]
    for _ in range(3):
        with pytest.raises(DamagedStoreError):
            pop(broker, is_orderly=is_orderly)
    (line,) = errors(caplog)
    assert f"topic={TOPIC} queue=1" in line
    monkeypatch.undo()
    assert [one.body for one in pop(broker, is_orderly=is_orderly)] == [b"1"]


def test_an_unreadable_retry_message_delays_no_other() -> None:
    broker = opened(MemoryFiles())
    broker.store_messages(queue_of(TOPIC), b"first")
    assert len(pop(broker, invisible_ms=10_000)) == 1
    turn(broker, after_ms=20_000)
    broker.store_messages(queue_of(TOPIC), b"second")
    # The magic number of the record that was stored again.
    flip(broker, position_of(broker, b"first", 1) - len(b"first") - 83)
    came = [one.body for _ in range(6) for one in popped_or_none(broker)]
    assert came == [b"second"]


def popped_or_none(broker: EngineUnderTest) -> list[Popped]:
    try:
        return pop(broker)
    except CorruptRecordError:
        return []


def test_a_damaged_retry_keeps_the_checksum_that_it_was_stored_with() -> None:
    broker = opened(MemoryFiles())
    broker.store_messages(queue_of(TOPIC), b"a" * 50)
    assert len(pop(broker, 1, invisible_ms=10_000)) == 1
    turn(broker, after_ms=20_000)
    flip(broker, position_of(broker, b"a" * 50, nth=1))
    with pytest.raises(CorruptRecordError, match="checksum"):
        pop(broker)


def test_a_damaged_message_is_not_taken_back() -> None:
    broker = opened(MemoryFiles())
    broker.store_messages(queue_of(TOPIC), b"a" * 50)
    (message,) = pop(broker)
    flip(broker, position_of(broker, b"a" * 50))
    back = SendBack(GROUP, message.message.physical_offset, 0, topic=TOPIC)
    with pytest.raises(BrokerError, match=r"damaged, see `rmq fsck`"):
        broker.ask(back)


# --- transactions -------------------------------------------------------------------------------


def send_half_messages(broker: EngineUnderTest, *names: bytes) -> None:
    broker.ask(Heartbeat("c@1", ("p",)))
    for name in names:
        texts = {"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": name.decode()}
        request = SendMessage(
            "p", queue_of(TOPIC), broker.now_ms, name * 50, encode_properties(texts), 0, 0x4
        )
        broker.ask(request)


def end(broker: EngineUnderTest, number: int, how: Resolution = Resolution.COMMIT) -> None:
    half = broker.messages(queue_of(HALF_TOPIC))[number]
    broker.ask(EndTransaction("p", number, half.physical_offset, how, topic=TOPIC))


def asked(broker: EngineUnderTest) -> list[str]:
    broker.engine.transactions.take_checks(broker.now_ms)
    broker.now_ms += 61_000
    return sorted(
        check.request.transaction_id
        for check in broker.engine.transactions.take_checks(broker.now_ms)[0]
    )


def test_a_damaged_half_message_is_neither_committed_nor_sent_to_its_producer(caplog) -> None:
    broker = opened(MemoryFiles())
    send_half_messages(broker, b"a", b"b")
    half = broker.messages(queue_of(HALF_TOPIC))[0]
    position = position_of(broker, b"a" * 50)
    flip(broker, position)
    request = EndTransaction("p", 0, half.physical_offset, Resolution.COMMIT, topic=TOPIC)
    with pytest.raises(BrokerError, match=r"damaged, see `rmq fsck`"):
        broker.ask(request)
    assert broker.messages(queue_of(TOPIC)) == []
    assert asked(broker) == ["b"]
    (line,) = errors(caplog)
    assert "half message a" in line
    assert "checksum is" in line
    flip(broker, position)
    broker.ask(request)
    assert [message.body for message in broker.messages(queue_of(TOPIC))] == [b"a" * 50]


def test_a_damaged_half_message_can_be_rolled_back() -> None:
    broker = opened(MemoryFiles())
    send_half_messages(broker, b"a")
    half = broker.messages(queue_of(HALF_TOPIC))[0]
    flip(broker, position_of(broker, b"a" * 50))
    how = Resolution.ROLLBACK
    broker.ask(EndTransaction("p", 0, half.physical_offset, how, topic=TOPIC))
    assert broker.engine.transactions.pending_count == 0


def test_a_damaged_end_ends_no_other_half_message(caplog) -> None:
    broker = opened(MemoryFiles(), SMALL_RANGES)
    send_half_messages(broker, b"a", b"b", b"c", b"d")
    end(broker, 2, Resolution.ROLLBACK)
    store_later(broker)
    # It names offset 3 now.
    flip(broker, position_of(broker, b"\0\0\0\x022,") - 1)
    broker = restarted(broker, SMALL_RANGES)
    send_half_messages(broker)
    # The broker asks about the half message of the unreadable end again, and about all others.
    assert asked(broker) == ["a", "b", "c", "d"]
    (line,) = errors(caplog)
    assert END_TOPIC in line
    assert "passed over" in line
