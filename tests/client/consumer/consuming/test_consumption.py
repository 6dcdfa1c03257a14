"""Consumption of batches step by step, without threads or sockets."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, cast

import pytest

from rocketmq_client.consumer.common.io_thread import IoThread, now_ms
from rocketmq_client.consumer.common.listener import (
    ConsumeContext,
    ConsumeStatus,
    Listener,
    OrderlyStatus,
)
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumerSettings, FlowLimits, MessageModel
from rocketmq_client.consumer.consuming.consumption import (
    ConcurrentConsumption,
    OrderlyConsumption,
)
from rocketmq_client.consumer.consuming.listener_calls import ListenerCalls
from rocketmq_client.consumer.consuming.thread_pool import ConsumePool
from rocketmq_client.consumer.pulling.process_queue import ProcessQueue, PullControl
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue
from rocketmq_wire.errors import broker_error
from rocketmq_wire.model import QueueId, Subscription
from rocketmq_wire.requests.messages import SendBack
from support.group_fakes import FakeIo
from support.received_messages import received

QUEUE = QueueId("T", "a", 0)
IO = cast(IoThread, FakeIo())


class HandPool(ConsumePool):
    """A pool whose work the test runs."""

    def __init__(self, io: FakeIo) -> None:
        super().__init__("p", 0, cast(IoThread, io))
        self.work: list[Callable[[], None]] = []
        self.is_full = False

    def put(self, work: Callable[[], None]) -> bool:
        if not self.is_full:
            self.work.append(work)
        return not self.is_full

    def run(self) -> None:
        while self.work:
            self.work.pop(0)()


@pytest.fixture
def io() -> FakeIo:
    return FakeIo()


@pytest.fixture
def pool(io: FakeIo) -> HandPool:
    return HandPool(io)


def owned_queue(count: int) -> OwnedQueue:
    process = ProcessQueue(0)
    process.add([received(offset) for offset in range(count)], count)
    process.is_locked, process.lock_ms = True, now_ms()
    return OwnedQueue(QUEUE, process, PullControl(FlowLimits()), Subscription(), frozenset())


def concurrent(
    io: FakeIo, pool: HandPool, status: object, **settings: object
) -> ConcurrentConsumption:
    listener = cast(Any, lambda *_: status)
    return ConcurrentConsumption(
        cast(IoThread, io),
        ListenerCalls(ConsumerSettings("g", **settings), listener),  # type: ignore[arg-type]
        pool,
        lambda _: None,
    )


def orderly(io: FakeIo, pool: HandPool, listener: Listener) -> OrderlyConsumption:
    return OrderlyConsumption(
        cast(IoThread, io),
        ListenerCalls(ConsumerSettings("g"), listener, is_orderly=True),
        pool,
        lambda _: None,
    )


def test_rejected_work_is_repeated_after_5_s(io: FakeIo, pool: HandPool) -> None:
    consumption = concurrent(io, pool, ConsumeStatus.SUCCESS)
    owned = owned_queue(1)
    pool.is_full = True
    before_ms = now_ms()
    consumption.on_messages(owned, owned.process.first(1))
    io.run()
    ((due_ms, again),) = io.timers
    assert due_ms >= before_ms + 5_000
    pool.is_full = False
    again()
    pool.run()
    assert owned.process.count == 0


def test_a_pool_has_a_limit_and_a_closed_one_takes_nothing() -> None:
    pool = ConsumePool("p", 0, IO, capacity=2)
    assert [pool.put(lambda: None) for _ in range(3)] == [True, True, False]
    assert pool.shut_down(0)
    assert not pool.put(lambda: None)
    pool.resize(1)  # As by a start in another thread: its threads would wait forever.
    assert pool.shut_down(0)


def test_surplus_threads_end_also_at_shutdown() -> None:
    pool = ConsumePool("p", 2, IO)
    pool.resize(1)
    assert pool.shut_down(5_000)


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError])
def test_an_exception_of_work_ends_no_thread(error: type[BaseException]) -> None:
    pool, done = ConsumePool("p", 1, IO), threading.Event()

    def fail() -> None:
        raise error

    pool.put(fail)
    pool.put(done.set)
    assert done.wait(30)
    assert pool.shut_down(5_000)


def test_every_thread_works_while_listeners_wait() -> None:
    pool, together = ConsumePool("p", 8, IO), threading.Barrier(8)
    done: SimpleQueue[int] = SimpleQueue()

    def wait_for_all() -> None:
        done.put(together.wait(30))

    for _ in range(16):  # Twice as many as threads: each takes a second one.
        pool.put(wait_for_all)
    assert sorted(done.get(timeout=30) for _ in range(16)) == sorted(2 * [*range(8)])
    assert pool.shut_down(5_000)


def test_no_work_is_forgotten_while_threads_come_and_go() -> None:
    pool, done = ConsumePool("p", 3, IO), threading.Event()
    count, found = 20_000, itertools.count(1)

    def work() -> None:
        if next(found) == count:
            done.set()

    senders = [
        threading.Thread(target=lambda: [pool.put(work) for _ in range(count // 4)])
        for _ in range(4)
    ]
    for sender in senders:
        sender.start()
    for size in (1, 4, 2, 5, 1, 3):
        pool.resize(size)
    assert done.wait(30)
    for sender in senders:
        sender.join()
    assert pool.shut_down(5_000)


def test_in_broadcasting_failures_are_dropped(io: FakeIo, pool: HandPool) -> None:
    consumption = concurrent(
        io, pool, ConsumeStatus.RECONSUME_LATER, model=MessageModel.BROADCASTING
    )
    owned = owned_queue(3)
    consumption.consume(owned, owned.process.first(3))
    assert owned.process.consumed_offset == 3
    assert consumption.calls.counts.failed == 3
    assert io.asked == []


def test_a_message_whose_send_back_fails_is_retried_here(io: FakeIo, pool: HandPool) -> None:
    consumption = concurrent(io, pool, ConsumeStatus.RECONSUME_LATER)
    io.fail = lambda request: (
        broker_error(1, "disk full")
        if isinstance(request, SendBack) and request.physical_offset == 1_000
        else None
    )
    owned = owned_queue(2)
    first, second = owned.process.first(2)
    consumption.consume(owned, [first, second])
    assert list(owned.process.pending) == [1], (
        "the message sent back is consumed, the other one is not"
    )
    assert (first.reconsume_times, second.reconsume_times) == (0, 1)
    io.run()
    assert len(io.timers) == 1


def empty(messages: list[ReceivedMessage], context: ConsumeContext) -> ConsumeStatus:
    del context
    messages.clear()
    return ConsumeStatus.SUCCESS


def test_a_listener_that_empties_its_list_consumes_its_messages(io: FakeIo, pool: HandPool) -> None:
    consumption = concurrent(io, pool, None)
    consumption.calls.listener = empty
    owned = owned_queue(3)
    consumption.consume(owned, owned.process.first(3))
    assert (owned.process.consumed_offset, consumption.calls.counts.succeeded) == (3, 3)


def test_an_orderly_listener_that_empties_its_list_consumes_its_messages(
    io: FakeIo, pool: HandPool
) -> None:
    seen: list[int] = []

    def listener(messages: list[ReceivedMessage], context: ConsumeContext) -> OrderlyStatus:
        seen.extend(message.queue_offset for message in messages)
        empty(messages, context)
        return OrderlyStatus.SUCCESS

    owned = owned_queue(3)
    orderly(io, pool, listener).on_messages(owned, [])
    pool.run()
    assert (seen, owned.process.consumed_offset) == ([0, 1, 2], 3)


def test_messages_of_a_lost_queue_are_neither_consumed_nor_sent_back(
    io: FakeIo, pool: HandPool
) -> None:
    consumption = concurrent(io, pool, None)
    owned = owned_queue(2)
    messages = owned.process.first(2)
    owned.process.drop()
    consumption.consume(owned, messages)
    assert (owned.process.count, io.asked) == (2, [])
    assert consumption.calls.counts.failed == 0


def test_a_listener_that_is_too_slow_has_its_messages_sent_back_with_level_3(
    io: FakeIo, pool: HandPool
) -> None:
    owned = owned_queue(1)
    messages = owned.process.first(1)

    def slow(got: list[ReceivedMessage], context: ConsumeContext) -> ConsumeStatus:
        del got, context
        consumption.expire(now_ms() + 15 * 60_000)
        assert io.asked == [], "a quarter of an hour is not over"
        consumption.expire(now_ms() + 15 * 60_000 + 1_000)
        return ConsumeStatus.SUCCESS

    consumption = concurrent(io, pool, None)
    consumption.calls.listener = slow
    consumption.consume(owned, messages)
    (sent,) = io.asked_of(SendBack)
    assert (sent.delay_level, sent.attempts_max) == (3, 16)
    assert owned.process.consumed_offset == 1
    assert consumption.calls.counts.succeeded == 0, "its later result is ignored"


def test_shutdown_stops_an_orderly_queue_between_two_batches(io: FakeIo, pool: HandPool) -> None:
    def listener(messages: list[ReceivedMessage], context: ConsumeContext) -> OrderlyStatus:
        del context
        if messages[0].queue_offset == 1:
            consumption.stop()
        return OrderlyStatus.SUCCESS

    consumption = orderly(io, pool, listener)
    owned = owned_queue(5)
    consumption.on_messages(owned, [])
    pool.run()
    assert owned.process.consumed_offset == 2
    assert owned.consume_lock.acquire(blocking=False)


def test_a_leaving_orderly_queue_is_given_up_between_two_batches(
    io: FakeIo, pool: HandPool
) -> None:
    def listener(messages: list[ReceivedMessage], context: ConsumeContext) -> OrderlyStatus:
        del context
        owned.is_leaving = messages[0].queue_offset == 1
        return OrderlyStatus.SUCCESS

    consumption = orderly(io, pool, listener)
    owned = owned_queue(5)
    consumption.on_messages(owned, [])
    pool.run()
    assert owned.process.consumed_offset == 2
    assert not owned.consume_lock.locked()
    owned.is_leaving = False  # It stays after all.
    io.run()
    ((_, again),) = io.timers
    again()
    pool.run()
    assert owned.process.consumed_offset == 5


def test_without_its_lock_an_orderly_queue_waits_3_s(io: FakeIo, pool: HandPool) -> None:
    consumption = orderly(io, pool, lambda *_: OrderlyStatus.SUCCESS)
    owned = owned_queue(1)
    owned.process.is_locked = False
    before_ms = now_ms()
    consumption.on_messages(owned, [])
    pool.run()
    io.run()
    assert owned.process.count == 1
    assert io.timers[0][0] >= before_ms + 3_000
