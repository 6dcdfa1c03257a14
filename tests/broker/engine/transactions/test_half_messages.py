"""Half messages in the engine: hidden until committed, ended once, checked, kept over kills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_broker.engine.core.outcomes import Peer
from rocketmq_broker.engine.engine import Engine
from rocketmq_broker.engine.transactions.half_messages import ClientCheck
from rocketmq_broker.engine.transactions.table import Ended, HalfMessage, TransactionTable
from rocketmq_broker.storage.disk.config_files import CONSUMER_OFFSETS
from rocketmq_wire.errors import BrokerError, NotAuthorizedError, broker_error
from rocketmq_wire.model import QueueId, TopicConfig
from rocketmq_wire.records.message_id import parse_offset_message_id
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.groups import Heartbeat, UnregisterClient
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullStatus,
    SendBatch,
    SendMessage,
    SendReply,
)
from rocketmq_wire.requests.permissions import Permission
from rocketmq_wire.requests.topics import CreateTopic
from rocketmq_wire.requests.transactions import (
    END_TOPIC,
    HALF_TOPIC,
    SYSTEM_GROUP,
    UNRESOLVED_TOPIC,
    EndTransaction,
    Resolution,
)
from support.crash_files import CrashFiles
from support.engines import EngineUnderTest, queue_of

ORDERS = queue_of("orders", 1)
COMMIT, ROLLBACK = Resolution.COMMIT, Resolution.ROLLBACK


@pytest.fixture
def broker() -> EngineUnderTest:
    return opened()


def opened(files: CrashFiles | None = None, flush: str = "memory") -> EngineUnderTest:
    broker = EngineUnderTest(files, flush=flush)
    broker.ask(CreateTopic(TopicConfig("orders")))
    broker.ask(Heartbeat("c@1", ("p",)))
    return broker


def send_half(broker: EngineUnderTest, body: bytes = b"x", **properties: str) -> SendReply:
    named = {"TRAN_MSG": "true", "PGROUP": "p", **properties}
    request = SendMessage("p", ORDERS, broker.now_ms, body, encode_properties(named), 7, 0x4)
    return broker.ask(request)


def end_of(sent: SendReply, resolution: Resolution = COMMIT) -> EndTransaction:
    _, position = parse_offset_message_id(sent.message_id)
    return EndTransaction("p", sent.start, position, resolution, sent.message_id)


class Signer:
    """An account that may do everything with one topic."""

    def __init__(self, access_key: str, topic: str) -> None:
        self.access_key = access_key
        self._topic = topic

    def may(self, permissions: Sequence[Permission]) -> bool:
        return all(one.name == self._topic for one in permissions)

    def require(self, permissions: Sequence[Permission]) -> None:
        if not self.may(permissions):
            raise broker_error(16, "no")


def test_a_check_goes_to_producers_that_may_publish_to_the_messages_topic(
    broker: EngineUnderTest,
) -> None:
    def beat(key: int, account: str, topic: str) -> None:
        peer = Peer(key, "10.0.0.7", 1, sender=Signer(account, topic))
        broker.engine.handle(Heartbeat("c@1", ("p",)), peer, broker.now_ms)
        leave = UnregisterClient("c@1", "p")
        stranger = Peer(9, "10.0.0.7", 1, sender=Signer("stranger", "mine"))
        broker.engine.handle(leave, stranger, broker.now_ms)

    broker.ask(UnregisterClient("c@1", "p"))
    send_half(broker)
    beat(7, "mallory", "mine")
    assert checks_after(broker, 60_000) == []
    beat(8, "alice", "orders")
    beat(7, "mallory", "mine")
    for _ in range(3):
        assert [check.peer_key for check in checks_after(broker, 60_000)] == [8]


def checks_after(broker: EngineUnderTest, ms: int) -> list[ClientCheck]:
    broker.now_ms += ms
    checks, _ = broker.engine.transactions.take_checks(broker.now_ms)
    broker.make_visible()
    return checks


def test_a_half_message_is_invisible_until_its_commit(broker: EngineUnderTest) -> None:
    sent = send_half(broker, b"later", TAGS="TagA", UNIQ_KEY="0A")
    assert (sent.queue_index, sent.start, sent.transaction_id) == (1, 0, "0A")
    assert broker.ask(PullMessages("g", ORDERS, 0, 9)).status is PullStatus.NO_NEW_MESSAGE
    assert broker.ask(end_of(sent)) == Done()
    (message,) = broker.messages(ORDERS)
    assert (message.body, message.flag, message.queue_index) == (b"later", 7, 1)
    assert message.properties["TAGS"] == "TagA"
    assert message.properties["TRAN_MSG"] == "true"
    assert "REAL_TOPIC" not in message.properties
    assert message.sys_flag & 0xC == 0x8
    _, position = parse_offset_message_id(sent.message_id)
    assert message.prepared_transaction_offset == position


def test_the_log_holds_the_same_records_as_rocketmqs(broker: EngineUnderTest) -> None:
    send_half(broker)
    broker.ask(end_of(send_half(broker, UNIQ_KEY="0A")))
    half = broker.messages(QueueId(HALF_TOPIC, "", 0))[1]
    assert half.sys_flag & 0xC == 0
    assert (half.properties["REAL_TOPIC"], half.properties["REAL_QID"]) == ("orders", "1")
    (end,) = broker.messages(QueueId(END_TOPIC, "", 0))
    assert (end.body, end.properties["TAGS"]) == (b"1,", "d")


def test_a_rolled_back_message_stays_invisible(broker: EngineUnderTest) -> None:
    sent = send_half(broker)
    broker.ask(end_of(sent, ROLLBACK))
    assert broker.bodies(ORDERS) == []
    assert broker.engine.transactions.pending_count == 0
    with pytest.raises(BrokerError, match="ended already: rollback"):
        broker.ask(end_of(sent, COMMIT))


def test_a_commit_that_is_repeated_makes_no_second_copy(broker: EngineUnderTest) -> None:
    sent = send_half(broker)
    for _ in range(3):
        assert broker.ask(end_of(sent)) == Done()
    assert broker.bodies(ORDERS) == [b"x"]


def test_an_unknown_state_changes_nothing(broker: EngineUnderTest) -> None:
    sent = send_half(broker)
    assert broker.ask(end_of(sent, Resolution.UNKNOWN)) == Done()
    assert broker.engine.transactions.pending_count == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"group": "other"}, "The producer group wrong"),
        ({"half_offset": 1}, "The transaction state table offset wrong"),
        ({"position": 1}, "Find prepared transaction message failed"),
    ],
)
def test_an_end_that_means_another_message_is_refused(
    broker: EngineUnderTest, change: dict[str, object], reason: str
) -> None:
    send_half(broker)
    wrong = replace(end_of(send_half(broker)), **change)  # type: ignore[arg-type]
    if "half_offset" in change:
        wrong = replace(wrong, half_offset=0)
    with pytest.raises(BrokerError, match=reason) as refused:
        broker.ask(wrong)
    assert refused.value.code == 1


def test_an_ordinary_messages_position_ends_nothing(broker: EngineUnderTest) -> None:
    sent = broker.ask(SendMessage("p", ORDERS, broker.now_ms, b"plain"))
    with pytest.raises(BrokerError, match="Find prepared transaction message failed"):
        broker.ask(end_of(sent))


def test_a_transaction_can_be_ended_by_its_id_alone(broker: EngineUnderTest) -> None:
    send_half(broker, b"a", UNIQ_KEY="0A")
    by_id = EndTransaction("p", -1, -1, COMMIT, transaction_id="0A")
    broker.ask(by_id)
    assert broker.bodies(ORDERS) == [b"a"]
    with pytest.raises(BrokerError, match=r"transaction\[0A\] is not pending"):
        broker.ask(by_id)


def test_an_end_after_its_immunity_must_come_from_a_check(broker: EngineUnderTest) -> None:
    sent = send_half(broker, CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    broker.now_ms += 60_001
    with pytest.raises(BrokerError, match="1 ms too late") as refused:
        broker.ask(end_of(sent))
    assert refused.value.code == 604
    broker.ask(replace(end_of(sent), is_from_check=True))
    assert broker.bodies(ORDERS) == [b"x"]


def test_an_immunity_is_measured_by_the_clock_of_the_client(broker: EngineUnderTest) -> None:
    # The wall clock stepped back by an hour, and the broker's continued.
    hour_ms = 3_600_000
    broker.engine = Engine(broker.config, broker.store, broker.identity, lambda: hour_ms)
    sent = send_half(broker, CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    broker.now_ms += hour_ms + 60_000
    broker.ask(end_of(sent))
    assert broker.bodies(ORDERS) == [b"x"]


def test_half_messages_in_batches_or_with_delays_are_refused(broker: EngineUnderTest) -> None:
    half = encode_properties({"TRAN_MSG": "true"})
    with pytest.raises(BrokerError, match="cannot be sent in batches"):
        broker.ask(SendBatch("p", ORDERS, broker.now_ms, b"entries", half))
    for name in ("DELAY", "TIMER_DELIVER_MS"):
        with pytest.raises(BrokerError, match="cannot be a delayed one"):
            send_half(broker, b"x", **{name: "3"})


def test_a_missing_producer_group_is_that_of_the_sender(broker: EngineUnderTest) -> None:
    properties = encode_properties({"TRAN_MSG": "true"})
    sent = broker.ask(SendMessage("p", ORDERS, broker.now_ms, b"x", properties, sys_flag=4))
    broker.ask(end_of(sent))
    assert broker.bodies(ORDERS) == [b"x"]


# --- checks ---------------------------------------------------------------------------------


def test_the_producer_is_asked_after_the_timeout_with_the_message_it_sent(
    broker: EngineUnderTest,
) -> None:
    sent = send_half(broker, b"body", UNIQ_KEY="0A")
    assert checks_after(broker, 5_999) == []
    (check,) = checks_after(broker, 1)
    request = check.request
    assert (request.half_offset, request.transaction_id, request.topic) == (0, "0A", "orders")
    assert request.offset_message_id == sent.message_id
    asked, _ = decode_record(request.record)
    assert (asked.topic, asked.queue_index, asked.body) == ("orders", 1, b"body")
    assert asked.properties["TRANSACTION_CHECK_TIMES"] == "1"
    broker.ask(
        EndTransaction("p", request.half_offset, request.position, COMMIT, transaction_id="0A")
    )
    assert broker.bodies(ORDERS) == [b"body"]
    assert checks_after(broker, 60_000) == []


def test_no_check_comes_before_the_messages_own_time(broker: EngineUnderTest) -> None:
    send_half(broker, CHECK_IMMUNITY_TIME_IN_SECONDS="100")
    assert checks_after(broker, 99_999) == []
    assert len(checks_after(broker, 1)) == 1


def test_after_fifteen_checks_the_message_goes_where_people_look(broker: EngineUnderTest) -> None:
    sent = send_half(broker, b"lost")
    counts = [len(checks_after(broker, 30_000)) for _ in range(16)]
    assert counts == [1] * 15 + [0]
    (lost,) = broker.messages(QueueId(UNRESOLVED_TOPIC, "", 0))
    assert (lost.body, lost.properties["REAL_TOPIC"]) == (b"lost", "orders")
    with pytest.raises(BrokerError, match="ended already: unresolved"):
        broker.ask(end_of(sent))
    assert broker.bodies(ORDERS) == []


def test_an_absent_producer_is_given_up_as_well(broker: EngineUnderTest) -> None:
    broker.engine.tables.clients.forget_peer(1)
    send_half(broker)
    assert [checks_after(broker, 30_000) for _ in range(16)] == [[]] * 16
    assert len(broker.messages(QueueId(UNRESOLVED_TOPIC, "", 0))) == 1


def test_sends_to_the_brokers_own_topics_are_refused(broker: EngineUnderTest) -> None:
    send_half(broker)
    checks_after(broker, 30_000 * 16)
    for _ in range(16):
        checks_after(broker, 30_000)
    assert broker.engine.tables.topics.get(UNRESOLVED_TOPIC) is not None
    with pytest.raises(NotAuthorizedError, match="sending message is forbidden"):
        broker.ask(SendMessage("p", QueueId(UNRESOLVED_TOPIC, "", 0), broker.now_ms, b"x"))


# --- restarts -------------------------------------------------------------------------------


def reopened(broker: EngineUnderTest, *, is_saved: bool = False) -> EngineUnderTest:
    """The broker restarted after a kill, with its files saved before if `is_saved`."""
    if is_saved:
        broker.save_files()
    assert isinstance(broker.files, CrashFiles)
    again = EngineUnderTest(CrashFiles.of(broker.files.state()), flush="sync")
    again.now_ms = broker.now_ms
    again.ask(Heartbeat("c@1", ("p",)))
    return again


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TRAN_PREPARED_QUEUE_OFFSET", "9" * 5_000),
        ("TRANSACTION_CHECK_TIMES", "9" * 5_000),
        ("TRANSACTION_CHECK_TIMES", "²"),
        ("CHECK_IMMUNITY_TIME_IN_SECONDS", "9" * 5_000),
    ],
)
def test_no_property_of_a_half_message_stops_a_start(name: str, value: str) -> None:
    broker = opened(CrashFiles(), flush="sync")
    send_half(broker, b"x", **{name: value})
    assert reopened(broker, is_saved=True).engine.transactions.pending_count == 1


def test_a_client_cannot_write_the_broker_s_notes_into_a_half_message(
    broker: EngineUnderTest,
) -> None:
    send_half(broker, TRAN_PREPARED_QUEUE_OFFSET="0", TRANSACTION_CHECK_TIMES="14")
    (half,) = broker.messages(QueueId(HALF_TOPIC, "", 0))
    assert not {"TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES"} & set(half.properties)


def test_a_half_message_that_cannot_be_sent_leaves_the_others_their_checks(
    broker: EngineUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    room = 32_767 - len(encode_properties({"TRAN_MSG": "true", "PGROUP": "p", "a": ""}))
    room -= len(encode_properties({"REAL_TOPIC": "orders", "REAL_QID": "1"})) + 3
    send_half(broker, a="b" * room)  # No room is left for the number of checks.
    sound = [send_half(broker, UNIQ_KEY=f"0{n}") for n in range(3)]
    asked = checks_after(broker, broker.config.transaction_timeout_ms + 1)
    assert {check.request.transaction_id for check in asked} == {"00", "01", "02"}
    assert len(sound) == 3
    assert "offset=0" in caplog.text


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_kill_keeps_pending_half_messages_and_no_ended_ones(is_saved: bool) -> None:
    broker = opened(CrashFiles(), "sync")
    half_messages = [send_half(broker, str(index).encode()) for index in range(6)]
    for index, resolution in ((0, COMMIT), (3, ROLLBACK), (1, COMMIT)):
        broker.ask(end_of(half_messages[index], resolution))
    again = reopened(broker, is_saved=is_saved)
    assert again.engine.transactions.pending_count == 3
    assert again.bodies(ORDERS) == [b"0", b"1"]
    again.ask(end_of(half_messages[0]))
    for index in (2, 4, 5):
        again.ask(end_of(half_messages[index]))
    assert again.bodies(ORDERS) == [b"0", b"1", b"2", b"4", b"5"]


def test_committed_offsets_are_those_of_rocketmqs_own_group(broker: EngineUnderTest) -> None:
    half_messages = [send_half(broker) for _ in range(4)]
    for index in (0, 1, 3):
        broker.ask(end_of(half_messages[index]))
    broker.take_changes(CONSUMER_OFFSETS)
    committed = broker.engine.tables.committed
    assert committed.get(SYSTEM_GROUP, QueueId(HALF_TOPIC, "", 0)) == 2
    assert committed.get(SYSTEM_GROUP, QueueId(END_TOPIC, "", 0)) == 2
    broker.ask(end_of(half_messages[2]))
    broker.take_changes(CONSUMER_OFFSETS)
    assert committed.get(SYSTEM_GROUP, QueueId(HALF_TOPIC, "", 0)) == 4
    assert committed.get(SYSTEM_GROUP, QueueId(END_TOPIC, "", 0)) == 4


def test_committed_offsets_never_pass_an_end_that_is_not_durable() -> None:
    broker = opened(CrashFiles(), "sync")
    sent = send_half(broker)
    broker.outcome(end_of(sent))
    broker.take_changes(CONSUMER_OFFSETS)
    assert broker.engine.tables.committed.get(SYSTEM_GROUP, QueueId(HALF_TOPIC, "", 0)) is None


def test_the_number_of_checks_survives() -> None:
    broker = opened(CrashFiles(), "sync")
    send_half(broker, b"lost")
    assert sum(len(checks_after(broker, 30_000)) for _ in range(10)) == 10
    again = reopened(broker, is_saved=True)
    assert checks_after(again, 29_000) == []
    assert checks_after(again, 29_000) == []
    counts = [len(checks_after(again, 30_000)) for _ in range(6)]
    assert counts == [1] * 5 + [0]
    assert len(again.messages(QueueId(UNRESOLVED_TOPIC, "", 0))) == 1


def test_a_message_whose_end_was_torn_off_the_log_is_not_committed_twice() -> None:
    broker = opened(CrashFiles(), "sync")
    sent = send_half(broker, b"once")
    other = send_half(broker, b"other")
    broker.outcome(end_of(sent))
    # The crash keeps only the first bytes of the last record.
    again = _cut_at(broker, broker.store.appended_end - 80)
    assert again.bodies(ORDERS) == [b"once"]
    assert again.engine.transactions.pending_count == 1
    again.ask(end_of(sent))
    again.ask(end_of(other))
    assert again.bodies(ORDERS) == [b"once", b"other"]


def _cut_at(broker: EngineUnderTest, position: int) -> EngineUnderTest:
    """The broker restarted after a crash that lost the log from a position on."""
    (log,) = broker.files.names("commitlog")
    file = broker.files.open(f"commitlog/{log}")
    file.pwrite(bytes(file.size() - position), position)
    return reopened(broker)


@given(
    st.lists(st.tuples(st.sampled_from(["send", "end", "durable"]), st.integers(0, 9)), max_size=60)
)
@settings(max_examples=100)
def test_a_restart_reads_from_the_first_half_that_is_not_durably_ended(
    steps: list[tuple[str, int]],
) -> None:
    table, end_offset, durable = TransactionTable(), 0, 0
    ends: dict[int, tuple[int, int]] = {}
    sent = 0
    for position, (step, choice) in enumerate(steps, 1):
        if step == "send":
            table.add(HalfMessage(sent, position, str(sent), 0))
            sent += 1
        elif step == "end":
            pending = table.pending()
            if pending:
                half = pending[choice % len(pending)]
                table.end(half, Ended.COMMIT)
                table.note_record(half.offset, end_offset=end_offset, end_position=position)
                ends[half.offset] = end_offset, position
                end_offset += 1
        else:
            durable = position
        open_half_messages = [n for n in range(sent) if n not in ends or ends[n][1] > durable]
        half_start = min(open_half_messages, default=sent)
        needed = [offset for n, (offset, _) in ends.items() if n >= half_start]
        found_half, found_end = table.restart_offsets(durable)
        assert found_half == half_start
        assert found_end <= min(needed, default=end_offset)
        assert table.pending_count == sent - len(ends)
