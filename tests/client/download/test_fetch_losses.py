"""The range download when messages are gone: each loss with its reason, the others all there."""

from __future__ import annotations

import pytest

from rocketmq_client.errors import RangeLostError
from rocketmq_client.loss import LossPolicy, LossReason, Standing
from rocketmq_wire.model import Bounds
from support.simulated_queue import (
    SimulatedQueue,
    driver_of,
    first_offset_in,
    window_of,
)


def lost(queue, start, end, policy=LossPolicy.RAISE, **options):
    driver = driver_of(window_of(start, end, loss_policy=policy), queue, **options)
    if policy is LossPolicy.SKIP:
        return driver.run()
    with pytest.raises(RangeLostError) as caught:
        driver.run()
    return caught.value


def test_offsets_below_the_queues_start_are_expired():
    error = lost(SimulatedQueue(5_000, 9_000), 1_000, 6_000)
    loss = error.loss
    assert (loss.start, loss.end, loss.count) == (1_000, 5_000, 4_000)
    assert (loss.reason, loss.bounds) == (LossReason.EXPIRED, Bounds(5_000, 9_000))
    assert "OFFSET_EXPIRED] topic=orders broker=broker-a queue=3 requested=1000" in str(error)
    assert "available=[5000,9000): 4000 offsets" in str(error)


def test_offsets_far_behind_the_queues_end_are_truncated_at_once():
    driver = driver_of(window_of(500, 600), SimulatedQueue(0, 400))
    with pytest.raises(RangeLostError) as caught:
        driver.run()
    loss = caught.value.loss
    assert (loss.start, loss.end, loss.reason) == (500, 600, LossReason.TRUNCATED)
    assert driver.now_ms < 2_000


@pytest.mark.parametrize("acts_as_master", [False, True])
def test_an_end_behind_the_queues_end_is_truncated_at_once_unless_a_replica_acts_as_master(
    acts_as_master,
):
    standing = Standing.PROVISIONAL if acts_as_master else Standing.SERVED
    driver = driver_of(window_of(0, 600), SimulatedQueue(0, 400, standing=standing))
    with pytest.raises(RangeLostError) as caught:
        driver.run()
    loss = caught.value.loss
    assert (loss.start, loss.end, loss.reason) == (400, 600, LossReason.TRUNCATED)
    assert (driver.now_ms >= 60_000) is acts_as_master
    assert acts_as_master or driver.now_ms < 2_000
    assert driver.offsets == list(range(400)), "what is there is handed on first"


def test_a_queue_that_catches_up_in_time_has_lost_nothing():
    grows = [(30_000, lambda queue: setattr(queue, "end", 600))]
    acting = SimulatedQueue(0, 400, standing=Standing.PROVISIONAL)
    driver = driver_of(window_of(0, 600), acting, changes=grows).run()
    assert driver.offsets == list(range(600))


def test_a_deleted_topic_is_distinguished():
    loss = lost(SimulatedQueue(0, 600, standing=Standing.TOPIC_GONE), 100, 600).loss
    assert (loss.reason, loss.bounds) == (LossReason.TOPIC_DELETED, None)


def test_a_queue_that_the_topic_no_longer_has_is_distinguished():
    loss = lost(SimulatedQueue(0, 600, standing=Standing.QUEUE_GONE), 100, 600).loss
    assert loss.reason is LossReason.QUEUE_REMOVED


def test_messages_missing_between_the_bounds_are_distinguished():
    loss = lost(SimulatedQueue(0, 600, vanished=range(100, 200)), 0, 600).loss
    assert (loss.start, loss.end, loss.reason) == (100, 200, LossReason.HOLE)


def test_vanished_messages_behind_a_first_one_that_is_gone_have_expired():
    loss = lost(SimulatedQueue(0, 600, vanished=range(600)), 50, 600).loss
    assert (loss.start, loss.end, loss.reason) == (50, 600, LossReason.EXPIRED)
    assert loss.bounds == Bounds(600, 600)


def test_a_long_queue_that_expired_whole_is_skipped_without_waiting():
    queue = SimulatedQueue(0, 50_000, vanished=range(50_000))
    driver = lost(queue, 0, 50_000, LossPolicy.SKIP)
    driver.check_order()
    assert sum(loss.end - loss.start for loss in driver.losses) == 50_000
    assert driver.now_ms < 10_000


@pytest.mark.parametrize("is_filtered", [False, True])
@pytest.mark.parametrize("survivors", [range(1, 900), range(900, 900)])
def test_another_messages_record_at_offset_0_is_a_loss_of_it_alone(is_filtered, survivors):
    queue = SimulatedQueue(
        0,
        900,
        vanished=range(1, survivors.start),
        is_first_out_of_range=True,
        is_filtered=is_filtered,
    )
    window = window_of(
        0, 900, is_filtered=is_filtered, loss_policy=LossPolicy.SKIP,
        first_offset=first_offset_in,
    )  # fmt: skip
    driver = driver_of(window, queue).run()
    driver.check_order()
    assert driver.offsets == list(survivors)
    assert driver.losses[0].start == 0
    gone = sum(loss.end - loss.start for loss in driver.losses)
    assert gone == survivors.start or is_filtered
    assert {loss.reason for loss in driver.losses} == {LossReason.EXPIRED}


@pytest.mark.parametrize("policy", LossPolicy)
def test_the_first_message_behind_what_expired_is_there(policy):
    queue = SimulatedQueue(0, 900, vanished=range(100))
    window = window_of(0, 900, loss_policy=policy, first_offset=first_offset_in)
    driver = driver_of(window, queue)
    if policy is LossPolicy.RAISE:
        with pytest.raises(RangeLostError) as caught:
            driver.run()
        assert (caught.value.loss.start, caught.value.loss.end) == (0, 100)
        return
    assert driver.run().offsets == list(range(100, 900))
    assert [(loss.start, loss.end) for loss in driver.losses] == [(0, 100)]


@pytest.mark.parametrize("first", [0, 1, 5, 799, 800, 2_000])
def test_a_queues_first_message_need_not_match_a_filter(first):
    queue = SimulatedQueue(
        0, 3_000, is_filtered=True, matches=lambda offset: offset >= first and not offset % 2
    )
    window = window_of(0, 3_000, is_filtered=True, first_offset=first_offset_in)
    driver = driver_of(window, queue).run()
    driver.check_order()
    assert driver.offsets == list(range(first + first % 2, 3_000, 2))
    assert driver.losses == []


@pytest.mark.parametrize("own", [None, 7])
def test_under_a_filter_another_record_at_offset_0_is_not_taken_for_a_later_match(own):
    """Also where that record is a later message of the same queue."""
    queue = SimulatedQueue(0, 900, is_first_out_of_range=True, is_filtered=True)
    window = window_of(
        0, 900, is_filtered=True, loss_policy=LossPolicy.SKIP,
        first_offset=lambda body: first_offset_in(body, stray_is=own),
    )  # fmt: skip
    driver = driver_of(window, queue).run()
    assert driver.offsets == list(range(1, 900))
    assert [(loss.start, loss.end) for loss in driver.losses] == [(0, 1)]


def test_a_server_side_reset_is_asked_again_and_loses_nothing():
    driver = driver_of(window_of(0, 600), SimulatedQueue(0, 600, reset_is_pending=True)).run()
    assert driver.offsets == list(range(600))
    assert driver.window.reset_count == 1


def test_skipping_resumes_with_exactly_the_surviving_offsets():
    driver = lost(SimulatedQueue(300, 800), 100, 1_000, LossPolicy.SKIP)
    driver.check_order()
    assert driver.offsets == list(range(300, 800))
    assert sum(loss.end - loss.start for loss in driver.losses) == 400
    assert {loss.reason for loss in driver.losses} == {LossReason.EXPIRED, LossReason.TRUNCATED}


def test_retention_that_passes_a_running_read_is_noticed():
    expires = [(1_100, lambda queue: setattr(queue, "start", 10_000))]
    driver = lost(SimulatedQueue(0, 20_000), 0, 20_000, LossPolicy.SKIP, changes=expires)
    driver.check_order()
    gone = sum(loss.end - loss.start for loss in driver.losses)
    assert 0 < gone < 10_000
    assert len(driver.offsets) == 20_000 - gone
    assert driver.offsets[-10_000:] == list(range(10_000, 20_000))
