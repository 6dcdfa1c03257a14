"""The range download against simulated brokers: every offset once and in order, or an error."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_client.download.contract import ReadLimits
from rocketmq_client.loss import LossPolicy, LossReason, Standing
from rocketmq_wire.errors import (
    BrokerError,
    ConnectionLostError,
    DeadlineExceededError,
    NotAuthorizedError,
    RemoteProtocolError,
    broker_error,
)
from rocketmq_wire.model import Bounds
from rocketmq_wire.requests.messages import PullReply, PullStatus
from support.fetch_scenes import run_scene, scenes
from support.simulated_queue import (
    LIMITS,
    Faults,
    SimulatedQueue,
    driver_of,
    fake_records,
    next_pull,
    offsets_in,
    take,
    window_of,
)


def found(asked, next_begin, *, end=1_000_000, size=120):
    body = fake_records(range(asked, next_begin), lambda _: size)
    return PullReply(PullStatus.FOUND, next_begin, 0, end, (body,))


# --- the ordinary course --------------------------------------------------------------------


def test_a_range_arrives_whole_and_in_order():
    driver = driver_of(window_of(100, 5_000), SimulatedQueue(0, 10_000)).run()
    driver.check_order()
    assert driver.offsets == list(range(100, 5_000))


def test_an_empty_range_needs_no_pull():
    window = window_of(7, 7)
    assert window.is_finished
    assert window.next_pull(0) is None


def test_only_one_pull_is_sent_until_the_first_answer_shows_what_a_pull_brings():
    window = window_of(0, 10_000)
    first = window.next_pull(0)
    assert first is not None
    assert window.next_pull(0) is None
    window.on_reply(first.ticket, found(0, 32), 5)
    starts = [pull.start for pull in iter(lambda: window.next_pull(5), None)]
    assert starts == [32 * (i + 1) for i in range(LIMITS.pulls_in_flight)]


def test_predicted_pulls_of_a_capped_broker_leave_no_hole_and_fetch_nothing_twice():
    driver = driver_of(window_of(0, 32_000), SimulatedQueue(0, 40_000)).run()
    assert len(driver.pulls) == 1_000
    assert driver.in_flight_max == LIMITS.pulls_in_flight


def test_a_generous_broker_is_asked_for_large_pulls():
    queue = SimulatedQueue(0, 100_000, count_cap=100_000, bytes_cap=1 << 30)
    driver = driver_of(window_of(0, 100_000), queue).run()
    assert len(driver.pulls) == 10


def test_the_width_grows_again_after_a_cap_is_lifted():
    queue = SimulatedQueue(0, 200_000)
    lifted = [(1_200, lambda queue: setattr(queue, "count_cap", 10_000))]
    driver = driver_of(window_of(0, 200_000), queue, changes=lifted).run()
    driver.check_order()
    assert max(pull.count_max for pull in driver.pulls[-10:]) > 1_000


def test_a_pull_that_ends_at_an_index_file_does_not_shrink_the_width():
    queue = SimulatedQueue(0, 20_000, index_file_count=1_005)
    driver = driver_of(window_of(0, 20_000), queue).run()
    driver.check_order()
    assert driver.offsets == list(range(20_000))
    assert len(driver.pulls) < 1.2 * (20_000 / 32)


def test_small_answers_are_joined_and_large_ones_are_handed_on_as_they_came():
    small = driver_of(window_of(0, 20_000), SimulatedQueue(0, 20_000)).run()
    assert len(small.chunks) < 20
    window = window_of(0, 10_000)
    pull = next_pull(window, 0)
    reply = found(0, 5_000)
    window.on_reply(pull.ticket, reply, 1)
    chunk = take(window)
    assert chunk.body is reply.records[0]
    assert chunk.expected_count == 5_000


def test_a_filtered_chunk_names_no_expected_count():
    window = window_of(0, 10, is_filtered=True)
    window.on_reply(next_pull(window, 0).ticket, found(0, 10), 1)
    assert take(window).expected_count is None


def test_a_filtered_read_passes_stretches_without_a_match():
    queue = SimulatedQueue(0, 50_000, is_filtered=True, matches=lambda o: o % 9_973 == 5)
    driver = driver_of(window_of(0, 50_000, is_filtered=True), queue).run()
    driver.check_order()
    assert driver.offsets == [5, 9978, 19951, 29924, 39897, 49870]
    assert len(driver.pulls) < 12, "selective filters ask for wide scans"


def test_an_overlap_is_cut_away_from_the_chunk():
    window = window_of(0, 96)
    window.on_reply(next_pull(window, 0).ticket, found(0, 32), 1)
    second, third = next_pull(window, 1), next_pull(window, 1)
    window.on_reply(third.ticket, found(64, 96), 2)
    window.on_reply(second.ticket, found(32, 64), 3)
    chunks = [take(window)]
    assert [(chunk.start, chunk.end) for chunk in chunks] == [(0, 96)]
    assert offsets_in(chunks[0].body) == list(range(96))


def test_a_late_or_doubled_answer_changes_nothing():
    window = window_of(0, 64)
    pull = next_pull(window, 0)
    window.on_reply(pull.ticket, found(0, 32), 1)
    window.on_reply(pull.ticket, found(0, 32), 2)
    window.on_failure(pull.ticket, DeadlineExceededError("a", "late"), 3)
    assert next_pull(window, 3).start == 32


# --- flow control ---------------------------------------------------------------------------


def test_pulls_stop_at_the_message_limit_until_chunks_are_taken():
    window = window_of(0, 100_000, ReadLimits(messages_max=1_000, count_per_pull=32))
    for now_ms in range(200):
        pulls = list(iter(partial(window.next_pull, now_ms), None))
        for pull in pulls:
            window.on_reply(pull.ticket, found(pull.start, pull.start + 32), now_ms)
    assert window.held_bytes <= 1_000 * 120
    assert window.held_bytes > 900 * 120
    assert window.take() is not None
    assert window.next_pull(300) is not None


def test_pulls_stop_at_the_byte_limit():
    limits = ReadLimits(bytes_max=100_000, count_per_pull=32)
    window = window_of(0, 100_000, limits)
    for now_ms in range(200):
        for pull in list(iter(partial(window.next_pull, now_ms), None)):
            window.on_reply(pull.ticket, found(pull.start, pull.start + 32, size=1_000), now_ms)
    assert 32_000 <= window.held_bytes <= 100_000


def test_pulls_stop_at_the_span_limit():
    limits = ReadLimits(span_max=100, count_per_pull=10)
    window = window_of(0, 100_000, limits)
    furthest = 0
    for now_ms in range(50):
        for pull in list(iter(partial(window.next_pull, now_ms), None)):
            furthest = max(furthest, pull.start + pull.count_max)
            window.on_reply(pull.ticket, found(pull.start, pull.start + 10), now_ms)
    assert furthest == 100


def test_a_shared_budget_holds_back_all_but_the_urgent_pull():
    window = window_of(0, 100)
    assert window.next_pull(0, bytes_free=0, is_urgent=False) is None
    assert window.next_pull(0, bytes_free=0) is not None


# --- trouble --------------------------------------------------------------------------------


def test_an_outage_shorter_than_the_limit_is_survived():
    faults = Faults(outage=(1_005, 50_000))
    driver = driver_of(window_of(0, 5_000), SimulatedQueue(0, 5_000), faults=faults).run()
    driver.check_order()
    assert driver.offsets == list(range(5_000))


def test_an_outage_longer_than_the_limit_ends_with_the_networks_own_error():
    driver = driver_of(
        window_of(0, 5_000), SimulatedQueue(0, 5_000), faults=Faults(outage=(1_005, 500_000))
    )
    with pytest.raises(ConnectionLostError):
        driver.run()
    assert 60_000 <= driver.now_ms < 66_000


def test_a_broker_that_never_answers_is_given_up_after_the_outage_limit():
    driver = driver_of(window_of(0, 50), SimulatedQueue(0, 50), faults=Faults(lost=1.0))
    with pytest.raises(DeadlineExceededError):
        driver.run()
    assert driver.now_ms < 70_000


def test_retries_back_off_instead_of_spinning():
    driver = driver_of(window_of(0, 50), SimulatedQueue(0, 50), faults=Faults(outage=(0, 500_000)))
    with pytest.raises(ConnectionLostError):
        driver.run()
    assert len(driver.pulls) < 50


def test_no_progress_at_code_20_backs_off_and_then_gives_up():
    window = window_of(0, 50)
    now_ms = 0
    with pytest.raises(DeadlineExceededError, match="no progress at offset 0"):  # noqa: PT012
        while now_ms < 100_000:
            pull = window.next_pull(now_ms)
            if pull is not None:
                reply = PullReply(PullStatus.NO_MATCHED_MESSAGE, 0, 0, 50, remark="SLAVE")
                window.on_reply(pull.ticket, reply, now_ms)
            if window.wants_bounds(now_ms):
                window.on_bounds(Bounds(0, 50), Standing.SERVED, now_ms)
            now_ms += 10
    assert 60_000 <= now_ms < 66_000


@pytest.mark.parametrize("policy", LossPolicy)
def test_messages_in_front_of_a_loss_that_never_come_end_the_download(policy):
    window = window_of(0, 100, loss_policy=policy)
    now_ms = 0
    with pytest.raises(DeadlineExceededError, match="no progress at offset 0"):  # noqa: PT012
        while now_ms < 300_000:
            pull = window.next_pull(now_ms)
            if pull is not None:
                reply = PullReply(PullStatus.NO_NEW_MESSAGE, pull.start, 0, 50)
                window.on_reply(pull.ticket, reply, now_ms)
            if window.wants_bounds(now_ms):
                window.on_bounds(Bounds(0, 50), Standing.SERVED, now_ms)
            now_ms += 10
    assert now_ms < 2 * 66_000


def test_an_answer_that_goes_backwards_breaks_the_protocol():
    window = window_of(100, 200)
    reply = PullReply(PullStatus.NO_NEW_MESSAGE, 99, 0, 1_000)
    with pytest.raises(RemoteProtocolError, match="earlier 99"):
        window.on_reply(next_pull(window, 0).ticket, reply, 1)


@pytest.mark.parametrize("reply", [found(0, 0), PullReply(PullStatus.FOUND, 9, 0, 50)])
def test_messages_found_without_bytes_or_offsets_break_the_protocol(reply):
    window = window_of(0, 50)
    with pytest.raises(RemoteProtocolError):
        window.on_reply(next_pull(window, 0).ticket, reply, 1)


def test_a_refusal_that_cannot_pass_is_raised_at_once():
    window = window_of(0, 50)
    with pytest.raises(NotAuthorizedError):
        window.on_failure(next_pull(window, 0).ticket, broker_error(16, "closed"), 1)


def test_a_refusal_that_may_pass_is_retried_for_the_outage_and_then_raised():
    queue = SimulatedQueue(0, 50, refusal=broker_error(1, "store is starting"))
    driver = driver_of(window_of(0, 50), queue)
    with pytest.raises(BrokerError, match="store is starting"):
        driver.run()
    assert driver.now_ms >= 60_000
    queue = SimulatedQueue(0, 50, refusal=broker_error(1, "store is starting"))
    heals = [(20_000, lambda queue: setattr(queue, "refusal", None))]
    assert driver_of(window_of(0, 50), queue, changes=heals).run().offsets == list(range(50))


# --- anything goes --------------------------------------------------------------------------


@settings(max_examples=200)
@given(scenes())
def test_every_offset_arrives_once_and_in_order_over_any_way(scene):
    driver = run_scene(scene, LossPolicy.RAISE)
    driver.check_order()
    wanted = driver.window.wanted
    matching = [o for o in range(wanted.start, wanted.end) if driver.queue.matches(o)]
    assert driver.offsets == matching
    limits = scene[1]
    assert driver.in_flight_max <= limits.pulls_in_flight


@settings(max_examples=200)
@given(
    scenes(),
    st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 6_500)), max_size=4),
    st.one_of(st.none(), st.tuples(st.integers(1_000, 3_000), st.integers(0, 6_000))),
)
def test_under_retention_and_truncation_every_offset_is_delivered_or_reported(
    scene, starts, truncation
):
    queue = scene[0]
    top = max([start for _, start in starts], default=0)

    def move_start(start):
        return lambda queue: setattr(queue, "start", max(queue.start, min(start, queue.end)))

    changes = [(1_000 + at_ms, move_start(start)) for at_ms, start in starts]
    if truncation is not None:
        at_ms, end = truncation

        def cut(queue):
            queue.end = max(queue.start, min(queue.end, end))

        changes.append((at_ms, cut))
    driver = run_scene(scene, LossPolicy.SKIP, changes)
    driver.check_order()
    gone = {o for loss in driver.losses for o in range(loss.start, loss.end)}
    wanted = driver.window.wanted
    matching = [o for o in range(wanted.start, wanted.end) if queue.matches(o) and o not in gone]
    assert driver.offsets == matching
    for loss in driver.losses:
        if loss.reason is LossReason.EXPIRED:
            assert loss.end <= top
        else:
            assert truncation is not None
            assert loss.reason is LossReason.TRUNCATED
