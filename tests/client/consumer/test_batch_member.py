"""A seat in a group: when queues may be read, when they go, and what is stored."""

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


class Seat:
    """A seat whose surroundings the test plays: two queues of `T`, no retry queue."""

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
        self.seat = BatchMember(ConnectionSettings(name_servers=("h:1",)), settings)
        self.seat._subscriptions = {"T": Subscription()}
        self.seat._attach(self.instance.as_instance(), known or {})
        self.seat._instance, self.seat._state = (
            self.instance.as_instance(),
            ConsumerState.RUNNING,
        )

    def balance(self, *members: str) -> None:
        self.instance.members = members
        self.seat.rebalance()

    def housekeep(self) -> None:
        """Everything is due."""
        self.seat._persist_due_ms = self.seat._lock_due_ms = 0
        self.seat.housekeep(now_ms())


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_client.consumer.membership.owned_queues._CONSUME_WAIT_SECONDS", 0)


def test_a_seat_subscribes_to_the_second_attempts_of_its_group() -> None:
    seat = BatchMember(ConnectionSettings(name_servers=("h:1",)), ConsumerSettings("g"))
    assert tuple(seat.topics()) == ("%RETRY%g",)


def test_what_is_taken_stays_until_it_is_settled_and_goes_with_its_progress() -> None:
    one = Seat(stored={FIRST: 5, SECOND: 6})
    one.balance("c1")
    assert one.seat.take() == {FIRST: 5, SECOND: 6}
    assert one.seat.take() == {}, "both are held"
    one.balance("c1", "c2")
    assert set(one.seat._queues.owned) == {FIRST, SECOND}
    one.seat.commit({FIRST: 50, SECOND: 60})
    one.balance("c1", "c2")
    assert set(one.seat._queues.owned) == {FIRST}
    assert one.io.committed == {FIRST: 5, SECOND: 60}
    one.housekeep()
    assert one.io.committed == {FIRST: 50, SECOND: 60}
    assert one.seat.take() == {FIRST: 50}


def test_of_what_is_released_nothing_was_read() -> None:
    one = Seat(stored={FIRST: 5})
    one.balance("c1")
    one.seat.take()
    one.seat.release([FIRST])
    assert set(one.seat.taken) == {SECOND}
    assert one.seat.take() == {FIRST: 5}


def test_a_queue_that_another_seat_still_reads_is_waited_for() -> None:
    one = Seat()
    one.io.locks[SECOND] = "c2"
    one.balance("c1")
    assert set(one.seat.take()) == {FIRST}
    assert one.seat._rebalance_due_ms, "it is asked for again soon"
    del one.io.locks[SECOND]
    one.io.committed[SECOND] = 99
    one.balance("c1")
    assert one.seat.take() == {SECOND: 99}


def test_what_its_own_checkpoint_knows_counts_beside_what_is_stored() -> None:
    one = Seat(known={FIRST: 9, SECOND: 9}, stored={FIRST: 3, SECOND: 12})
    one.balance("c1")
    assert one.seat.take() == {FIRST: 9, SECOND: 12}


@pytest.mark.parametrize(
    ("consume_from", "place"), [(ConsumeFrom.FIRST, 40), (ConsumeFrom.LAST, 70)]
)
def test_without_progress_a_queue_begins_where_the_settings_say(
    consume_from: ConsumeFrom, place: int
) -> None:
    one = Seat(known={SECOND: 55}, consume_from=consume_from)
    one.io.starts.update({FIRST: 40, SECOND: 40})
    one.io.ends.update({FIRST: 70, SECOND: 70})
    one.balance("c1")
    assert one.seat.take() == {FIRST: place, SECOND: 55}


def test_progress_never_goes_backward_for_somebody_else_may_be_further() -> None:
    one = Seat(stored={FIRST: 5, SECOND: 5})
    one.balance("c1")
    one.seat.take()
    # A concurrent consumer knows no locks: it began with the queue when it was shared anew.
    one.io.committed[SECOND] = 500
    one.seat.commit({FIRST: 50, SECOND: 60})
    one.housekeep()
    one.balance("c1", "c2")
    assert one.io.committed == {FIRST: 50, SECOND: 500}
    assert {request.queue for request in one.io.asked_of(CommitOffset)} == {FIRST}


def test_a_lock_that_lapsed_means_reading_progress_again() -> None:
    one = Seat(stored={FIRST: 5, SECOND: 5})
    one.balance("c1")
    one.seat.take()
    one.seat.release([FIRST, SECOND])
    for owned in one.seat._queues.owned.values():
        owned.process.lock_ms -= 31_000
    assert one.seat.take() == {}
    one.io.committed[FIRST] = 77
    one.housekeep()
    assert one.seat._queues.owned == {}
    one.balance("c1")
    assert one.seat.take() == {FIRST: 77, SECOND: 5}


def test_a_held_queue_whose_lock_was_lost_is_read_no_further() -> None:
    one = Seat(stored={FIRST: 5, SECOND: 5})
    one.balance("c1")
    one.seat.take()
    one.io.locks[FIRST] = "c2"
    one.housekeep()
    one.seat.commit({FIRST: 50, SECOND: 60})
    assert one.seat.take() == {SECOND: 60}
    one.housekeep()
    assert set(one.seat._queues.owned) == {SECOND}


def test_a_reset_by_a_tool_also_goes_back() -> None:
    one = Seat(stored={FIRST: 50, SECOND: 50})
    one.balance("c1")
    one.seat.restart({FIRST: 10})
    assert one.io.committed[FIRST] == 10
    assert one.seat.take()[FIRST] == 10


def test_a_reset_reaches_also_a_queue_that_is_being_read() -> None:
    one = Seat(stored={FIRST: 50, SECOND: 50})
    one.balance("c1")
    one.seat.take()
    one.seat.restart({FIRST: 10})
    one.seat.commit({FIRST: 90, SECOND: 90})
    assert one.seat.take() == {FIRST: 10, SECOND: 90}


def test_storing_is_waited_for_by_whoever_asks() -> None:
    one = Seat()
    one.balance("c1")
    one.seat.take()
    assert one.seat.flush(0)
    one.seat.commit({FIRST: 5})
    assert one.instance.nudges == 1
    assert not one.seat.flush(0)
    one.housekeep()
    assert one.seat.flush(0)


def test_a_share_is_there_once_it_is_had_or_there_is_none() -> None:
    one = Seat()
    one.io.locks.update({FIRST: "c2", SECOND: "c2"})
    one.balance("c1")
    assert not one.seat.wait_for_queues(0)
    one.io.locks.clear()
    one.balance("c1")
    assert one.seat.wait_for_queues(0)
    spare = Seat()
    spare.balance("b1", "b2", "c1")
    assert spare.seat.wait_for_queues(0)
    assert spare.seat.take() == {}
