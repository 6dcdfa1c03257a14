"""The broker's part of consumption: delays, second attempts, dead letters, queue locks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_broker.engine.core.outcomes import AfterSync
from rocketmq_broker.engine.groups.clients import QueueLocks
from rocketmq_broker.engine.messages.delays import DELAYS_FILE, level_of
from rocketmq_broker.engine.messages.retries import retry_target
from rocketmq_broker.storage.disk.files import MemoryFiles
from rocketmq_broker.storage.queues.consume_queue import DELAYS_MS, SCHEDULE_TOPIC
from rocketmq_wire.errors import BrokerError, GroupNotFoundError
from rocketmq_wire.model import ConsumerInfo as Consumer
from rocketmq_wire.model import QueueId, Subscription, TopicConfig
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.groups import Heartbeat, LockQueues, QueuesReply, UnlockQueues
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullStatus,
    SendBack,
    SendBatch,
    SendMessage,
)
from rocketmq_wire.requests.topics import CreateTopic, DeleteTopic
from support.engines import NOW_MS, EngineUnderTest, queue_of

ORDERS = queue_of("orders", 1)
RETRY = queue_of("%RETRY%g")
DEAD = queue_of("%DLQ%g")


@pytest.fixture
def broker() -> EngineUnderTest:
    broker = EngineUnderTest()
    broker.ask(CreateTopic(TopicConfig("orders")))
    info = Consumer("g", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")
    broker.ask(Heartbeat("c@1", (), (info,)))
    return broker


def send(broker: EngineUnderTest, body: bytes = b"x", **properties: str) -> None:
    broker.ask(SendMessage("p", ORDERS, broker.now_ms, body, encode_properties(properties), flag=7))


# --- delays ---------------------------------------------------------------------------------


def test_there_are_eighteen_levels() -> None:
    seconds = [delay_ms // 1_000 for delay_ms in DELAYS_MS]
    minutes = [60 * minute for minute in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)]
    assert seconds == [1, 5, 10, 30, *minutes, 3_600, 7_200]


@pytest.mark.parametrize(
    ("text", "level"),
    [("1", 1), ("18", 18), ("19", 18), ("0", 0), ("-1", 0), ("x", 0), ("", 0), ("9" * 30, 0)],
)
def test_a_level_is_clamped_as_rocketmq_does(text: str, level: int) -> None:
    assert level_of({"DELAY": text}) == level


def test_a_delayed_message_is_delivered_when_it_is_due_and_not_before(
    broker: EngineUnderTest,
) -> None:
    send(broker, b"late", DELAY="2", TAGS="TagA")
    broker.advance(4_999)
    assert broker.ask(PullMessages("g", ORDERS, 0, 9)).status is PullStatus.NO_NEW_MESSAGE
    broker.advance(1)
    (message,) = broker.messages(ORDERS)
    assert (message.body, message.flag, message.queue_index) == (b"late", 7, 1)
    assert message.properties["TAGS"] == "TagA"
    assert message.properties["DELAY"] == "2"
    assert "REAL_TOPIC" not in message.properties
    assert message.born_ms == NOW_MS


def test_a_delivered_message_passes_a_filter_by_its_tag(broker: EngineUnderTest) -> None:
    send(broker, DELAY="1", TAGS="TagA")
    broker.advance(1_000)
    wanted = PullMessages("g", ORDERS, 0, 9, subscription=Subscription("TagA"))
    assert broker.ask(wanted).status is PullStatus.FOUND


def test_delayed_messages_lie_in_the_schedule_topic(broker: EngineUnderTest) -> None:
    send(broker, DELAY="3")
    assert broker.store.bounds(SCHEDULE_TOPIC, 2).end == 1
    assert broker.engine.delays.waiting() == {3: 1}
    broker.advance(10_000)
    assert broker.engine.delays.waiting() == {}


def test_a_delayed_message_is_delivered_once(broker: EngineUnderTest) -> None:
    send(broker, DELAY="1")
    for _ in range(3):
        broker.advance(1_000)
    assert len(broker.messages(ORDERS)) == 1


def test_levels_do_not_wait_for_each_other(broker: EngineUnderTest) -> None:
    send(broker, b"five", DELAY="2")
    send(broker, b"one", DELAY="1")
    broker.advance(1_000)
    assert broker.bodies(ORDERS) == [b"one"]
    broker.advance(4_000)
    assert broker.bodies(ORDERS) == [b"one", b"five"]


def restarted(broker: EngineUnderTest, *, is_saved: bool) -> EngineUnderTest:
    if is_saved:
        broker.save_files()
    broker.store.close()
    fresh = EngineUnderTest(broker.files)
    fresh.now_ms = broker.now_ms
    return fresh


def test_delayed_messages_survive_a_restart() -> None:
    broker = EngineUnderTest(MemoryFiles(), flush="sync")
    broker.ask(CreateTopic(TopicConfig("orders")))
    send(broker, b"first", DELAY="1")
    send(broker, b"second", DELAY="2")
    broker.advance(1_000)
    broker = restarted(broker, is_saved=True)
    broker.advance(4_000)
    assert broker.bodies(ORDERS) == [b"first", b"second"]


def test_unsaved_delay_offsets_repeat_deliveries_and_lose_none() -> None:
    broker = EngineUnderTest(MemoryFiles(), flush="sync")
    broker.ask(CreateTopic(TopicConfig("orders")))
    send(broker, b"x", DELAY="1")
    broker.advance(1_000)
    broker = restarted(broker, is_saved=False)
    broker.advance(0)
    assert broker.bodies(ORDERS) == [b"x", b"x"]


def test_a_delivery_counts_only_once_it_is_durable() -> None:
    broker = EngineUnderTest(MemoryFiles(), flush="sync")
    broker.ask(CreateTopic(TopicConfig("orders")))
    send(broker, DELAY="1")
    assert broker.take_changes(DELAYS_FILE) is None
    broker.now_ms += 1_000
    assert broker.engine.deliver_delayed(broker.now_ms)
    assert broker.take_changes(DELAYS_FILE) is None, "the delivered message is not on the disk yet"
    broker.store.sync()
    content = broker.take_changes(DELAYS_FILE)
    assert content is not None
    assert content["offsetTable"]["1"] == 1
    assert broker.take_changes(DELAYS_FILE) is None


def test_offsets_beyond_a_shortened_log_are_taken_back() -> None:
    files = MemoryFiles()
    broker = EngineUnderTest(files, flush="sync")
    broker.store.configs.save("delayOffset.json", {"offsetTable": {"1": 50}})
    broker.store.close()
    broker = EngineUnderTest(files)
    broker.ask(CreateTopic(TopicConfig("orders")))
    send(broker, b"new", DELAY="1")
    broker.advance(1_000)
    assert broker.bodies(ORDERS) == [b"new"]


def test_the_file_is_rocketmqs() -> None:
    broker = EngineUnderTest()
    broker.ask(CreateTopic(TopicConfig("orders")))
    send(broker, DELAY="18")
    broker.advance(7_200_000)
    content = broker.take_changes("delayOffset.json")
    assert json.loads(json.dumps(content))["offsetTable"]["18"] == 1


def test_a_message_for_a_topic_that_was_deleted_is_dropped(
    broker: EngineUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    send(broker, DELAY="1")
    broker.ask(DeleteTopic("orders"))
    broker.advance(1_000)
    assert "a delayed message is dropped" in caplog.text
    assert broker.engine.delays.waiting() == {}


def test_a_batch_of_delayed_messages_is_refused(broker: EngineUnderTest) -> None:
    properties = encode_properties({"DELAY": "1"})
    with pytest.raises(BrokerError, match="delayed messages cannot be batched"):
        broker.ask(SendBatch("p", ORDERS, NOW_MS, b"entries", properties))


# --- second attempts ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attempts", "level", "target"),
    [
        (0, 0, ("%RETRY%g", 3)),
        (13, 0, ("%RETRY%g", 16)),
        (15, 0, ("%RETRY%g", 18)),
        (16, 0, ("%DLQ%g", 0)),
        (0, 7, ("%RETRY%g", 7)),
        (0, 99, ("%RETRY%g", 18)),
        (0, -1, ("%DLQ%g", 0)),
    ],
)
def test_attempts_and_level_decide(attempts: int, level: int, target: tuple[str, int]) -> None:
    assert retry_target("g", attempts=attempts, attempts_max=16, level=level) == target


def test_a_message_sent_back_is_redelivered_through_the_retry_topic(
    broker: EngineUnderTest,
) -> None:
    send(broker, b"hard", TAGS="TagA", UNIQ_KEY="0A")
    (message,) = broker.messages(ORDERS)
    assert broker.ask(SendBack("g", message.physical_offset)) == Done()
    broker.advance(9_999)
    assert broker.store.bounds(RETRY.topic, 0).end == 0
    broker.advance(1)
    (again,) = broker.messages(RETRY)
    assert (again.body, again.reconsume_times) == (b"hard", 1)
    assert again.properties["RETRY_TOPIC"] == "orders"
    assert again.properties["ORIGIN_MESSAGE_ID"] == "0A"
    assert again.properties["TAGS"] == "TagA"


def test_sixteen_attempts_end_among_the_dead_letters(broker: EngineUnderTest) -> None:
    send(broker, b"poison", UNIQ_KEY="0A")
    (message,) = broker.messages(ORDERS)
    waits = []
    for attempt in range(16):
        broker.ask(SendBack("g", message.physical_offset))
        (level,) = broker.engine.delays.waiting()
        waits.append(DELAYS_MS[level - 1] // 1_000)
        broker.advance(DELAYS_MS[level - 1])
        (message,) = broker.messages(RETRY, attempt)
        assert message.reconsume_times == attempt + 1
    assert waits == [10, 30, *(60 * n for n in (*range(1, 11), 20, 30)), 3_600, 7_200]
    broker.ask(SendBack("g", message.physical_offset))
    (dead,) = broker.messages(DEAD)
    assert (dead.body, dead.properties["RETRY_TOPIC"]) == (b"poison", "orders")
    assert dead.properties["ORIGIN_MESSAGE_ID"] == "0A"
    assert broker.engine.delays.waiting() == {}


def test_the_consumers_own_limit_wins(broker: EngineUnderTest) -> None:
    send(broker)
    (message,) = broker.messages(ORDERS)
    broker.ask(SendBack("g", message.physical_offset, attempts_max=0))
    assert len(broker.messages(DEAD)) == 1


def test_an_unknown_group_or_offset_is_refused(broker: EngineUnderTest) -> None:
    send(broker)
    (message,) = broker.messages(ORDERS)
    with pytest.raises(GroupNotFoundError, match=r"^\[ROCKETMQ_GROUP\.NOT_FOUND\] "):
        broker.ask(SendBack("nobody", message.physical_offset))
    with pytest.raises(BrokerError, match="look message by offset failed") as refused:
        broker.ask(SendBack("g", message.physical_offset + 1))
    assert refused.value.code == 1


def test_a_send_back_is_answered_once_it_is_durable() -> None:
    broker = EngineUnderTest(MemoryFiles(), flush="sync")
    broker.ask(CreateTopic(TopicConfig("orders")))
    broker.ask(PullMessages("g", ORDERS, 0, 1))
    send(broker)
    (message,) = broker.messages(ORDERS)
    outcome = broker.outcome(SendBack("g", message.physical_offset))
    assert isinstance(outcome, AfterSync)
    assert outcome.position == broker.store.appended_end


# --- locks ----------------------------------------------------------------------------------

QUEUES = tuple(queue_of("orders", index) for index in range(4))


def test_a_lock_belongs_to_one_member_until_its_release(broker: EngineUnderTest) -> None:
    assert broker.ask(LockQueues("g", "c1", QUEUES[:2])) == QueuesReply(QUEUES[:2])
    assert broker.ask(LockQueues("g", "c2", QUEUES)) == QueuesReply(QUEUES[2:])
    assert broker.ask(LockQueues("other", "c2", QUEUES)) == QueuesReply(QUEUES)
    broker.ask(UnlockQueues("g", "c2", QUEUES[:1]))
    assert broker.ask(LockQueues("g", "c2", QUEUES[:1])) == QueuesReply(())
    broker.ask(UnlockQueues("g", "c1", QUEUES[:1]))
    assert broker.ask(LockQueues("g", "c2", QUEUES[:2])) == QueuesReply(QUEUES[:1])


def test_a_lock_that_is_not_renewed_for_a_minute_is_free() -> None:
    locks = QueueLocks()
    locks.lock(LockQueues("g", "c1", QUEUES[:1]), 0)
    assert locks.lock(LockQueues("g", "c1", QUEUES[:1]), 20_000) == QueuesReply(QUEUES[:1])
    assert locks.lock(LockQueues("g", "c2", QUEUES[:1]), 80_000) == QueuesReply(())
    assert locks.lock(LockQueues("g", "c2", QUEUES[:1]), 80_001) == QueuesReply(QUEUES[:1])
    assert locks.lock(LockQueues("g", "c1", QUEUES[:1]), 80_002) == QueuesReply(())


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("lock", "unlock", "expire")),
        st.sampled_from(("c1", "c2", "c3")),
        st.sets(st.sampled_from(QUEUES)),
        st.integers(0, 70_000),
    ),
    max_size=40,
)


@given(STEPS)
def test_no_queue_ever_has_two_owners(
    steps: list[tuple[str, str, set[QueueId], int]],
) -> None:
    locks, now_ms = QueueLocks(), 0
    owners: dict[QueueId, tuple[str, int]] = {}
    for action, client_id, queues, passed_ms in steps:
        now_ms += passed_ms
        if action == "unlock":
            locks.unlock(UnlockQueues("g", client_id, tuple(queues)))
            owners = {q: o for q, o in owners.items() if q not in queues or o[0] != client_id}
        elif action == "expire":
            locks.expire(now_ms)
        else:
            request = LockQueues("g", client_id, tuple(sorted(queues)))
            for queue in locks.lock(request, now_ms).queues:
                owner, renewed_ms = owners.get(queue, (client_id, now_ms))
                assert owner == client_id or now_ms - renewed_ms > 60_000
                owners[queue] = (client_id, now_ms)
