"""The waits of the shell: held pulls for messages, sends for the disk."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rocketmq_broker.engine.core.outcomes import Hold
from rocketmq_broker.servers.shell.group_commit import GroupCommit
from rocketmq_broker.servers.shell.held_requests import Held, HeldPulls
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.messages import PullMessages


def held(index=0, start=5, peer_key=1, topic="orders"):
    queue = QueueId(topic, "broker-a", index)
    hold = Hold(queue, start, 1_000, PullMessages("g", queue, start, 32))
    return Held(hold, peer_key, lambda _: None)


class TestHeldPulls:
    def test_arrival_wakes_the_pulls_it_is_for(self):
        pulls = HeldPulls(count_max=10)
        waiting, further, elsewhere = held(start=5), held(start=6), held(index=1)
        for pull in (waiting, further, elsewhere):
            pulls.add(pull)
        assert pulls.take_arrived("orders", 0, 5) == []
        assert pulls.take_arrived("orders", 0, 6) == [waiting]
        assert pulls.take_arrived("orders", 0, 6) == []
        assert len(pulls) == 2

    def test_pulls_go_with_their_connection_or_topic(self):
        pulls = HeldPulls(count_max=10)
        mine, yours, other = held(peer_key=1), held(peer_key=2), held(peer_key=2, topic="other")
        for pull in (mine, yours, other):
            pulls.add(pull)
        assert pulls.count_of_peer(2) == 2
        assert pulls.take_peer(1) == [mine]
        assert pulls.take_peer(1) == []
        assert pulls.take_topic("orders") == [yours]
        assert pulls.take_all() == [other]
        assert (len(pulls), pulls.count_of_peer(2)) == (0, 0)

    def test_the_limit_is_known(self):
        pulls = HeldPulls(count_max=1)
        assert not pulls.is_full
        pull = held()
        pulls.add(pull)
        assert pulls.is_full
        pulls.remove(pull)
        pulls.remove(pull)
        assert not pulls.is_full


def fail(unexpected: object) -> None:
    pytest.fail(f"called with {unexpected!r}")


class Disk:
    """A log whose sync ends when the test releases it."""

    def __init__(self):
        self.appended, self.count, self.error = 0, 0, None
        self.entered, self.release = threading.Semaphore(0), threading.Semaphore(0)

    def sync(self):
        reached = self.appended
        self.count += 1
        self.entered.release()
        assert self.release.acquire(timeout=10)
        if self.error is not None:
            raise self.error
        return reached


async def entered(disk):
    assert await asyncio.to_thread(disk.entered.acquire, timeout=10)


def test_sends_that_come_during_a_sync_share_the_next_one():
    async def scenario():
        disk = Disk()
        durable: list[int] = []
        commit = GroupCommit(disk.sync, on_durable=durable.append, on_failure=fail)
        disk.appended = 1
        commit.order(1)
        await entered(disk)
        for appended in (2, 3, 4):
            disk.appended = appended
            commit.order(appended)
        disk.release.release()
        await entered(disk)
        disk.release.release()
        await commit.finish()
        return disk.count, durable

    assert asyncio.run(scenario()) == (2, [1, 4])


def test_what_a_sync_reached_is_not_synced_again():
    async def scenario():
        disk = Disk()
        durable: list[int] = []
        commit = GroupCommit(disk.sync, on_durable=durable.append, on_failure=fail)
        disk.appended = 3
        for end in (1, 2, 3):
            commit.order(end)
        disk.release.release()
        await commit.finish()
        return disk.count, durable

    assert asyncio.run(scenario()) == (1, [3])


def test_a_failed_sync_is_reported_and_the_thread_ends_cleanly():
    async def scenario():
        disk = Disk()
        failures: list[Exception] = []
        disk.error = OSError("no space")
        commit = GroupCommit(disk.sync, on_durable=fail, on_failure=failures.append)
        commit.order(1)
        disk.release.release()
        await commit.finish()
        return failures

    # Brokers of other tests may run in this process.
    before = set(threading.enumerate())
    assert [str(error) for error in asyncio.run(scenario())] == ["no space"]
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name == "rocketmq-flush"]
