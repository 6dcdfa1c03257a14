"""Owned queues: which offsets are stored and which locks returned at gains and losses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketmq_client.consumer.common.settings import ConsumeFrom, ConsumerSettings, FlowLimits
from rocketmq_client.consumer.membership.owned_queues import OwnedQueues
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue, QueuePuller, Subscribed
from rocketmq_wire.errors import BrokerError, DeadlineExceededError, RocketMQError, broker_error
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.groups import LockQueues, UnlockQueues
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus
from rocketmq_wire.requests.offsets import CommitOffset, GetMaxOffset, OffsetReply, SearchOffset
from support.group_fakes import FakeInstance, FakeIo
from support.received_messages import received
from support.records import lay_out, make_messages, sealed

FIRST, SECOND = QueueId("T", "a", 0), QueueId("T", "a", 1)
TOPICS = {"T": Subscription()}
STORED_MS = 1_700_000_000_000


class Member:
    """A member's owned queues on a fake instance."""

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
            on_illegal=lambda owned, offset: self.owned_queues.correct(owned, offset),
            subscription_of=lambda topic: Subscribed(TOPICS[topic], 1),
        )
        self.owned_queues = OwnedQueues(
            self.instance.as_instance(), settings, puller, is_orderly=is_orderly
        )
        self.is_balanced = self.owned_queues.rebalance(TOPICS)

    def consumed(self, queue: QueueId, offset: int) -> OwnedQueue:
        """Consume every message before the offset, and leave the one at it pending."""
        owned = self.owned_queues.owned[queue]
        owned.process.add([received(offset)], offset + 1)
        return owned

    def unlocked(self) -> set[QueueId]:
        return {q for request in self.io.asked_of(UnlockQueues) for q in request.queues}


@pytest.fixture
def member() -> Member:
    return Member()


def test_a_rebalance_divides_the_limits_of_a_topic() -> None:
    member = Member(limits=FlowLimits(topic_count_max=100))
    assert {one.control.limits.count_max for one in member.owned_queues.owned.values()} == {50}
    assert member.owned_queues.own_exactly([FIRST])
    assert member.owned_queues.owned[FIRST].control.limits.count_max == 100
    assert member.owned_queues.restart(FIRST, 0).control.limits.count_max == 100


class OldBroker(FakeIo):
    """A broker with ten messages per millisecond that answers a search with any of them."""

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


def test_a_start_by_time_skips_no_message_of_that_time() -> None:
    member = Member(
        io=OldBroker(),
        consume_from=ConsumeFrom.TIMESTAMP,
        consume_timestamp_ms=STORED_MS + 5,
    )
    assert [one.process.next_begin for one in member.owned_queues.owned.values()] == [50, 50]
    assert {pull.group for pull in member.io.asked_of(PullMessages)} == {"g"}


def test_a_queue_whose_time_search_fails_is_gained_later() -> None:
    io = OldBroker()
    away = DeadlineExceededError("a", "waited")
    io.fail = lambda request: away if isinstance(request, SearchOffset) else None
    member = Member(io=io, consume_from=ConsumeFrom.TIMESTAMP)
    assert (member.is_balanced, member.owned_queues.owned) == (False, {})
    io.fail = lambda _: None
    assert member.owned_queues.rebalance(TOPICS)


def failing_once(wire_fail: RocketMQError) -> object:
    left = [wire_fail]

    def fail(request: Request[Reply]) -> RocketMQError | None:
        return left.pop() if left and isinstance(request, CommitOffset) else None

    return fail


def test_shutdown_stores_offsets_also_while_a_listener_runs(member: Member) -> None:
    busy, idle = member.consumed(FIRST, 7), member.consumed(SECOND, 3)
    busy.consume_lock.acquire()
    member.owned_queues.lose_all()
    assert member.io.committed == {FIRST: 7, SECOND: 3}
    assert member.unlocked() == {SECOND}, "the lock of a queue that is consumed must expire"
    assert busy.process.is_dropped
    assert idle.process.is_dropped
    assert member.owned_queues.owned == {}


def test_shutdown_repeats_a_failed_commit(member: Member) -> None:
    member.consumed(FIRST, 7)
    member.io.fail = failing_once(DeadlineExceededError("a", "waited"))  # type: ignore[assignment]
    member.owned_queues.lose_all()
    assert member.io.committed[FIRST] == 7


def test_a_refused_commit_is_not_repeated(member: Member) -> None:
    member.io.fail = lambda request: (
        broker_error(26, "no such group") if isinstance(request, CommitOffset) else None
    )
    member.owned_queues.lose_all()
    # Only the first commit is sent: the other queue's would be refused as well.
    assert len(member.io.asked_of(CommitOffset)) == 1


def test_a_queue_stays_owned_while_its_listener_runs(
    member: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketmq_client.consumer.membership.owned_queues._CONSUME_WAIT_SECONDS", 0)
    busy = member.consumed(SECOND, 3)
    busy.consume_lock.acquire()
    member.instance.members = ("c1", "c2")
    assert not member.owned_queues.rebalance(TOPICS), "the rebalance has to be repeated"
    assert set(member.owned_queues.owned) == {FIRST, SECOND}
    assert member.unlocked() == set()
    busy.consume_lock.release()
    assert member.owned_queues.rebalance(TOPICS)
    assert set(member.owned_queues.owned) == {FIRST}
    assert (member.io.committed, member.unlocked()) == ({SECOND: 3}, {SECOND})


def test_a_lock_of_another_member_is_requested_later() -> None:
    member = Member()
    member.owned_queues.lose_all()

    def refuse(request: Request[Reply]) -> BrokerError | None:
        return broker_error(1, "not now") if isinstance(request, LockQueues) else None

    member.io.fail = refuse
    assert not member.owned_queues.rebalance(TOPICS)
    assert member.owned_queues.owned == {}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    clock = [1_000_000]
    for module in ("membership.owned_queues", "pulling.queue_puller"):
        monkeypatch.setattr(f"rocketmq_client.consumer.{module}.now_ms", lambda: clock[0])
    return clock


def at_an_illegal_offset(*, is_orderly: bool = False) -> tuple[Member, OwnedQueue]:
    """A member whose first queue continues at 42 instead of the committed offset."""
    member = Member(is_orderly=is_orderly)
    owned = member.owned_queues.owned[FIRST]
    owned.process.next_begin = 7_000
    member.owned_queues.persist()
    member.owned_queues.correct(owned, 42)
    return member, owned


def test_an_illegal_offset_is_corrected_at_once_and_its_queue_owned_after_10_s(
    clock: list[int],
) -> None:
    member, _ = at_an_illegal_offset()
    assert set(member.owned_queues.owned) == {SECOND}
    assert member.instance.nudges == 1
    member.owned_queues.store_corrections()
    assert member.io.committed[FIRST] == 42, "the next owner starts there"
    clock[0] += 9_999
    member.owned_queues.persist()
    assert not member.owned_queues.rebalance(TOPICS)
    assert (set(member.owned_queues.owned), member.instance.rebalances) == ({SECOND}, 0)
    clock[0] += 1
    member.owned_queues.persist()
    assert member.instance.rebalances == 1
    assert member.owned_queues.rebalance(TOPICS)
    assert member.owned_queues.owned[FIRST].process.next_begin == 42
    member.owned_queues.persist()
    assert member.io.committed[FIRST] == 42


@pytest.mark.parametrize("persists_first", [True, False])
def test_a_queue_is_not_owned_at_the_illegal_offset(
    clock: list[int], *, persists_first: bool
) -> None:
    member, _ = at_an_illegal_offset()
    clock[0] += 10_000
    for _ in range(2):
        if persists_first:
            member.owned_queues.persist()
        member.owned_queues.rebalance(TOPICS)
        if not persists_first:
            member.owned_queues.persist()
    assert member.owned_queues.owned[FIRST].process.next_begin == 42


def test_a_queue_is_not_owned_before_its_correction_is_stored(clock: list[int]) -> None:
    member, _ = at_an_illegal_offset()
    away = DeadlineExceededError("a", "waited")
    member.io.fail = lambda request: away if isinstance(request, CommitOffset) else None
    clock[0] += 10_000
    member.owned_queues.persist()
    assert not member.owned_queues.rebalance(TOPICS)
    member.io.fail = lambda _: None
    member.owned_queues.store_corrections()
    assert member.owned_queues.rebalance(TOPICS)
    assert member.owned_queues.owned[FIRST].process.next_begin == 42


def test_shutdown_stores_corrections(clock: list[int]) -> None:
    del clock
    member, _ = at_an_illegal_offset()
    member.owned_queues.lose_all()
    assert member.io.committed[FIRST] == 42


def test_a_reset_replaces_a_correction(clock: list[int]) -> None:
    member, _ = at_an_illegal_offset()
    member.owned_queues.restart_all({FIRST: 3})
    clock[0] += 10_000
    member.owned_queues.persist()
    assert member.owned_queues.rebalance(TOPICS)
    assert member.owned_queues.owned[FIRST].process.next_begin == 3


def test_a_corrected_queue_waits_for_its_orderly_listener(clock: list[int]) -> None:
    member, before = at_an_illegal_offset(is_orderly=True)
    assert before.consume_lock.acquire(blocking=False), "the listener's thread"
    clock[0] += 10_000
    member.owned_queues.persist()
    assert member.owned_queues.rebalance(TOPICS)
    again = member.owned_queues.owned[FIRST]
    assert again is not before
    assert not again.consume_lock.acquire(blocking=False)


def test_a_reset_queue_waits_for_its_orderly_listener(member: Member) -> None:
    busy = member.consumed(FIRST, 7)
    assert busy.consume_lock.acquire(blocking=False), "the listener's thread"
    again = member.owned_queues.restart(FIRST, 0)
    assert not again.consume_lock.acquire(blocking=False)
    busy.consume_lock.release()
    assert again.consume_lock.acquire(blocking=False)


def test_a_lost_pull_is_restarted(clock: list[int]) -> None:
    member = Member(is_orderly=False)
    member.consumed(FIRST, 7)
    stale = member.owned_queues.owned[FIRST]
    clock[0] += 120_001
    member.owned_queues.owned[SECOND].process.last_pull_ms = clock[0]
    assert member.owned_queues.drop_stale(clock[0])
    assert set(member.owned_queues.owned) == {SECOND}
    member.owned_queues.rebalance(TOPICS)
    assert member.owned_queues.owned[FIRST] is not stale
    assert member.owned_queues.owned[FIRST].process.next_begin == 7
