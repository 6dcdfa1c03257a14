"""The queues of a member: what is stored and unlocked when they are gained and lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketmq_client.consumer.common.flow_limits import FlowLimits
from rocketmq_client.consumer.common.settings import ConsumeFrom, ConsumerSettings
from rocketmq_client.consumer.membership.owned_queues import OwnedQueues
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue, QueuePuller
from rocketmq_wire.errors import BrokerError, DeadlineExceededError, RocketMQError, broker_error
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import LockQueues, UnlockQueues
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus
from rocketmq_wire.requests.offsets import CommitOffset, GetMaxOffset, OffsetReply, SearchOffset
from support.group_fakes import FakeInstance, FakeIo
from support.received import received
from support.records import lay_out, make_messages, sealed

FIRST, SECOND = QueueId("T", "a", 0), QueueId("T", "a", 1)
TOPICS = {"T": Subscription()}
STORED_MS = 1_700_000_000_000


class Member:
    """A share of queues whose surroundings the test plays."""

    def __init__(
        self, *, is_orderly: bool = True, io: FakeIo | None = None, **more: object
    ) -> None:
        self.instance = FakeInstance(io=io)
        self.io = self.instance.fake_io
        values = {"consume_from": ConsumeFrom.FIRST, **more}
        settings = ConsumerSettings("g", TOPICS, **values)  # type: ignore[arg-type]
        puller = QueuePuller(
            self.instance.io,
            settings,
            is_orderly=is_orderly,
            on_messages=lambda *_: None,
            on_illegal=lambda owned, offset: self.share.correct(owned, offset),
        )
        self.share = OwnedQueues(
            self.instance.as_instance(), settings, puller, is_orderly=is_orderly
        )
        self.is_balanced = self.share.rebalance(TOPICS)

    def consumed(self, queue: QueueId, offset: int) -> OwnedQueue:
        """Everything before the offset is consumed, the message at it is not."""
        owned = self.share.owned[queue]
        owned.process.add([received(offset)], offset + 1)
        return owned

    def unlocked(self) -> set[QueueId]:
        return {q for request in self.io.asked_of(UnlockQueues) for q in request.queues}


@pytest.fixture
def member() -> Member:
    return Member()


def test_limits_of_a_topic_are_divided_anew_when_queues_come_and_go() -> None:
    member = Member(limits=FlowLimits(topic_count_max=100))
    assert {one.control.limits.count_max for one in member.share.owned.values()} == {50}
    assert member.share.own_exactly([FIRST])
    assert member.share.owned[FIRST].control.limits.count_max == 100
    assert member.share.restart(FIRST, 0).control.limits.count_max == 100


class OldBroker(FakeIo):
    """Ten messages a millisecond; searched for a time it answers with any of that time."""

    def _answer(self, request: Request[Reply]) -> Reply | RocketMQError:
        if isinstance(request, GetMaxOffset):
            return OffsetReply(100)
        if isinstance(request, SearchOffset):
            return OffsetReply((request.timestamp_ms - STORED_MS) * 10 + 7)
        if isinstance(request, PullMessages):
            (message,) = make_messages(1, topic="T", start=request.start)
            stored_ms = STORED_MS + request.start // 10
            record = lay_out(sealed(replace(message, store_ms=stored_ms)))
            return PullReply(PullStatus.FOUND, request.start + 1, 0, 100, (record,))
        return super()._answer(request)


def test_where_a_time_is_found_nothing_of_that_time_is_skipped() -> None:
    member = Member(
        io=OldBroker(),
        consume_from=ConsumeFrom.TIMESTAMP,
        consume_timestamp_ms=STORED_MS + 5,
    )
    assert [one.process.next_begin for one in member.share.owned.values()] == [50, 50]
    assert {pull.group for pull in member.io.asked_of(PullMessages)} == {"g"}


def test_a_queue_whose_time_cannot_be_searched_for_is_begun_with_later() -> None:
    io = OldBroker()
    away = DeadlineExceededError("a", "waited")
    io.fail = lambda request: away if isinstance(request, SearchOffset) else None
    member = Member(io=io, consume_from=ConsumeFrom.TIMESTAMP)
    assert (member.is_balanced, member.share.owned) == (False, {})
    io.fail = lambda _: None
    assert member.share.rebalance(TOPICS)


def failing_once(wire_fail: RocketMQError) -> object:
    left = [wire_fail]

    def fail(request: Request[Reply]) -> RocketMQError | None:
        return left.pop() if left and isinstance(request, CommitOffset) else None

    return fail


def test_at_the_end_progress_is_stored_also_while_a_listener_is_at_work(member: Member) -> None:
    busy, idle = member.consumed(FIRST, 7), member.consumed(SECOND, 3)
    busy.consume_lock.acquire()
    member.share.lose_all()
    assert member.io.committed == {FIRST: 7, SECOND: 3}
    assert member.unlocked() == {SECOND}, "the lock of a queue that is consumed must expire"
    assert busy.process.is_dropped
    assert idle.process.is_dropped
    assert member.share.owned == {}


def test_at_the_end_storing_is_tried_again(member: Member) -> None:
    member.consumed(FIRST, 7)
    member.io.fail = failing_once(DeadlineExceededError("a", "waited"))  # type: ignore[assignment]
    member.share.lose_all()
    assert member.io.committed[FIRST] == 7


def test_what_a_broker_refuses_to_store_is_not_tried_again(member: Member) -> None:
    member.io.fail = lambda request: (
        broker_error(26, "no such group") if isinstance(request, CommitOffset) else None
    )
    member.share.lose_all()
    # The one that goes ahead: the other queue's would be refused as well.
    assert len(member.io.asked_of(CommitOffset)) == 1


def test_a_queue_that_a_listener_consumes_is_not_given_to_another(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_client.consumer.membership.owned_queues._CONSUME_WAIT_SECONDS", 0)
    busy = member.consumed(SECOND, 3)
    busy.consume_lock.acquire()
    member.instance.members = ("c1", "c2")
    assert not member.share.rebalance(TOPICS), "it has to be tried again"
    assert set(member.share.owned) == {FIRST, SECOND}
    assert member.unlocked() == set()
    busy.consume_lock.release()
    assert member.share.rebalance(TOPICS)
    assert set(member.share.owned) == {FIRST}
    assert (member.io.committed, member.unlocked()) == ({SECOND: 3}, {SECOND})


def test_a_queue_whose_lock_another_has_is_asked_for_again() -> None:
    member = Member()
    member.share.lose_all()

    def refuse(request: Request[Reply]) -> BrokerError | None:
        return broker_error(1, "not now") if isinstance(request, LockQueues) else None

    member.io.fail = refuse
    assert not member.share.rebalance(TOPICS)
    assert member.share.owned == {}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    clock = [1_000_000]
    for module in ("membership.owned_queues", "pulling.queue_puller"):
        monkeypatch.setattr(f"rocketmq_client.consumer.{module}.now_ms", lambda: clock[0])
    return clock


def at_an_illegal_offset(*, is_orderly: bool = False) -> tuple[Member, OwnedQueue]:
    """A member whose first queue goes on at 42 instead of at what is stored."""
    member = Member(is_orderly=is_orderly)
    owned = member.share.owned[FIRST]
    owned.process.next_begin = 7_000
    member.share.persist()
    member.share.correct(owned, 42)
    return member, owned


def test_an_illegal_offset_is_corrected_at_once_and_its_queue_had_again_10_s_later(
    clock: list[int],
) -> None:
    member, _ = at_an_illegal_offset()
    assert set(member.share.owned) == {SECOND}
    assert member.instance.nudges == 1
    member.share.store_corrections()
    assert member.io.committed[FIRST] == 42, "whoever has the queue next begins there"
    clock[0] += 9_999
    member.share.persist()
    assert not member.share.rebalance(TOPICS)
    assert (set(member.share.owned), member.instance.rebalances) == ({SECOND}, 0)
    clock[0] += 1
    member.share.persist()
    assert member.instance.rebalances == 1
    assert member.share.rebalance(TOPICS)
    assert member.share.owned[FIRST].process.next_begin == 42
    member.share.persist()
    assert member.io.committed[FIRST] == 42


@pytest.mark.parametrize("persists_first", [True, False])
def test_a_queue_never_comes_back_at_the_offset_that_was_illegal(
    clock: list[int], *, persists_first: bool
) -> None:
    member, _ = at_an_illegal_offset()
    clock[0] += 10_000
    for _ in range(2):
        if persists_first:
            member.share.persist()
        member.share.rebalance(TOPICS)
        if not persists_first:
            member.share.persist()
    assert member.share.owned[FIRST].process.next_begin == 42


def test_a_queue_does_not_come_back_before_its_correction_is_stored(clock: list[int]) -> None:
    member, _ = at_an_illegal_offset()
    away = DeadlineExceededError("a", "waited")
    member.io.fail = lambda request: away if isinstance(request, CommitOffset) else None
    clock[0] += 10_000
    member.share.persist()
    assert not member.share.rebalance(TOPICS)
    member.io.fail = lambda _: None
    member.share.store_corrections()
    assert member.share.rebalance(TOPICS)
    assert member.share.owned[FIRST].process.next_begin == 42


def test_at_the_end_corrections_are_stored(clock: list[int]) -> None:
    del clock
    member, _ = at_an_illegal_offset()
    member.share.lose_all()
    assert member.io.committed[FIRST] == 42


def test_a_reset_of_a_queue_that_is_corrected_is_the_last_word(clock: list[int]) -> None:
    member, _ = at_an_illegal_offset()
    member.share.restart_all({FIRST: 3})
    clock[0] += 10_000
    member.share.persist()
    assert member.share.rebalance(TOPICS)
    assert member.share.owned[FIRST].process.next_begin == 3


def test_an_orderly_listener_that_outlives_a_correction_is_waited_for(clock: list[int]) -> None:
    member, before = at_an_illegal_offset(is_orderly=True)
    assert before.consume_lock.acquire(blocking=False), "the listener's thread"
    clock[0] += 10_000
    member.share.persist()
    assert member.share.rebalance(TOPICS)
    again = member.share.owned[FIRST]
    assert again is not before
    assert not again.consume_lock.acquire(blocking=False)


def test_an_orderly_listener_that_outlives_a_reset_is_waited_for(member: Member) -> None:
    busy = member.consumed(FIRST, 7)
    assert busy.consume_lock.acquire(blocking=False), "the listener's thread"
    again = member.share.restart(FIRST, 0)
    assert not again.consume_lock.acquire(blocking=False)
    busy.consume_lock.release()
    assert again.consume_lock.acquire(blocking=False)


def test_a_pull_that_never_came_back_is_begun_anew(clock: list[int]) -> None:
    member = Member(is_orderly=False)
    member.consumed(FIRST, 7)
    stale = member.share.owned[FIRST]
    clock[0] += 120_001
    member.share.owned[SECOND].process.last_pull_ms = clock[0]
    assert member.share.drop_stale(clock[0])
    assert set(member.share.owned) == {SECOND}
    member.share.rebalance(TOPICS)
    assert member.share.owned[FIRST] is not stale
    assert member.share.owned[FIRST].process.next_begin == 7
