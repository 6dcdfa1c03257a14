"""The judgement of losses: for a download in doubt, and for the offset where reading starts."""

from __future__ import annotations

import pickle

import pytest

from pyspark_rocketmq.errors import DataLossError
from rocketmq_client.download.fresh_bounds import read_answers
from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import (
    Doubt,
    DoubtKind,
    Loss,
    LossReason,
    Standing,
    judge_doubt,
    judge_offset,
    lost_range,
)
from rocketmq_wire.errors import ConnectionLostError, RocketMQError, broker_error
from rocketmq_wire.model import Bounds, OffsetRange, QueueId, QueueSet, Route
from rocketmq_wire.requests.offsets import OffsetReply
from rocketmq_wire.requests.topics import RouteReply

QUEUE = QueueId("orders", "broker-a", 3)


# --- a download in doubt --------------------------------------------------------------------


def judged(kind, bounds, *, start=100, standing=Standing.SERVED, is_overdue=False, first=None):
    missing = OffsetRange(QUEUE, start if first is None else first, 200)
    return judge_doubt(missing, Doubt(kind, start, 150), bounds, standing, is_overdue=is_overdue)


def test_illegal_offsets_within_fresh_bounds_are_a_reset_and_lose_nothing():
    assert judged(DoubtKind.ILLEGAL, Bounds(0, 500)) is None


def test_a_queue_that_starts_behind_the_offset_has_expired_it():
    bounds = Bounds(130, 500)
    assert judged(DoubtKind.ILLEGAL, bounds) == lost_range(
        LossReason.EXPIRED, QUEUE, 100, 130, bounds
    )
    bounds = Bounds(700, 900)
    assert judged(DoubtKind.VANISHED, bounds) == lost_range(
        LossReason.EXPIRED, QUEUE, 100, 200, bounds
    )


def test_vanished_messages_have_expired_if_the_queues_first_one_is_gone_from_the_log():
    bounds = Bounds(0, 500, has_first=False)
    gone = lost_range(LossReason.EXPIRED, QUEUE, 100, 150, Bounds(150, 500))
    assert judged(DoubtKind.VANISHED, bounds) == gone
    assert judged(DoubtKind.ILLEGAL, bounds) is None
    assert judged(DoubtKind.VANISHED, Bounds(0, 500)) is None
    replica = Bounds(0, 500, is_current=False, has_first=False)
    assert judged(DoubtKind.VANISHED, replica) is None
    assert judged(DoubtKind.VANISHED, replica, is_overdue=True) == gone


def test_the_log_has_no_time_for_a_first_message_that_is_gone():
    served = RouteReply(Route((QueueSet("broker-a", 4, 4, 6),), ()))
    bounds = OffsetReply(0), OffsetReply(20)

    def has_first(answer):
        answers = read_answers(QUEUE, *bounds, served, answer)
        assert not isinstance(answers, RocketMQError)
        found, _ = answers
        assert found == Bounds(0, 20)
        return found.has_first

    assert not has_first(OffsetReply(-1))
    assert has_first(OffsetReply(1_700_000_000_000))
    # A broker that does not know the question leaves the doubt as it is.
    assert has_first(broker_error(3, "request type 32 not supported"))
    away = ConnectionLostError("broker-a", "reset")
    assert read_answers(QUEUE, *bounds, served, away) is away


def test_a_busy_brokers_refusal_is_no_empty_queue():
    served = RouteReply(Route((QueueSet("broker-a", 4, 4, 6),), ()))
    busy = broker_error(2, "[TIMEOUT_CLEAN_QUEUE] busy")
    assert read_answers(QUEUE, OffsetReply(0), busy, served, OffsetReply(5)) is busy


def test_a_queue_that_ends_below_what_was_read_is_truncated_at_once():
    bounds = Bounds(0, 60)
    assert judged(DoubtKind.ILLEGAL, bounds) == lost_range(
        LossReason.TRUNCATED, QUEUE, 100, 200, bounds
    )


@pytest.mark.parametrize("there", [(0, 60), (130, 500), (0, 120)])
def test_a_replicas_bounds_prove_nothing_until_the_outage_is_over(there):
    start, end = there
    bounds = Bounds(start, end, is_current=False)
    assert judged(DoubtKind.ILLEGAL, bounds) is None
    assert judged(DoubtKind.ILLEGAL, bounds, is_overdue=True) is not None


def test_a_master_that_ends_within_what_is_missing_has_lost_it():
    bounds = Bounds(0, 120)
    gone = lost_range(LossReason.TRUNCATED, QUEUE, 120, 200, bounds)
    assert judged(DoubtKind.SHORT, bounds, start=120, first=110) == gone
    assert judged(DoubtKind.ILLEGAL, bounds, start=130, first=110) == gone


def test_a_replica_that_acts_as_master_may_lag_until_the_outage_is_over():
    bounds, acting = Bounds(0, 120), Standing.PROVISIONAL
    assert judged(DoubtKind.SHORT, bounds, start=120, first=110, standing=acting) is None
    late = judged(DoubtKind.SHORT, bounds, start=120, first=110, standing=acting, is_overdue=True)
    assert late == lost_range(LossReason.TRUNCATED, QUEUE, 120, 200, bounds)
    # No replica lacks offsets that were read.
    assert judged(DoubtKind.ILLEGAL, Bounds(0, 60), standing=acting) is not None


def test_zero_bounds_beside_a_missing_route_are_a_deletion():
    gone = Standing.TOPIC_GONE
    assert judged(DoubtKind.ILLEGAL, Bounds(0, 0), standing=gone).reason is LossReason.TOPIC_DELETED
    assert (
        judged(DoubtKind.REFUSED, Bounds(0, 500), standing=gone).reason is LossReason.TOPIC_DELETED
    )
    assert judged(DoubtKind.ILLEGAL, Bounds(0, 500), standing=gone) is None
    assert judged(DoubtKind.REFUSED, Bounds(0, 0)) is None


def test_a_lost_range_survives_pickling_with_its_facts():
    error = RangeLostError(
        lost_range(LossReason.EXPIRED, QUEUE, 1_000, 5_000, Bounds(5_000, 9_000))
    )
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert copy.loss == error.loss
    assert copy.loss.count == 4_000


# --- the offset where reading starts ----------------------------------------------------------


def test_offsets_that_are_there_or_still_to_come_are_no_loss() -> None:
    assert judge_offset(QUEUE, 5, Bounds(5, 9)) is None
    assert judge_offset(QUEUE, 9, Bounds(5, 9)) is None


@pytest.mark.parametrize(("wanted", "there"), [(10, (0, 6)), (3, (8, 10))])
def test_a_replica_that_lacks_an_offset_proves_no_loss_until_the_outage_is_over(
    wanted: int, there: tuple[int, int]
) -> None:
    start, end = there
    bounds = Bounds(start, end, is_current=False)
    assert judge_offset(QUEUE, wanted, bounds, first_offset_seen=5) is None
    assert judge_offset(QUEUE, wanted, bounds, is_overdue=True) is not None


@pytest.mark.parametrize(
    ("wanted", "bounds", "seen", "reason", "gone", "next_offset"),
    [
        (1_000, Bounds(5_000, 9_000), 1_000, LossReason.EXPIRED, 4_000, 5_000),
        (1_000, Bounds(0, 900), 0, LossReason.TRUNCATED, 100, 900),
        (1_000, Bounds(0, 900), 500, LossReason.TOPIC_RECREATED, None, 0),
        (1_000, Bounds(0, 2_000), 500, LossReason.TOPIC_RECREATED, None, 0),
    ],
)
def test_losses_are_distinguished_and_counted(
    wanted: int, bounds: Bounds, seen: int, reason: LossReason, gone: int | None, next_offset: int
) -> None:
    loss = judge_offset(QUEUE, wanted, bounds, first_offset_seen=seen)
    assert loss == Loss(reason, QUEUE, wanted, next_offset, bounds, gone)


def test_a_refilled_topic_is_known_by_the_time_of_its_first_message() -> None:
    def judged_by_time(wanted: int, start: int, then: int, now: int) -> LossReason | None:
        bounds = Bounds(start, 90)
        loss = judge_offset(QUEUE, wanted, bounds, first_store_time=then, first_store_time_now=now)
        return None if loss is None else loss.reason

    assert judged_by_time(5, 0, 1_000, 2_000) is LossReason.TOPIC_RECREATED
    assert judged_by_time(5, 0, 1_000, 1_000) is None
    assert judged_by_time(5, 3, 1_000, 2_000) is None
    assert judged_by_time(0, 0, 1_000, 2_000) is None


def test_the_message_names_the_facts_and_what_to_do() -> None:
    loss = judge_offset(QUEUE, 1_000, Bounds(5_000, 9_000))
    assert loss is not None
    assert str(DataLossError(loss)) == (
        "[ROCKETMQ_DATA_LOSS.OFFSET_EXPIRED] topic=orders broker=broker-a queue=3 requested=1000 "
        "available=[5000,9000): 4000 messages are gone, deleted by retention before they were "
        "read. Set failOnDataLoss=false to continue from 5000."
    )
    one = lost_range(LossReason.EXPIRED, QUEUE, 4_999, 5_000, Bounds(5_000, 9_000))
    assert "1 message is gone" in str(DataLossError(one))
