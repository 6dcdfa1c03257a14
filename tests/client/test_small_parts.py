"""Stride, settings, routes, judgement of losses, the paused clock."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client.download.fresh_bounds import read_answers
from rocketmq_client.download.pull_width import PullWidth
from rocketmq_client.loss import (
    Doubt,
    DoubtKind,
    Loss,
    LossReason,
    RangeLostError,
    Standing,
    judge,
)
from rocketmq_client.offsets.time_search import TimeSearch
from rocketmq_client.routing.routes import BrokerDirectory, standing_of
from rocketmq_client.settings import ConnectionSettings, split_address, split_addresses
from rocketmq_client.transport.net.clock import ActiveClock
from rocketmq_wire.errors import ConnectionLostError, broker_error
from rocketmq_wire.model import Bounds, BrokerAddresses, QueueId, QueueSet, Route
from rocketmq_wire.requests.offsets import OffsetReply
from rocketmq_wire.requests.topics import RouteReply

QUEUE = QueueId("orders", "broker-a", 3)


# --- stride ---------------------------------------------------------------------------------


def test_one_short_answer_does_not_shrink_the_stride():
    stride = PullWidth(10_000)
    for width in (32, 32, 32, 32, 5, 32, 32):
        stride.observe(width)
    assert stride.value == 32


def test_a_lifted_cap_is_believed_at_once():
    stride = PullWidth(10_000)
    for width in (32, 32, 32, 32):
        stride.observe(width)
    stride.observe(4_000)
    assert stride.value == 4_000


# --- settings -------------------------------------------------------------------------------


def test_addresses_are_split_and_checked():
    assert split_addresses(" a:1; b:22;") == ("a:1", "b:22")
    assert split_address("[::1]:9876") == ("::1", 9876)
    for wrong in ("a", "a:", ":1", "a:x", "a:0", "a:65536"):
        with pytest.raises(ValueError, match=r"address|port"):
            split_address(wrong)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"name_servers": ("a:1",), "endpoints": "b:2"},
        {"name_servers": ("a",)},
        {"name_servers": ("a:1",), "request_timeout_ms": 0},
        {"name_servers": ("a:1",), "retry_delay_ms": 9_000},
    ],
)
def test_settings_that_cannot_work_are_refused(options):
    with pytest.raises(ValueError, match=r"must be|host:port|not a range"):
        ConnectionSettings(**options)


def test_settings_travel_to_workers():
    settings = ConnectionSettings(("a:1",), address_map={"x": "y"})
    assert pickle.loads(pickle.dumps(settings)) == settings


# --- routes ---------------------------------------------------------------------------------


def broker(name, **addresses):
    return BrokerAddresses(name, "c", {int(key[1:]): value for key, value in addresses.items()})


def test_the_master_is_asked_and_a_replica_while_there_is_none():
    directory = BrokerDirectory({})
    directory.learn([broker("a", b0="m:1", b1="s:1"), broker("b", b2="t:1", b1="s:2")])
    assert (directory.address("a"), directory.address("b")) == ("m:1", "s:2")
    assert directory.address("c") is None


def test_a_broker_missing_from_a_route_keeps_its_address():
    directory = BrokerDirectory({})
    directory.learn([broker("a", b0="m:1")])
    directory.learn([broker("b", b0="m:2"), broker("a")])
    assert directory.address("a") == "m:1"


def test_a_suspect_is_looked_up_again_and_then_trusted():
    directory = BrokerDirectory({})
    directory.learn([broker("a", b0="m:1")])
    directory.suspect("m:1")
    assert not directory.is_settled("a")
    directory.learn([broker("a", b0="m:1")])
    assert directory.is_settled("a")


def test_hosts_and_addresses_are_mapped():
    directory = BrokerDirectory({"10.0.0.1:7": "x:8", "10.0.0.2": "y"})
    directory.learn([broker("a", b0="10.0.0.1:7"), broker("b", b0="10.0.0.2:7")])
    assert (directory.address("a"), directory.address("b")) == ("x:8", "y:7")


def test_a_broker_missing_from_a_known_topics_route_is_merely_away():
    route = Route((QueueSet("broker-b", 4, 4, 6),), ())
    assert standing_of(QUEUE, route) is Standing.SERVED
    assert standing_of(QUEUE, None) is Standing.TOPIC_GONE
    shrunk = Route((QueueSet("broker-a", 3, 8, 6),), ())
    assert standing_of(QUEUE, shrunk) is Standing.QUEUE_GONE


# --- judgement ------------------------------------------------------------------------------


def verdict(kind, bounds, *, start=100, standing=Standing.SERVED, is_overdue=False, first=None):
    return judge(
        Doubt(kind, start, 150),
        bounds,
        standing,
        missing=(start if first is None else first, 200),
        is_overdue=is_overdue,
    )


def test_illegal_offsets_within_fresh_bounds_are_a_reset_and_lose_nothing():
    assert verdict(DoubtKind.ILLEGAL, Bounds(0, 500)) is None


def test_a_queue_that_starts_behind_the_offset_has_expired_it():
    bounds = Bounds(130, 500)
    assert verdict(DoubtKind.ILLEGAL, bounds) == Loss(100, 130, LossReason.EXPIRED, bounds)
    bounds = Bounds(700, 900)
    assert verdict(DoubtKind.VANISHED, bounds) == Loss(100, 200, LossReason.EXPIRED, bounds)


def test_what_vanished_has_expired_when_the_queues_first_message_is_gone_from_the_log():
    bounds = Bounds(0, 500, has_first=False)
    gone = Loss(100, 150, LossReason.EXPIRED, Bounds(150, 500))
    assert verdict(DoubtKind.VANISHED, bounds) == gone
    assert verdict(DoubtKind.ILLEGAL, bounds) is None
    assert verdict(DoubtKind.VANISHED, Bounds(0, 500)) is None
    replica = Bounds(0, 500, is_current=False, has_first=False)
    assert verdict(DoubtKind.VANISHED, replica) is None
    assert verdict(DoubtKind.VANISHED, replica, is_overdue=True) == gone


def test_the_log_has_no_time_for_a_first_message_that_is_gone():
    served = RouteReply(Route((QueueSet("broker-a", 4, 4, 6),), ()))
    bounds = OffsetReply(0), OffsetReply(20)

    def has_first(answer):
        found, _ = read_answers(QUEUE, *bounds, served, answer)
        assert found == Bounds(0, 20)
        return found.has_first

    assert not has_first(OffsetReply(-1))
    assert has_first(OffsetReply(1_700_000_000_000))
    # A broker that does not know the question leaves the doubt as it is.
    assert has_first(broker_error(3, "request type 32 not supported"))
    away = ConnectionLostError("broker-a", "reset")
    assert read_answers(QUEUE, *bounds, served, away) is away


def test_a_queue_that_ends_below_what_was_read_is_truncated_at_once():
    bounds = Bounds(0, 60)
    assert verdict(DoubtKind.ILLEGAL, bounds) == Loss(100, 200, LossReason.TRUNCATED, bounds)


@pytest.mark.parametrize("there", [(0, 60), (130, 500), (0, 120)])
def test_a_replicas_bounds_prove_nothing_until_the_outage_is_over(there):
    bounds = Bounds(*there, is_current=False)
    assert verdict(DoubtKind.ILLEGAL, bounds) is None
    assert verdict(DoubtKind.ILLEGAL, bounds, is_overdue=True) is not None


def test_a_queue_that_ends_within_what_is_missing_may_lag_until_the_outage_is_over():
    bounds = Bounds(0, 120)
    assert verdict(DoubtKind.ILLEGAL, bounds, start=130, first=110) is None
    late = verdict(DoubtKind.SHORT, bounds, start=120, first=110, is_overdue=True)
    assert late == Loss(120, 200, LossReason.TRUNCATED, bounds)


def test_zero_bounds_beside_a_missing_route_are_a_deletion():
    gone = Standing.TOPIC_GONE
    assert verdict(DoubtKind.ILLEGAL, Bounds(0, 0), standing=gone).reason is LossReason.DELETED
    assert verdict(DoubtKind.REFUSED, Bounds(0, 500), standing=gone).reason is LossReason.DELETED
    assert verdict(DoubtKind.ILLEGAL, Bounds(0, 500), standing=gone) is None
    assert verdict(DoubtKind.REFUSED, Bounds(0, 0)) is None


def test_a_lost_range_survives_pickling_with_its_facts():
    error = RangeLostError(QUEUE, 1_000, 5_000, Bounds(5_000, 9_000), LossReason.EXPIRED)
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert (copy.queue, copy.start, copy.count, copy.bounds) == (
        QUEUE,
        1_000,
        4_000,
        Bounds(5_000, 9_000),
    )


# --- search by time -------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 30), max_size=60).map(sorted),
    st.integers(0, 100),
    st.integers(-5, 35),
    st.integers(-10, 200),
)
def test_a_search_ends_at_the_first_message_late_enough_whatever_the_broker_guessed(
    times, start, timestamp_ms, guess
):
    bounds = Bounds(start, start + len(times))
    search = TimeSearch.start(timestamp_ms, bounds, guess)
    rounds = 0
    while search.answer is None:
        assert bounds.start <= search.probe < bounds.end
        search.on_store_time(search.probe, times[search.probe - start])
        rounds += 1
        assert rounds < 12
    expected = next((i for i, ms in enumerate(times) if ms >= timestamp_ms), len(times))
    assert search.answer == start + expected


def test_a_right_guess_is_settled_by_two_store_times():
    search = TimeSearch.start(50, Bounds(0, 1_000_000), 50)
    search.on_store_time(search.probe, 50)
    assert search.probe == 49
    search.on_store_time(49, 49)
    assert search.answer == 50


def test_bounds_that_move_past_the_probe_are_followed():
    search = TimeSearch.start(50, Bounds(0, 100), 10)
    search.on_bounds(Bounds(40, 100))
    while search.answer is None:
        search.on_store_time(search.probe, search.probe)
    assert search.answer == 50


# --- the clock ------------------------------------------------------------------------------


def test_the_clock_stands_still_outside():
    ticks = iter(range(0, 100_000_000_000, 1_000_000_000))
    clock = ActiveClock(lambda: next(ticks))  # Every look takes a second.
    with clock.inside():
        inside_ms = clock.now_ms()
    outside_ms = clock.now_ms()
    assert [clock.now_ms() for _ in range(5)] == [outside_ms] * 5
    with clock.inside():
        assert clock.now_ms() - inside_ms <= 2_000
