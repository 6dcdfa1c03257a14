"""A batch member: when queues may be read, when they are given up, which offsets are stored."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rocketmq_client.consumer.batch_member import BatchMember
from rocketmq_client.consumer.common.io_thread import now_ms
from rocketmq_client.consumer.common.settings import ConsumeFrom, ConsumerSettings
from rocketmq_client.consumer.group_consumer import ConsumerState
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.requests.offsets import CommitOffset
from support.group_fakes import FakeInstance

FIRST, SECOND = QueueId("T", "a", 0), QueueId("T", "a", 1)
RETRY = QueueId("%RETRY%g", "a", 0)


class Member:
    """A member on a fake instance: two queues of `T`, no retry queue."""

    def __init__(
        self,
        known: Mapping[QueueId, int] | None = None,
        stored: Mapping[QueueId, int] | None = None,
        consume_from: ConsumeFrom = ConsumeFrom.FIRST,
    ) -> None:
        self.instance = FakeInstance()
        self.io = self.instance.fake_io
        self.io.committed.update(stored or {})
        settings = ConsumerSettings("g", {"T": Subscription()}, consume_from=consume_from)
        self.member = BatchMember(ConnectionSettings(name_servers=("h:1",)), settings, known or {})
        self.member._subscribe_to({"T": Subscription()})
        self.member._attach(self.instance.as_instance())
        self.member._instance, self.member._state = (
            self.instance.as_instance(),
            ConsumerState.RUNNING,
        )

    def balance(self, *members: str) -> None:
        self.instance.members = members
        self.member.rebalance()

    def housekeep(self) -> None:
        """Run all periodic work."""
        self.member._persist_due_ms = self.member._lock_due_ms = 0
        self.member.housekeep(now_ms())


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_client.consumer.membership.owned_queues._CONSUME_WAIT_SECONDS", 0)


def test_a_member_subscribes_to_its_groups_retry_topic() -> None:
    member = BatchMember(ConnectionSettings(name_servers=("h:1",)), ConsumerSettings("g"), {})
    assert tuple(member.topics()) == ("%RETRY%g",)


def test_a_taken_queue_stays_until_its_commit() -> None:
    one = Member(stored={FIRST: 5, SECOND: 6})
    one.balance("c1")
    assert one.member.take() == {FIRST: 5, SECOND: 6}
    assert one.member.take() == {}, "both are taken"
    one.balance("c1", "c2")
    assert set(one.member._queues.owned) == {FIRST, SECOND}
    one.member.commit({FIRST: 50, SECOND: 60})
    one.balance("c1", "c2")
    assert set(one.member._queues.owned) == {FIRST}
    assert one.io.committed == {FIRST: 5, SECOND: 60}
    one.housekeep()
    assert one.io.committed == {FIRST: 50, SECOND: 60}
    assert one.member.take() == {FIRST: 50}


def test_a_released_queue_keeps_its_offset() -> None:
    one = Member(stored={FIRST: 5})
    one.balance("c1")
    one.member.take()
    one.member.release([FIRST])
    assert set(one.member.taken) == {SECOND}
    assert one.member.take() == {FIRST: 5}


def test_a_member_waits_for_a_queue_that_another_still_reads() -> None:
    one = Member()
    one.io.locks[SECOND] = "c2"
    one.balance("c1")
    assert set(one.member.take()) == {FIRST}
    assert one.member._rebalance_due_ms, "the rebalance is repeated soon"
    del one.io.locks[SECOND]
    one.io.committed[SECOND] = 99
    one.balance("c1")
    assert one.member.take() == {SECOND: 99}


def test_a_member_continues_at_its_checkpoint_if_that_is_further() -> None:
    one = Member(known={FIRST: 9, SECOND: 9}, stored={FIRST: 3, SECOND: 12})
    one.balance("c1")
    assert one.member.take() == {FIRST: 9, SECOND: 12}


@pytest.mark.parametrize(
    ("consume_from", "offset"), [(ConsumeFrom.FIRST, 40), (ConsumeFrom.LAST, 70)]
)
def test_without_a_committed_offset_the_settings_decide_the_start(
    consume_from: ConsumeFrom, offset: int
) -> None:
    one = Member(known={SECOND: 55}, consume_from=consume_from)
    one.io.starts.update({FIRST: 40, SECOND: 40})
    one.io.ends.update({FIRST: 70, SECOND: 70})
    one.balance("c1")
    assert one.member.take() == {FIRST: offset, SECOND: 55}


def test_a_committed_offset_never_goes_backward() -> None:
    one = Member(stored={FIRST: 5, SECOND: 5})
    one.balance("c1")
    one.member.take()
    # A concurrent consumer takes no locks: it started with the queue at the rebalance.
    one.io.committed[SECOND] = 500
    one.member.commit({FIRST: 50, SECOND: 60})
    one.housekeep()
    one.balance("c1", "c2")
    assert one.io.committed == {FIRST: 50, SECOND: 500}
    assert {request.queue for request in one.io.asked_of(CommitOffset)} == {FIRST}


def test_a_lapsed_lock_makes_the_member_read_the_committed_offset() -> None:
    one = Member(stored={FIRST: 5, SECOND: 5})
    one.balance("c1")
    one.member.take()
    one.member.release([FIRST, SECOND])
    for owned in one.member._queues.owned.values():
        owned.process.lock_ms -= 31_000
    assert one.member.take() == {}
    one.io.committed[FIRST] = 77
    one.housekeep()
    assert one.member._queues.owned == {}
    one.balance("c1")
    assert one.member.take() == {FIRST: 77, SECOND: 5}


def test_a_taken_queue_whose_lock_was_lost_is_not_read_on() -> None:
    one = Member(stored={FIRST: 5, SECOND: 5})
    one.balance("c1")
    one.member.take()
    one.io.locks[FIRST] = "c2"
    one.housekeep()
    one.member.commit({FIRST: 50, SECOND: 60})
    assert one.member.take() == {SECOND: 60}
    one.housekeep()
    assert set(one.member._queues.owned) == {SECOND}


def test_a_reset_by_a_tool_also_goes_back() -> None:
    one = Member(stored={FIRST: 50, SECOND: 50})
    one.balance("c1")
    one.member.restart({FIRST: 10})
    assert one.io.committed[FIRST] == 10
    assert one.member.take()[FIRST] == 10


def test_a_reset_reaches_also_a_queue_that_is_being_read() -> None:
    one = Member(stored={FIRST: 50, SECOND: 50})
    one.balance("c1")
    one.member.take()
    one.member.restart({FIRST: 10})
    one.member.commit({FIRST: 90, SECOND: 90})
    assert one.member.take() == {FIRST: 10, SECOND: 90}


def test_flush_waits_until_offsets_are_stored() -> None:
    one = Member()
    one.balance("c1")
    one.member.take()
    assert one.member.flush(0)
    one.member.commit({FIRST: 5})
    assert one.instance.nudges == 1
    assert not one.member.flush(0)
    one.housekeep()
    assert one.member.flush(0)


def test_a_member_is_balanced_once_it_owns_its_share_or_has_none() -> None:
    one = Member()
    one.io.locks.update({FIRST: "c2", SECOND: "c2"})
    one.balance("c1")
    assert not one.member.wait_for_queues(0)
    one.io.locks.clear()
    one.balance("c1")
    assert one.member.wait_for_queues(0)
    spare = Member()
    spare.balance("b1", "b2", "c1")
    assert spare.member.wait_for_queues(0)
    assert spare.member.take() == {}
