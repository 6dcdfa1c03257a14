"""The shell around the engine: group commit, wake-ups, give-ups, and a disk that fails."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from typing import cast

import pyarrow as pa
import pytest

from rocketmq_arrow.encode.rows import encode_records
from rocketmq_broker.servers.shell.shell import EngineShell
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.store import Store
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import TopicConfig
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullStatus,
    SendBatch,
    SendMessage,
    SendRecords,
)
from rocketmq_wire.requests.offsets import GetCommittedOffset, GetMaxOffset
from rocketmq_wire.requests.pop import GetPollingCount, PopMessages
from rocketmq_wire.requests.topics import CreateTopic, DeleteTopic, ListTopics
from support.engines import PEER, STORE_HOST, EngineUnderTest, queue_of
from support.storage_blocks import bodies_of

ORDERS_0, ORDERS_1 = queue_of("orders"), queue_of("orders", 1)


class Disk:
    """A store whose syncs wait for the test, and may fail."""

    def __init__(self, store):
        self._store = store
        self.error = None
        self.count = 0
        self.gate = threading.Event()
        self.gate.set()

    def __getattr__(self, name):
        return getattr(self._store, name)

    def sync(self):
        self.count += 1
        assert self.gate.wait(timeout=20)
        if self.error is not None:
            raise self.error
        return self._store.sync()


def run(scenario, **settings):
    """Run a scenario with a shell over an engine, and stop the shell behind it."""

    async def whole():
        broker = EngineUnderTest(**{"flush": "sync", **settings})
        disk = Disk(broker.store)
        shell = EngineShell(broker.engine, cast(Store, disk), broker.config)
        await shell.start()
        try:
            await shell.ask(CreateTopic(TopicConfig("orders", 2, 2)), PEER)
            return await scenario(shell, disk)
        finally:
            disk.gate.set()
            await shell.stop_serving()
            await shell.close()

    return asyncio.run(whole())


def send(body=b"x"):
    return SendMessage("p", ORDERS_0, 1, body)


def pull(start=0, queue=ORDERS_0, **more):
    return PullMessages("g", queue, start, 1_000, **more)


async def let_run(count=20):
    for _ in range(count):
        await asyncio.sleep(0)


def test_send_is_answered_and_seen_only_when_it_is_on_disk():
    async def scenario(shell, disk):
        disk.gate.clear()
        sending = asyncio.ensure_future(shell.ask(send(), PEER))
        waiting = asyncio.ensure_future(shell.ask(pull(suspend_ms=10_000), PEER))
        await let_run()
        assert not sending.done()
        assert not waiting.done()
        assert (await shell.ask(GetMaxOffset(ORDERS_0), PEER)).value == 0
        disk.gate.set()
        reply, found = await asyncio.gather(sending, waiting)
        return reply.start, bodies_of(found.records)

    assert run(scenario) == (0, [b"x"])


def test_many_sends_share_few_syncs():
    async def scenario(shell, disk):
        disk.gate.clear()
        sends = [asyncio.ensure_future(shell.ask(send(b"%d" % n), PEER)) for n in range(200)]
        await let_run()
        disk.gate.set()
        replies = await asyncio.gather(*sends)
        return [reply.start for reply in replies], disk.count

    offsets, count = run(scenario)
    assert offsets == list(range(200))
    assert count <= 3


def batch(queue, *bodies):
    return SendBatch("p", queue, 1, encode_batch(BatchEntry(0, body, b"") for body in bodies))


def records(queue, *bodies):
    laid_out = encode_records(
        queue.topic, pa.array(bodies, pa.binary()), born_ms=1, born_host=STORE_HOST
    )
    return SendRecords("p", queue, *laid_out)


async def answers_of(shell, disk, requests):
    """The replies to requests that come while a sync runs."""
    disk.gate.clear()
    first = asyncio.ensure_future(shell.ask(batch(ORDERS_0, b"first"), PEER))
    await let_run()
    sends = [asyncio.ensure_future(shell.ask(request, PEER)) for request in requests]
    await let_run()
    end = disk.appended_end
    assert not any(send.done() for send in sends)
    disk.gate.set()
    await first
    return end, await asyncio.gather(*sends, return_exceptions=True)


@pytest.mark.parametrize("make", [batch, records])
def test_sends_that_come_during_a_sync_are_stored_together_and_in_order(make):
    async def scenario(shell, disk):
        requests = [make(ORDERS_0, b"a", b"b"), make(ORDERS_1, b"c"), make(ORDERS_0, b"d")]
        _, replies = await answers_of(shell, disk, requests)
        found = [await shell.ask(pull(), PEER), await shell.ask(pull(queue=ORDERS_1), PEER)]
        stored = [(reply.queue_index, reply.start, reply.count) for reply in replies]
        ids = [reply.message_id.count(",") for reply in replies]
        return disk.count, stored, ids, [bodies_of(each.records) for each in found]

    count, stored, ids, bodies = run(scenario)
    assert stored == [(0, 1, 2), (1, 0, 1), (0, 3, 1)]
    assert bodies == [[b"first", b"a", b"b", b"d"], [b"c"]]
    assert ids == ([1, 0, 0] if make is batch else [0, 0, 0])
    assert count == 2


@pytest.mark.parametrize("make", [batch, records])
def test_a_bad_send_among_those_stored_together_is_refused_alone(make):
    async def scenario(shell, disk):
        good, bad = make(ORDERS_0, b"a"), make(ORDERS_0, b"b")
        torn = "body" if make is batch else "records"
        bad = replace(bad, **{torn: getattr(bad, torn)[:-1]})
        elsewhere = make(queue_of("orders", 9), b"c")
        _, replies = await answers_of(shell, disk, [good, bad, elsewhere, make(ORDERS_0, b"d")])
        return replies, bodies_of((await shell.ask(pull(), PEER)).records)

    (first, refused, elsewhere, last), bodies = run(scenario)
    assert (first.start, last.start) == (1, 2)
    assert isinstance(refused, BrokerError)
    assert isinstance(elsewhere, BrokerError)
    assert bodies == [b"first", b"a", b"d"]


def test_a_single_message_is_stored_behind_the_batches_that_came_before_it():
    async def scenario(shell, disk):
        requests = [
            batch(ORDERS_0, b"a"),
            records(ORDERS_0, b"b"),
            send(b"c"),
            batch(ORDERS_0, b"d"),
        ]
        _, replies = await answers_of(shell, disk, requests)
        return [reply.start for reply in replies]

    assert run(scenario) == [1, 2, 3, 4]


def test_much_that_comes_during_a_sync_is_stored_before_that_ends():
    async def scenario(shell, disk):
        before = disk.appended_end
        large = [batch(ORDERS_0, b"x" * 400_000) for _ in range(3)]
        end, replies = await answers_of(shell, disk, large)
        return end - before > 1_200_000, [reply.start for reply in replies]

    assert run(scenario) == (True, [1, 2, 3])


def test_sends_that_wait_for_a_sync_that_fails_are_refused(caplog):
    async def scenario(shell, disk):
        disk.gate.clear()
        disk.error = StorageError("commitlog", 7, "no space left on device")
        asked = [batch(ORDERS_0, b"a"), batch(ORDERS_0, b"b"), batch(ORDERS_0, b"c")]
        sends = [asyncio.ensure_future(shell.ask(request, PEER)) for request in asked]
        await let_run()
        end = disk.appended_end
        disk.gate.set()
        errors = await asyncio.gather(*sends, return_exceptions=True)
        return [getattr(error, "code", None) for error in errors], disk.appended_end - end

    with caplog.at_level(logging.CRITICAL):
        # The outcome of the first is unknown; the others were never written and may be sent again.
        assert run(scenario) == ([1, 14, 14], 0)


def test_stopping_stores_what_waits_for_a_sync():
    async def scenario(shell, disk):
        disk.gate.clear()
        sends = [asyncio.ensure_future(shell.ask(batch(ORDERS_0, b"a"), PEER)) for _ in range(3)]
        await let_run()
        stopping = asyncio.ensure_future(shell.stop_serving())
        await let_run()
        disk.gate.set()
        replies = await asyncio.gather(*sends)
        await stopping
        return [reply.start for reply in replies]

    assert run(scenario) == [0, 1, 2]


@pytest.mark.parametrize("flush", ["async", "memory"])
def test_without_sync_a_send_is_answered_and_wakes_pulls_at_once(flush):
    async def scenario(shell, disk):
        disk.gate.clear()
        waiting = asyncio.ensure_future(shell.ask(pull(suspend_ms=10_000), PEER))
        await let_run()
        await shell.ask(send(), PEER)
        return (await waiting).next_begin

    assert run(scenario, flush=flush, flush_interval_ms=60_000) == 1


def test_asynchronous_flush_reaches_the_disk_soon():
    async def scenario(shell, disk):
        await shell.ask(send(), PEER)
        end = disk.appended_end
        await until(lambda: disk.durable_end >= end)

    run(scenario, flush="async", flush_interval_ms=1)


async def until(condition):
    for _ in range(20_000):
        if condition():
            return
        await asyncio.sleep(0.001)
    pytest.fail("nothing happened")


def test_key_index_follows_the_log_while_messages_trickle_in():
    async def scenario(shell, disk):
        for _ in range(3):
            await shell.ask(send(), PEER)
            await until(lambda: disk.index_lag == 0)

    run(scenario)


def test_failed_sync_refuses_writes_and_leaves_reads_alone(caplog):
    async def scenario(shell, disk):
        await shell.ask(send(b"kept"), PEER)
        disk.error = StorageError("commitlog", 7, "no space left on device")
        with pytest.raises(BrokerError, match="may be stored or not") as unknown:
            await shell.ask(send(b"lost"), PEER)
        with pytest.raises(BrokerError, match="takes no writes") as refused:
            await shell.ask(send(b"late"), PEER)
        found = await shell.ask(pull(), PEER)
        return unknown.value, refused.value, bodies_of(found.records)

    with caplog.at_level(logging.CRITICAL):
        unknown, refused, bodies = run(scenario)
    # A send with an unknown outcome must not be repeated blindly; a refused one may be.
    assert (unknown.code, unknown.retryable) == (1, False)
    assert (refused.code, refused.retryable) == (14, True)
    assert bodies == [b"kept"]


def test_request_that_fails_by_a_mistake_of_ours_is_answered_with_1(caplog):
    async def scenario(shell, _):
        shell.engine.tables.topics.all = lambda: 1 / 0
        await shell.ask(ListTopics(), PEER)

    with caplog.at_level(logging.CRITICAL), pytest.raises(BrokerError) as caught:
        run(scenario)
    assert caught.value.code == 1


def test_deleted_topic_ends_waiting_pulls():
    async def scenario(shell, _):
        waiting = asyncio.ensure_future(shell.ask(pull(suspend_ms=10_000), PEER))
        await let_run()
        await shell.ask(DeleteTopic("orders"), PEER)
        with pytest.raises(BrokerError) as caught:
            await waiting
        return caught.value.code

    assert run(scenario) == 17


def test_held_pops_of_a_queue_are_counted():
    async def scenario(shell, _):
        pop = PopMessages("g", ORDERS_0, 1, 60_000, poll_ms=20_000)
        waiting = asyncio.create_task(shell.ask(pop, PEER))
        await let_run()
        counts = [
            (await shell.ask(GetPollingCount("g", queue), PEER)).count
            for queue in (ORDERS_0, ORDERS_1)
        ]
        with pytest.raises(BrokerError) as caught:
            await shell.ask(GetPollingCount("g", queue_of("unknown")), PEER)
        waiting.cancel()
        return counts, caught.value.code

    assert run(scenario) == ([1, 0], 17)


def test_cancelled_pull_waits_no_more():
    async def scenario(shell, _):
        waiting = asyncio.ensure_future(shell.ask(pull(suspend_ms=10_000), PEER))
        await let_run()
        before = shell.held_count(PEER)
        waiting.cancel()
        await let_run()
        return before, shell.held_count(PEER)

    assert run(scenario) == (1, 0)


def test_pull_ends_with_its_time():
    async def scenario(shell, _):
        return (await shell.ask(pull(suspend_ms=1), PEER)).status

    assert run(scenario) is PullStatus.NO_NEW_MESSAGE


def test_stop_answers_held_requests_and_saves_committed_offsets():
    async def whole():
        broker = EngineUnderTest(flush="sync")
        shell = EngineShell(broker.engine, broker.store, broker.config)
        await shell.start()
        await shell.ask(CreateTopic(TopicConfig("orders", 2, 2)), PEER)
        sending = asyncio.ensure_future(shell.ask(send(), PEER))
        waiting = asyncio.ensure_future(shell.ask(pull(suspend_ms=10_000, commit=1), PEER))
        await let_run()
        await shell.stop_serving()
        with pytest.raises(BrokerError, match="stopping"):
            await shell.ask(send(), PEER)
        assert (await sending).start == 0
        assert (await waiting).status in (PullStatus.FOUND, PullStatus.NO_NEW_MESSAGE)
        await shell.close()
        return broker.files

    after = EngineUnderTest(asyncio.run(whole()))
    assert after.ask(GetCommittedOffset("g", ORDERS_0)).value == 1
    assert after.ask(GetMaxOffset(ORDERS_0)).value == 1
