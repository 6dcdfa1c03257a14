"""Messages with a delivery time: never early, kept over kills, recalled while they wait."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_arrow.encode.record_block import block_from_message
from rocketmq_broker.engine.messages.store_again import store_own
from rocketmq_broker.engine.messages.timers import TIMER_TOPIC, due_of
from rocketmq_broker.storage.adoption.adopt import adopt_timers
from rocketmq_broker.storage.disk.config_files import TIMERS, Configs
from rocketmq_wire.errors import BrokerError, TopicNotFoundError
from rocketmq_wire.model import QueueId, TopicConfig
from rocketmq_wire.records.handles import RecallHandle
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullStatus,
    RecallMessage,
    RecallReply,
    SendMessage,
    SendReply,
)
from rocketmq_wire.requests.topics import CreateTopic, DeleteTopic
from support.crash_files import CrashFiles
from support.engines import BROKER, STORE_HOST, EngineUnderTest, queue_of

ORDERS = queue_of("orders", 1)
WAITING = QueueId(TIMER_TOPIC, "", 0)


@pytest.fixture
def broker() -> EngineUnderTest:
    return opened()


def opened(files: CrashFiles | None = None) -> EngineUnderTest:
    broker = EngineUnderTest(files, flush="memory" if files is None else "sync")
    broker.ask(CreateTopic(TopicConfig("orders")))
    return broker


def send(broker: EngineUnderTest, body: bytes = b"x", **properties: object) -> SendReply:
    texts = {name: str(value) for name, value in properties.items()}
    return broker.ask(SendMessage("p", ORDERS, broker.now_ms, body, encode_properties(texts), 7))


def send_in(broker: EngineUnderTest, ms: int, body: bytes = b"x") -> SendReply:
    return send(broker, body, TIMER_DELIVER_MS=broker.now_ms + ms, UNIQ_KEY=body.hex() or "0")


@pytest.mark.parametrize(("name", "value"), [("TIMER_DELAY_SEC", 60), ("TIMER_DELAY_MS", 60_000)])
def test_a_delay_counts_from_the_send(broker: EngineUnderTest, name: str, value: int) -> None:
    send(broker, b"late", TAGS="TagA", **{name: value})
    broker.advance(59_999)
    assert broker.ask(PullMessages("g", ORDERS, 0, 9)).status is PullStatus.NO_NEW_MESSAGE
    broker.advance(1)
    (message,) = broker.messages(ORDERS)
    assert (message.body, message.flag, message.queue_index) == (b"late", 7, 1)
    assert (message.properties["TAGS"], message.properties[name]) == ("TagA", str(value))
    assert "REAL_TOPIC" not in message.properties


def test_messages_come_in_the_order_of_their_times(broker: EngineUnderTest) -> None:
    for ms, body in ((300, b"c"), (100, b"a"), (200, b"b1"), (200, b"b2"), (100_000, b"d")):
        send_in(broker, ms, body)
    broker.advance(250)
    assert broker.bodies(ORDERS) == [b"a", b"b1", b"b2"]
    broker.advance(50)
    assert broker.bodies(ORDERS) == [b"a", b"b1", b"b2", b"c"]


def test_a_time_that_is_over_means_at_once(broker: EngineUnderTest) -> None:
    sent = send_in(broker, 0)
    assert sent.recall_handle is None
    assert broker.bodies(ORDERS) == [b"x"]


def test_it_waits_where_rocketmq_would_have_put_it(broker: EngineUnderTest) -> None:
    sent = send_in(broker, 5_000, b"a")
    (waiting,) = broker.messages(WAITING)
    assert waiting.properties["TIMER_OUT_MS"] == str(broker.now_ms + 5_000)
    assert (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == ("orders", "1")
    expected = RecallHandle("orders", BROKER, broker.now_ms + 5_000, "61")
    assert sent.recall_handle == expected.text()


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, None),
        ({"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "5", "TIMER_DELIVER_MS": "9999"}, 2_000),
        ({"TIMER_DELAY_MS": "5", "TIMER_DELIVER_MS": "9999"}, 1_005),
        ({"TIMER_DELIVER_MS": "9999"}, 9_999),
        ({"TIMER_DELIVER_MS": "1000"}, None),
        ({"TIMER_DELAY_MS": "-5"}, None),
        ({"TIMER_DELIVER_MS": "9999", "TIMER_OUT_MS": "9999"}, None),
    ],
)
def test_the_properties_say_when(properties: dict[str, str], expected: int | None) -> None:
    assert due_of(properties, now_ms=1_000, delay_ms_max=10_000) == expected


@pytest.mark.parametrize("value", ["soon", "", "1.5", "9" * 19, "11001"])
def test_a_time_that_is_none_or_too_far_is_refused(value: str) -> None:
    with pytest.raises(BrokerError, match="timer message illegal") as refused:
        due_of({"TIMER_DELIVER_MS": value}, now_ms=1_000, delay_ms_max=10_000)
    assert refused.value.code == 13


def test_three_days_are_the_limit_unless_set_otherwise(broker: EngineUnderTest) -> None:
    day_ms = 24 * 3_600_000
    send_in(broker, 3 * day_ms)
    with pytest.raises(BrokerError, match="max delay 259200000ms"):
        send_in(broker, 3 * day_ms + 1)


def test_a_level_wins_over_a_time(broker: EngineUnderTest) -> None:
    send(broker, DELAY=1, TIMER_DELIVER_MS="nonsense")
    broker.advance(1_000)
    assert broker.bodies(ORDERS) == [b"x"]


def test_a_message_whose_topic_is_gone_is_dropped(broker: EngineUnderTest) -> None:
    send_in(broker, 5)
    broker.ask(DeleteTopic("orders"))
    broker.advance(5)
    assert broker.engine.timers.waiting_count == 0
    assert broker.store.bounds("orders", 1).end == 0


# --- recall ---------------------------------------------------------------------------------


def recall(broker: EngineUnderTest, handle: str | None, topic: str = "orders") -> RecallReply:
    assert handle is not None
    return broker.ask(RecallMessage(topic, handle))


def test_a_recalled_message_never_comes(broker: EngineUnderTest) -> None:
    first, second = send_in(broker, 5, b"a"), send_in(broker, 5, b"b")
    assert recall(broker, first.recall_handle) == RecallReply("61")
    broker.advance(5)
    assert broker.bodies(ORDERS) == [b"b"]
    with pytest.raises(BrokerError, match="recall failed, timestamp invalid") as refused:
        recall(broker, second.recall_handle)
    assert refused.value.code == 604


def test_a_property_recalls_messages_of_its_own_topic_at_once_and_of_no_other() -> None:
    broker = opened(CrashFiles())
    broker.ask(CreateTopic(TopicConfig("secret")))
    send_in(broker, 5_000, b"a")
    send_in(broker, 5_000, b"b")
    due_ms = broker.now_ms + 5_000
    for key in ("secret+61", "61", "orders"):
        with pytest.raises(BrokerError, match="recall failed, topic not match"):
            send(broker, b"r", TIMER_DELIVER_MS=due_ms, TIMER_DEL_UNIQKEY=key)
    sent = send(broker, b"r", TIMER_DELIVER_MS=due_ms, TIMER_DEL_UNIQKEY="orders+61")
    assert sent.recall_handle is None
    for running in (killed(broker, saved=False), broker):
        assert running.engine.timers.waiting_count == 1
        running.advance(5_000)
        assert running.bodies(ORDERS) == [b"b"]


def test_a_start_takes_no_recall_of_another_topic() -> None:
    broker = opened(CrashFiles())
    send_in(broker, 5_000, b"a")
    due = str(broker.now_ms + 5_000)
    recall = {"TIMER_OUT_MS": due, "REAL_TOPIC": "mine", "TIMER_DEL_UNIQKEY": "orders+61"}
    store_own(b"0", broker.now_ms, broker.engine.tables, WAITING, recall)
    broker.store.sync()
    again = killed(broker, saved=False)
    again.advance(5_000)
    assert again.bodies(ORDERS) == [b"a"]


def test_a_recall_that_names_nothing_is_refused(broker: EngineUnderTest) -> None:
    sent = send_in(broker, 5_000, b"a")
    recall(broker, sent.recall_handle)
    due_ms = broker.now_ms + 5_000
    for handle, reason in (
        (sent.recall_handle, "recalled already"),
        ("nonsense", "recall handle is invalid"),
        (RecallHandle("other", BROKER, due_ms, "61").text(), "topic not match"),
        (RecallHandle("orders", "broker-z", due_ms, "61").text(), "not available"),
        (RecallHandle("orders", BROKER, due_ms, "62").text(), "does not wait"),
    ):
        with pytest.raises(BrokerError, match=reason):
            recall(broker, handle)
    with pytest.raises(TopicNotFoundError):
        recall(broker, sent.recall_handle, "unknown")


def test_a_handle_of_rocketmq_is_one_millisecond_off(broker: EngineUnderTest) -> None:
    send_in(broker, 5_000, b"a")
    handle = RecallHandle("orders", BROKER, broker.now_ms + 5_001, "61").text()
    assert recall(broker, handle) == RecallReply("61")


# --- restarts -------------------------------------------------------------------------------


def killed(broker: EngineUnderTest, *, saved: bool) -> EngineUnderTest:
    """The broker restarted after a kill."""
    assert isinstance(broker.files, CrashFiles)
    if saved:
        broker.save_files()
    again = EngineUnderTest(CrashFiles.of(broker.files.state()), flush="sync")
    again.now_ms = broker.now_ms
    return again


def test_a_kill_loses_nothing_that_waits_and_recalls_stay_recalled() -> None:
    broker = opened(CrashFiles())
    sent = [send_in(broker, 1_000 * n, str(n).encode()) for n in (5, 3, 1, 4, 2)]
    recall(broker, sent[1].recall_handle)
    broker.advance(2_000)
    assert broker.bodies(ORDERS) == [b"1", b"2"]
    again = killed(broker, saved=True)
    assert again.engine.timers.waiting_count == 2
    recall(again, sent[3].recall_handle)
    again = killed(again, saved=True)
    again.advance(10_000)
    assert again.bodies(ORDERS) == [b"1", b"2", b"5"]


def test_without_the_file_deliveries_are_repeated_and_none_is_lost() -> None:
    broker = opened(CrashFiles())
    for n in (1, 3):
        send_in(broker, 1_000 * n, str(n).encode())
    broker.advance(1_000)
    again = killed(broker, saved=False)
    again.advance(2_000)
    assert again.bodies(ORDERS) == [b"1", b"1", b"3"]


def test_the_file_covers_only_durable_deliveries() -> None:
    broker = opened(CrashFiles())
    send_in(broker, 10)
    broker.now_ms += 10
    assert broker.engine.deliver_delayed(broker.now_ms)
    assert broker.take_changes(TIMERS) is None
    broker.store.sync()
    assert broker.take_changes(TIMERS) is not None


def test_a_clock_that_steps_back_delays_and_loses_nothing() -> None:
    broker = opened(CrashFiles())
    send_in(broker, 10_000, b"a")
    broker.advance(10_000)
    broker.now_ms -= 8_000
    send_in(broker, 1_000, b"b")
    again = killed(broker, saved=True)
    assert again.engine.timers.waiting_count == 1
    again.advance(8_001)
    assert again.bodies(ORDERS) == [b"a", b"b"]


def test_a_body_is_not_mistaken_for_properties() -> None:
    broker = opened(CrashFiles())
    send_in(broker, 5_000, b"TIMER_DEL_UNIQKEY\x01orders+61\x02TIMER_OUT_MS\x017\x02")
    again = killed(broker, saved=True)
    again.advance(4_999)
    assert again.bodies(ORDERS) == []
    again.advance(1)
    assert len(again.bodies(ORDERS)) == 1


STEPS = st.lists(
    st.tuples(st.sampled_from(["send", "pass", "recall", "save", "kill"]), st.integers(0, 5_000)),
    max_size=30,
)


@given(STEPS)
@settings(max_examples=40)
def test_nothing_comes_early_nothing_is_lost_and_repeats_only_follow_kills(
    steps: list[tuple[str, int]],
) -> None:
    broker = opened(CrashFiles())
    due: dict[bytes, int] = {}
    handles: dict[bytes, str] = {}
    recalled: set[bytes] = set()
    kills = 0
    for number, (step, choice) in enumerate(steps):
        if step == "send":
            body = f"m{number}".encode()
            sent = send_in(broker, choice + 1, body)
            due[body] = broker.now_ms + choice + 1
            assert sent.recall_handle is not None
            handles[body] = sent.recall_handle
        elif step == "pass":
            broker.advance(choice)
        elif step == "recall":
            waiting = [b for b in due if due[b] > broker.now_ms and b not in recalled]
            if waiting:
                body = waiting[choice % len(waiting)]
                recall(broker, handles[body])
                recalled.add(body)
        else:
            kills += step == "kill"
            broker = killed(broker, saved=step == "save")
        came = broker.bodies(ORDERS)
        assert all(due[body] <= broker.now_ms and body not in recalled for body in came)
        assert max((came.count(body) for body in came), default=1) <= kills + 1
    broker.advance(10_000)
    assert set(broker.bodies(ORDERS)) == set(due) - recalled


# --- directories of RocketMQ ----------------------------------------------------------------


def test_messages_that_rocketmq_delivered_are_not_delivered_again() -> None:
    broker = opened(CrashFiles())
    for ms, body in ((1_000, b"delivered"), (2_000, b"due"), (3_000, b"rolled"), (4_000, b"late")):
        send_in(broker, ms, body)
    assert isinstance(broker.files, CrashFiles)
    # RocketMQ stores messages again that its wheel has no room for, and counts how often.
    again = {"TIMER_OUT_MS": str(broker.now_ms + 3_000), "TIMER_ROLL_TIMES": "1"}
    named = {**again, "REAL_TOPIC": "orders", "REAL_QID": "1", "UNIQ_KEY": b"rolled".hex()}
    block = block_from_message(
        topic=TIMER_TOPIC,
        queue_index=0,
        body=b"rolled",
        properties=encode_properties(named),
        flag=0,
        sys_flag=0,
        born_ms=broker.now_ms,
        born_host=STORE_HOST,
        store_host=STORE_HOST,
    )
    broker.store.append(TIMER_TOPIC, 0, block, broker.now_ms)
    broker.store.sync()
    state = CrashFiles.of(broker.files.state())
    check = struct.pack(">7q", broker.now_ms + 2_000, 0, 0, 0, 0, 0, 0).ljust(4_096, b"\0")
    state.open("config/timercheck", create=True).pwrite(check, 0)
    adopt_timers(state, Configs(state))
    adopted = EngineUnderTest(state, flush="sync")
    adopted.now_ms = broker.now_ms
    adopted.advance(10_000)
    assert adopted.bodies(ORDERS) == [b"due", b"rolled", b"late"]
