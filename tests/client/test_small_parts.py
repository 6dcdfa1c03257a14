"""Settings, routes, search by time, the paused clock."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_client.loss import (
    Standing,
)
from rocketmq_client.offsets.time_search import TimeSearch
from rocketmq_client.routing.routes import BrokerDirectory, standing_of
from rocketmq_client.settings import ConnectionSettings, split_address, split_addresses
from rocketmq_client.transport.net.clock import ActiveClock
from rocketmq_wire.model import Bounds, BrokerAddresses, QueueId, QueueSet, Route

QUEUE = QueueId("orders", "broker-a", 3)


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
