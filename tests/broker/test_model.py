"""A broker's engine beside a model of it: after every step both hold the same.

The steps are sends now and later, messages sent back until they are dead letters, half messages and
their ends, transaction checks, committed offsets, locks, time, saved files, and crashes that lose
any part of the writes since the last sync. Looser models check pops and messages with a delivery
time, which may be recalled.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rocketmq_broker.engine.messages.delays import Delays
from rocketmq_broker.engine.pop.in_flight import InFlightPops
from rocketmq_broker.engine.pop.orderly import OrderlyPops
from rocketmq_broker.storage.log.durability import Durability
from rocketmq_broker.storage.queues.consume_queue import SCHEDULE_TOPIC
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.requests.groups import Heartbeat, LockQueues, QueuesReply, UnlockQueues
from rocketmq_wire.requests.messages import SendBack, SendMessage
from rocketmq_wire.requests.offsets import CommitOffset
from rocketmq_wire.requests.transactions import EndTransaction, Resolution
from support.engines import NOW_MS, queue_of
from support.models.crashing_engine import CrashingEngine
from support.models.log_model import DEAD, END_QUEUE, GROUP, HALF_QUEUE, RETRY, LogModel, Queue
from support.models.orderly_pop_model import OrderlyPopModel
from support.models.pop_model import PopModel
from support.models.timer_model import TimerModel
from support.pops import turn

ORDERS: list[Queue] = [("orders", 0), ("orders", 1)]
CONSUMED = [*ORDERS, RETRY]
STEPS = 10_000
STEPS_A_LIFE = 125
LEVELS = st.sampled_from([1, 1, 2, 3, 4])


def id_of(queue: Queue) -> QueueId:
    return queue_of(*queue)


class Comparison(RuleBasedStateMachine):
    """One life of a broker and its model."""

    steps = 0
    """The steps of all lives that did something."""
    is_idle = False
    """True if the last step found nothing to do."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.real, self.model = CrashingEngine(), LogModel(NOW_MS)
        self.pops = PopModel(self.real.broker)
        self.orders = OrderlyPopModel(self.real.broker)
        self.timers = TimerModel(self.real.broker)
        self.asked: dict[int, int] = {}
        self.count = 0

    def body(self) -> bytes:
        self.count += 1
        return b"%d" % self.count

    # --- messages -----------------------------------------------------------------------------

    @rule(queue=st.sampled_from(ORDERS), level=st.sampled_from([0, 0, 1, 2, 4]), sync=st.booleans())
    def send(self, queue: Queue, level: int, sync: bool) -> None:
        body = self.body()
        named = {"DELAY": str(level)} if level else {}
        self.real.tell(
            SendMessage("p", id_of(queue), self.model.now_ms, body, encode_properties(named))
        )
        self.model.send(queue, body, level)
        if sync:
            self.sync()

    @rule()
    def sync(self) -> None:
        self.real.sync()
        self.model.sync()

    @precondition(lambda self: self.model.durable)
    @rule(
        queue=st.sampled_from(CONSUMED),
        choice=st.integers(0, 1_000),
        level=st.sampled_from([-1, 0, 0, 1, 2]),
        attempts_max=st.sampled_from([None, None, 1, 2]),
        sync=st.booleans(),
    )
    def give_back(
        self, queue: Queue, choice: int, level: int, attempts_max: int | None, sync: bool
    ) -> None:
        entries = self.model.entries(queue)
        if not entries:
            self.is_idle = True
            return
        at = choice % len(entries)
        message = self.real.messages(queue)[at]
        self.real.tell(SendBack(GROUP, message.physical_offset, level, attempts_max=attempts_max))
        self.model.send_back(entries[at], level, attempts_max)
        if sync:
            self.sync()

    @rule(queue=st.sampled_from(ORDERS), sync=st.booleans())
    def send_half(self, queue: Queue, sync: bool) -> None:
        body = self.body()
        named = encode_properties({"TRAN_MSG": "true", "PGROUP": "p", "UNIQ_KEY": f"K{self.count}"})
        self.real.tell(SendMessage("p", id_of(queue), self.model.now_ms, body, named, sys_flag=4))
        self.model.half(queue, body)
        if sync:
            self.sync()

    @rule(choice=st.integers(0, 1_000), is_commit=st.booleans(), sync=st.booleans())
    def end_half(self, choice: int, is_commit: bool, sync: bool) -> None:
        visible = len(self.model.entries(HALF_QUEUE))
        pending = [(at, entry) for at, entry in self.model.pending() if at < visible]
        if not pending:
            self.is_idle = True
            return
        offset, entry = pending[choice % len(pending)]
        position = self.real.messages(HALF_QUEUE)[offset].physical_offset
        wanted = Resolution.COMMIT if is_commit else Resolution.ROLLBACK
        self.real.tell(EndTransaction("p", offset, position, wanted))
        self.model.end(offset, entry, is_commit=is_commit)
        if sync:
            self.sync()

    @rule()
    def ask_producers(self) -> None:
        """No check comes for a half message that is ended, too young, or was just checked."""
        real, now_ms = self.real.broker, self.model.now_ms
        real.ask(Heartbeat("c@2", ("p",), ()))
        checks, _ = real.engine.transactions.take_checks(now_ms)
        config, pending = real.config, dict(self.model.pending())
        for check in checks:
            offset = check.request.half_offset
            assert now_ms >= pending[offset].stored_ms + config.transaction_timeout_ms
            last_ms = self.asked.get(offset, 0)
            assert now_ms >= last_ms + config.transaction_check_interval_ms
            self.asked[offset] = now_ms
        self.sync()

    # --- groups -------------------------------------------------------------------------------

    @rule(queue=st.sampled_from(CONSUMED), offset=st.integers(0, 50))
    def commit(self, queue: Queue, offset: int) -> None:
        self.real.broker.ask(CommitOffset(GROUP, id_of(queue), offset))
        self.model.committed[queue] = offset

    @rule(queue=st.sampled_from(ORDERS), client_id=st.sampled_from(["c1", "c2"]))
    def lock(self, queue: Queue, client_id: str) -> None:
        reply = self.real.broker.ask(LockQueues(GROUP, client_id, (id_of(queue),)))
        assert isinstance(reply, QueuesReply)
        assert bool(reply.queues) == self.model.lock(queue, client_id)

    @rule(queue=st.sampled_from(ORDERS), client_id=st.sampled_from(["c1", "c2"]))
    def unlock(self, queue: Queue, client_id: str) -> None:
        self.real.broker.ask(UnlockQueues(GROUP, client_id, (id_of(queue),)))
        self.model.unlock(queue, client_id)

    # --- pop ----------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4))
    def put_jobs(self, count: int) -> None:
        self.pops.put([self.body() for _ in range(count)])
        self.sync()

    @rule(count=st.integers(1, 8), invisible_ms=st.sampled_from([1_000, 10_000, 60_000]))
    def pop(self, count: int, invisible_ms: int) -> None:
        self.pops.pop(count, invisible_ms)
        self.sync()

    @precondition(lambda self: self.pops.out)
    @rule(choice=st.integers(0, 1_000), count=st.sampled_from([1, 1, 3, 8]))
    def ack(self, choice: int, count: int) -> None:
        self.is_idle = not self.pops.ack(choice, count)
        self.sync()

    @precondition(lambda self: self.pops.out)
    @rule(choice=st.integers(0, 1_000), invisible_ms=st.sampled_from([500, 30_000]))
    def renew(self, choice: int, invisible_ms: int) -> None:
        self.is_idle = not self.pops.renew(choice, invisible_ms)
        self.sync()

    @precondition(lambda self: self.pops.loose)
    @rule()
    def finish_jobs(self) -> None:
        """Wait until all pops from before a crash are over, so that every promise counts again."""

        def pass_time() -> None:
            for _ in range(2):
                self.pass_time(ms=61_000, sync=True)

        self.pops.drain(pass_time)
        self.sync()

    # --- pop in order -------------------------------------------------------------------------

    @rule(count=st.integers(1, 4))
    def put_ordered_jobs(self, count: int) -> None:
        self.orders.put([self.body() for _ in range(count)])
        self.sync()

    @precondition(lambda self: self.orders.sent)
    @rule(count=st.integers(1, 8), invisible_ms=st.sampled_from([1_000, 10_000, 60_000]))
    def pop_in_order(self, count: int, invisible_ms: int) -> None:
        self.is_idle = not self.orders.pop(count, invisible_ms)
        self.sync()

    @precondition(lambda self: self.orders.taken.until_ms)
    @rule(choice=st.integers(0, 1_000), count=st.sampled_from([1, 1, 2, 8]))
    def ack_in_order(self, choice: int, count: int) -> None:
        self.is_idle = not self.orders.ack(choice, count)
        self.sync()

    @precondition(lambda self: self.orders.taken.until_ms)
    @rule(choice=st.integers(0, 1_000), invisible_ms=st.sampled_from([500, 30_000]))
    def renew_in_order(self, choice: int, invisible_ms: int) -> None:
        self.is_idle = not self.orders.renew(choice, invisible_ms)
        self.sync()

    # --- delivery times -----------------------------------------------------------------------

    @rule(delay_ms=st.sampled_from([1, 700, 5_000, 60_000]))
    def put_later(self, delay_ms: int) -> None:
        self.timers.put(self.body(), delay_ms)
        self.sync()

    @precondition(lambda self: self.timers.waiting)
    @rule(choice=st.integers(0, 1_000))
    def recall(self, choice: int) -> None:
        self.timers.recall(choice)
        self.sync()

    # --- time and the disk --------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 500, 1_000, 5_000, 10_000, 40_000, 61_000]), sync=st.booleans())
    def pass_time(self, ms: int, sync: bool) -> None:
        self.real.pass_time(ms)
        self.model.pass_time(ms)
        if sync:
            self.pops.turn()
            self.timers.turn()
            self.sync()

    @rule()
    def save(self) -> None:
        self.real.save()
        self.model.save()
        self.orders.save()

    @rule(seed=st.integers(0, 2**32))
    def crash(self, seed: int) -> None:
        self.is_idle = self.chance.random() < 0.5
        if not self.is_idle:
            self.lose_power(seed)

    def lose_power(self, seed: int) -> None:
        self.real.crash(random.Random(seed))
        self.model.crash(sum(self.real.end(queue) for queue in self.tracked()))
        self.pops.crash(self.real.broker)
        self.orders.crash(self.real.broker)
        self.timers.crash(self.real.broker)
        self.asked.clear()

    def tracked(self) -> list[Queue]:
        waiting = [(SCHEDULE_TOPIC, level) for level in range(18)]
        return [*CONSUMED, DEAD, HALF_QUEUE, END_QUEUE, *waiting]

    # --- the comparison -----------------------------------------------------------------------

    @invariant()
    def both_hold_the_same(self) -> None:
        if not hasattr(self, "model"):
            return
        type(self).steps += not self.is_idle
        self.is_idle = False
        real, all_entries = self.real, self.model.all_entries()
        for queue in self.tracked():
            entries = all_entries.get(queue, [])
            assert real.end(queue) == len(entries), queue
            compared = len(real.seen.get(queue, ()))
            messages = real.messages(queue)
            for entry, message in zip(entries[compared:], messages[compared:], strict=True):
                assert (message.body, message.reconsume_times) == (entry.body, entry.attempts)
                # The restart writes a lost end record at its own time.
                assert message.store_ms == entry.stored_ms or queue == END_QUEUE
        assert real.broker.engine.delays.waiting() == self.model.waiting()
        assert real.broker.engine.transactions.pending_count == len(list(self.model.pending()))
        committed = real.broker.engine.tables.committed
        for queue in CONSUMED:
            assert committed.get(GROUP, id_of(queue)) == self.model.committed.get(queue), queue
        self.pops.check()
        self.orders.check()

    def teardown(self) -> None:
        if hasattr(self, "pops"):
            self.pops.drain(lambda: turn(self.real.broker, after_ms=120_000))
            self.timers.turn()


def compare(steps: int) -> None:
    """Run a number of steps in separate lives. Raises at the first difference."""
    Comparison.steps = 0
    run_state_machine_as_test(
        Comparison,
        settings=settings(
            max_examples=steps // STEPS_A_LIFE,
            stateful_step_count=STEPS_A_LIFE,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_ten_thousand_steps_without_a_difference() -> None:
    left = STEPS
    while left > 0:
        # Some lives are shorter.
        compare(max(left, 10 * STEPS_A_LIFE))
        left -= Comparison.steps


def without_waiting_for_the_disk(patch: pytest.MonkeyPatch) -> None:
    """Save the delay offsets before their deliveries are durable."""
    patch.setattr(
        Delays, "take_changes", lambda self, _, take=Delays.take_changes: take(self, 2**62)
    )


def without_syncs(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge sends before they are on disk."""
    patch.setattr(Durability, "sync", lambda _: 2**62)
    patch.setattr(Durability, "end", 2**62)


def delayed_and_lost(seed: int) -> None:
    """A message is delivered late, files are saved, and power is lost before a sync."""
    life = Comparison()
    life.begin(seed=seed)
    life.send(queue=ORDERS[0], level=1, sync=True)
    life.pass_time(ms=1_000, sync=False)
    life.save()
    life.lose_power(seed)
    life.both_hold_the_same()


def sent_and_lost(seed: int) -> None:
    """Power is lost after a message was acknowledged."""
    life = Comparison()
    life.begin(seed=seed)
    life.send(queue=ORDERS[0], level=0, sync=True)
    life.lose_power(seed)
    life.both_hold_the_same()


def without_batch_acks(patch: pytest.MonkeyPatch) -> None:
    """Answer acknowledgements of several messages without noting them."""
    patch.setattr(InFlightPops, "acknowledge", lambda *_: None)


def without_order(patch: pytest.MonkeyPatch) -> None:
    """Let a second orderly pop take the rest of a blocked queue."""
    patch.setattr(OrderlyPops, "is_blocked", lambda *_: False)


def popped_and_acknowledged(seed: int) -> None:
    """Messages are popped and acknowledged together."""
    life = Comparison()
    life.begin(seed=seed)
    life.put_jobs(count=4)
    life.pop(count=4, invisible_ms=60_000)
    life.both_hold_the_same()
    life.ack(choice=seed, count=3)
    life.both_hold_the_same()


def popped_in_order(seed: int) -> None:
    """A second client pops while an orderly pop is in flight."""
    life = Comparison()
    life.begin(seed=seed)
    life.put_ordered_jobs(count=4)
    life.pop_in_order(count=2, invisible_ms=60_000)
    life.pop_in_order(count=2, invisible_ms=60_000)
    life.both_hold_the_same()


@pytest.mark.parametrize(
    ("history", "switch_off"),
    [
        (delayed_and_lost, without_waiting_for_the_disk),
        (sent_and_lost, without_syncs),
        (popped_and_acknowledged, without_batch_acks),
        (popped_in_order, without_order),
    ],
)
def test_a_protection_that_is_switched_off_is_found(
    history: Callable[[int], None],
    switch_off: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def every_seed() -> None:
        for seed in range(6):
            history(seed)

    every_seed()
    switch_off(monkeypatch)
    with pytest.raises(AssertionError):
        every_seed()
