"""Which pulls of many ranges are sent: the foremost first, never too many at one broker."""

from __future__ import annotations

from collections import Counter

import pytest

from rocketmq_client.download.contract import ReadLimits, ReadSpec
from rocketmq_client.download.fetch_window import FetchWindow
from rocketmq_client.download.pulls import Pull
from rocketmq_client.retry import Backoff
from rocketmq_client.retry_schedules import REQUEST
from rocketmq_client.transport.tcp.download import PULLS_PER_BROKER_MAX, due_pulls
from rocketmq_wire.errors import ConnectionLostError
from rocketmq_wire.model import OffsetRange, QueueId
from rocketmq_wire.requests.messages import PullReply, PullStatus
from support.simulated_queue import fake_records

COUNT = 320


def windows_of(count: int, limits: ReadLimits, *, brokers: int = 1) -> list[FetchWindow]:
    queues = [QueueId("orders", f"broker-{n % brokers}", n) for n in range(count)]
    spec, backoff = ReadSpec("readers", limits=limits), Backoff(REQUEST)
    return [FetchWindow(OffsetRange(queue, 0, COUNT), spec, backoff=backoff) for queue in queues]


def answer(window: FetchWindow, pull: Pull, now_ms: int) -> None:
    """As a real broker does: 32 messages of 1 KiB."""
    end = min(COUNT, pull.start + min(pull.count_max, 32))
    body = fake_records(range(pull.start, end), lambda _: 1_024)
    window.on_reply(pull.ticket, PullReply(PullStatus.FOUND, end, 0, COUNT, (body,)), now_ms)


@pytest.mark.parametrize("count_per_pull", [32, 10_000])
def test_pulls_at_a_broker_are_limited_and_every_queue_gets_its_turn(
    count_per_pull: int,
) -> None:
    limits = ReadLimits(count_per_pull=count_per_pull)
    windows = windows_of(600, limits)
    read: list[int] = []
    rounds = most = 0
    while windows:
        pulls = list(due_pulls(windows, limits, rounds))
        most = max(most, len(pulls))
        for window, pull in pulls:
            answer(window, pull, rounds)
        while windows[0].take() is not None:
            pass
        while windows and windows[0].is_finished:
            read.append(windows.pop(0).wanted.queue.index)
        rounds += 1
    assert read == list(range(600))
    assert most <= PULLS_PER_BROKER_MAX
    assert count_per_pull > 32 or most == PULLS_PER_BROKER_MAX
    assert rounds < 600 * COUNT // 32, "what is behind the foremost is read ahead"


def test_eight_queues_have_all_the_pulls_they_may() -> None:
    limits = ReadLimits(pulls_in_flight=16, count_per_pull=32)
    windows = windows_of(8, limits)
    for window, pull in list(due_pulls(windows, limits, 0)):
        answer(window, pull, 0)
    list(due_pulls(windows, limits, 1))
    assert [window.in_flight for window in windows] == [9] * 8, "all that is left of 320 messages"


def test_a_user_may_raise_the_pulls_of_one_queue() -> None:
    limits = ReadLimits(pulls_in_flight=200, count_per_pull=1)
    (window,) = windows = windows_of(1, limits)
    for _, pull in list(due_pulls(windows, limits, 0)):
        answer(window, pull, 0)
    assert len(list(due_pulls(windows, limits, 1))) == 200


def test_pulls_in_flight_are_counted_for_each_broker_by_itself() -> None:
    limits = ReadLimits(count_per_pull=32)
    windows = windows_of(600, limits, brokers=2)
    pulls = list(due_pulls(windows, limits, 0))
    counts = Counter(window.wanted.queue.broker for window, _ in pulls)
    assert counts == {"broker-0": PULLS_PER_BROKER_MAX, "broker-1": PULLS_PER_BROKER_MAX}
    assert list(due_pulls(windows, limits, 1)) == []
    for window, pull in pulls:
        if window.wanted.queue.broker == "broker-1":
            answer(window, pull, 1)
    again = {window.wanted.queue.broker for window, _ in due_pulls(windows, limits, 2)}
    assert again == {"broker-1"}


def test_a_failing_range_leaves_its_pulls_to_others() -> None:
    limits = ReadLimits(count_per_pull=32)
    windows = windows_of(600, limits)
    pulls = list(due_pulls(windows, limits, 0))
    for window, pull in pulls:
        window.on_failure(pull.ticket, ConnectionLostError("broker-0", "reset"), 0)
    others = {window.wanted.queue.index for window, _ in due_pulls(windows, limits, 1)}
    assert others == set(range(PULLS_PER_BROKER_MAX, 2 * PULLS_PER_BROKER_MAX))
