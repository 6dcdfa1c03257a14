"""Offsets by store time on brokers of every kind: all must give the same answers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_client.offsets.bounds import TimeSearch, ask_bounds, search_times
from rocketmq_wire.errors import ConnectError, RocketMQError, raise_first
from rocketmq_wire.model import Bounds, Host, QueueId, StoredMessage
from rocketmq_wire.records.record import encode_record
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus
from rocketmq_wire.requests.offsets import (
    Boundary,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    SearchOffset,
)

QUEUE = QueueId("orders", "broker-a", 0)
HOST = Host(bytes(4), 1)


def record(offset, store_ms):
    return encode_record(
        StoredMessage(
            topic="orders",
            body=b"x",
            properties={},
            flag=0,
            queue_index=0,
            queue_offset=offset,
            physical_offset=0,
            sys_flag=0,
            born_ms=0,
            born_host=HOST,
            store_ms=store_ms,
            store_host=HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body_crc=0x0CDC1683,
            store_size=0,
        )
    )


class TimedQueue:
    """A queue with given store times, of a broker that searches as its version does."""

    def __init__(self, start, times, version, seed=0):
        self.start, self.times, self.version = start, times, version
        self.dice = random.Random(seed)
        self.rounds = 0

    def ask(self, requests):
        self.rounds += 1
        return [self.answer(request) for _, request in requests]

    def answer(self, request):
        if isinstance(request, GetMinOffset):
            return OffsetReply(self.start)
        if isinstance(request, GetMaxOffset):
            return OffsetReply(self.start + len(self.times))
        if isinstance(request, SearchOffset):
            return OffsetReply(self.search(request.timestamp_ms))
        assert isinstance(request, PullMessages)
        return self.pull(request)

    def search(self, timestamp_ms):
        """As section 5.6 of the protocol says."""
        late = [i for i, ms in enumerate(self.times) if ms >= timestamp_ms]
        if self.version == "5.3":
            return self.start + (late[0] if late else len(self.times))
        if self.version == "before the first file":
            return max(0, self.start - 7)
        if not self.times:
            return 0
        if not late:
            return self.start + len(self.times) - 1
        # 4.9 answers a neighbour, or any member of a run of equal times.
        near = min(self.times, key=lambda ms: abs(ms - timestamp_ms))
        run = [i for i, ms in enumerate(self.times) if ms == near]
        return self.start + self.dice.choice(run)

    def pull(self, request):
        index, end = request.start - self.start, self.start + len(self.times)
        if not 0 <= index < len(self.times):
            return PullReply(PullStatus.OFFSET_ILLEGAL, self.start, self.start, end)
        records = (record(request.start, self.times[index]),)
        return PullReply(PullStatus.FOUND, request.start + 1, self.start, end, records)


VERSIONS = ("4.9", "5.3", "before the first file")


@settings(max_examples=200)
@given(
    st.sampled_from(VERSIONS),
    st.integers(0, 50),
    st.lists(st.integers(0, 20), max_size=40).map(sorted),
    st.integers(-3, 24),
    st.integers(0, 9),
)
def test_every_broker_version_gives_the_same_result(version, start, times, timestamp_ms, seed):
    queue = TimedQueue(start, times, version, seed)
    lower = search_times(queue.ask, {QUEUE: timestamp_ms}, Boundary.LOWER)[QUEUE]
    upper = search_times(queue.ask, {QUEUE: timestamp_ms}, Boundary.UPPER)[QUEUE]
    assert lower == start + sum(ms < timestamp_ms for ms in times)
    assert upper == max(start, start + sum(ms <= timestamp_ms for ms in times) - 1)


def test_an_exact_broker_costs_two_pulls_beside_the_other_requests():
    queue = TimedQueue(0, list(range(1_000)), "5.3")
    assert search_times(queue.ask, {QUEUE: 500}, Boundary.LOWER) == {QUEUE: 500}
    assert queue.rounds == 4


def test_one_queues_error_leaves_the_others_their_results():
    queue, error = TimedQueue(0, [1, 2], "5.3"), ConnectError("broker-b", "refused")
    far = QueueId("orders", "broker-b", 0)

    def ask(requests):
        return [error if broker == "broker-b" else queue.answer(r) for broker, r in requests]

    assert ask_bounds(ask, [QUEUE, far]) == {QUEUE: Bounds(0, 2), far: error}
    assert search_times(ask, {QUEUE: 2, far: 2}, Boundary.LOWER) == {QUEUE: 1, far: error}


def test_a_queue_whose_bounds_keep_moving_is_given_up():
    queue = TimedQueue(0, list(range(100)), "5.3")

    def ask(requests):
        return [
            PullReply(PullStatus.OFFSET_ILLEGAL, 0, 0, 100)
            if isinstance(request, PullMessages)
            else queue.answer(request)
            for _, request in requests
        ]

    answer = search_times(ask, {QUEUE: 50}, Boundary.LOWER)[QUEUE]
    assert isinstance(answer, int | RocketMQError)


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (5, 3)])
def test_bounds_are_never_inside_out(start, end):
    def ask(requests):
        return [OffsetReply(start if isinstance(r, GetMinOffset) else end) for _, r in requests]

    bounds = raise_first(ask_bounds(ask, [QUEUE]))[QUEUE]
    assert 0 <= bounds.start <= bounds.end


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
