"""Carries out the engine's outcomes: replies, waits for the disk, held pulls, periodic work.

All servers share one shell. It owns the engine and the store, and runs on one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar, cast

from rocketmq_broker import peer_log
from rocketmq_broker.config import BrokerConfig
from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.outcomes import (
    AfterSync,
    Answer,
    AskMembers,
    CountHeldPops,
    Hold,
    HoldPop,
    Outcome,
    Peer,
)
from rocketmq_broker.engine.engine import Engine
from rocketmq_broker.servers.shell.clock import BrokerClock
from rocketmq_broker.servers.shell.group_commit import GroupCommit
from rocketmq_broker.servers.shell.held_requests import Done, GiveUp, Held, HeldPulls, PopWaiters
from rocketmq_broker.servers.shell.housekeeping import Housekeeping, repeat
from rocketmq_broker.servers.shell.member_calls import AskClient, MemberCalls
from rocketmq_broker.storage.errors import DamagedStoreError, StorageError
from rocketmq_broker.storage.settings import Arrival
from rocketmq_broker.storage.store import Store
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, RocketMQError, broker_error
from rocketmq_wire.requests.contract import CountReply, Reply, Request
from rocketmq_wire.requests.groups import Heartbeat, UnregisterClient
from rocketmq_wire.requests.messages import (
    RecallMessage,
    SendBack,
    SendBatch,
    SendMessage,
    SendRecords,
)
from rocketmq_wire.requests.pop import ChangeInvisibleTime
from rocketmq_wire.requests.topics import CreateTopic, DeleteTopic
from rocketmq_wire.requests.transactions import CheckTransaction, EndTransaction

R = TypeVar("R", bound=Reply)

_LOG = logging.getLogger(__name__)
_SENDS: Final = (*(SendMessage, SendBatch, SendRecords, SendBack), *(EndTransaction, RecallMessage))
_WRITES: Final = (*_SENDS, ChangeInvisibleTime)
_WRITE_NAMES: Final = frozenset(request.__name__ for request in _WRITES)
_GATHERED: Final = (SendBatch, SendRecords)
_TOPIC_CHANGES: Final = (CreateTopic, DeleteTopic)
_MEMBER_CHANGES: Final = (Heartbeat, UnregisterClient)
_DELIVERY_SECONDS: Final = 0.05
_CHECKS_SECONDS: Final = 0.5
_EXPIRY_SECONDS: Final = 10.0
# A full disk may have room again.
_PUBLISH_AGAIN_SECONDS: Final = 0.5
_NOTICES_AT_ONCE: Final = 256
_GATHERED_SIZE_MAX: Final = 1024 * 1024
"""Bytes of sends that are appended together: some 4,000 small messages, which fit the CPU cache.

One pass over 4,000 messages costs a third less per message than over 1,000, and a tenth of the cost
over 32.
"""


class _Send(NamedTuple):
    """A send that waits to be appended together with others."""

    request: SendBatch | SendRecords
    peer: Peer
    done: Done


def _kind_and_topic(send: _Send) -> tuple[type, str]:
    return type(send.request), send.request.queue.topic


def _refusal_of(error: Exception, what: str) -> BrokerError:
    """The error reply to a request that failed."""
    if isinstance(error, BrokerError):
        return error
    if isinstance(error, DamagedStoreError):
        # A running broker reports damage only in old log that it reads.
        _LOG.error("request=%s: %s", what, error)
        return broker_error(ResponseCode.SYSTEM_ERROR, str(error))
    if isinstance(error, StorageError):
        _LOG.error("request=%s: %s", what, error)
        if what not in _WRITE_NAMES:
            return refusals.disk_refused(str(error))
        # If a block crosses the end of a file, its first part may be stored.
        return refusals.outcome_unknown(str(error))
    _LOG.error("request=%s failed", what, exc_info=error)
    return broker_error(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")


class _Client(NamedTuple):
    on_members_changed: Callable[[str], None]
    on_check: Callable[[CheckTransaction], None]


class EngineShell:
    """Passes requests to the engine for the servers, and waits where an outcome needs it."""

    def __init__(
        self, engine: Engine, store: Store, config: BrokerConfig, clock: BrokerClock | None = None
    ) -> None:
        self.engine = engine
        self._clock = clock or BrokerClock()
        self._now_ms = self._clock.now_ms
        self.store = store
        self.config = config
        self._held = HeldPulls(count_max=config.held_pulls_max)
        self._unsynced: deque[tuple[int, Reply, Done]] = deque()
        self._gathered: list[_Send] = []
        self._gathered_size = 0
        self._clients: dict[int, _Client] = {}
        self._notices: Iterator[tuple[str, int]] | None = None
        """The notices that wait for the next turns of the loop."""
        self._member_calls = MemberCalls()
        self._pop_waiters = PopWaiters(engine.pops, self._carry_out, self._now_ms)
        self._ended: str | None = None
        """The reason why sends are refused until a restart."""
        self._unpublished: str | None = None
        """The reason why stored messages cannot be put into their queues."""
        self._waits_for_sync = config.flush == "sync"
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopping = False

    def now_ms(self) -> int:
        """The time by the broker's clock, in milliseconds since 1970."""
        return self._now_ms()

    async def start(self) -> None:
        """Start the periodic work on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._commit = GroupCommit(
            self.store.sync, on_durable=self._on_durable, on_failure=self._on_sync_failure
        )
        self._housekeeping = Housekeeping(self.engine, self.store, self.config, self._clock)
        ticks: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (_EXPIRY_SECONDS, self._expire),
            (_DELIVERY_SECONDS, self._deliver_delayed),
            (_DELIVERY_SECONDS, self._turn_pops),
            (_CHECKS_SECONDS, self._check_transactions),
            (_PUBLISH_AGAIN_SECONDS, self._publish_again),
            (peer_log.INTERVAL_SECONDS / 4, self._report_peers),
        ]
        if self.config.flush == "async":
            ticks.append((self.config.flush_interval_ms / 1_000, self._sync))
        self._tasks = [self._loop.create_task(repeat(*tick)) for tick in ticks]

    async def stop_serving(self) -> None:
        """Answer every held request and refuse all sends from now on."""
        self._is_stopping = True
        self._append_gathered()
        self._ended = self._ended or "the broker is stopping"
        for pull in self._held.take_all():
            self._resume(pull, is_final=True)
        self._pop_waiters.answer_all()
        await self._commit.finish()

    async def close(self) -> None:
        """Make everything durable and close the store."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, self._housekeeping.end(), return_exceptions=True)
        try:
            # Delayed messages must be durable before the file says that they were delivered. If the
            # disk fails, closing the store raises the error.
            with contextlib.suppress(StorageError, BrokerError):
                self.store.sync()
                self.engine.pops.revival.write_all(self._now_ms())
                self.store.sync()
            await self._housekeeping.flush()
        finally:
            self._housekeeping.close()
            self.store.close()

    @property
    def _no_writes(self) -> str | None:
        """The reason why sends are refused; None while they are accepted."""
        return self._ended or self._unpublished

    def submit(self, request: Request[Reply], peer: Peer, done: Done) -> GiveUp | None:
        """Do a request; `done` is called with its reply or error, at once or later.

        Returns the function that gives up a pull or pop that waits.
        """
        if self._no_writes is not None and isinstance(request, _WRITES):
            done(refusals.store_unavailable(self._no_writes))
            return None
        if isinstance(request, _GATHERED) and self._waits_for_sync and not self._commit.is_idle:
            self._gather(_Send(request, peer, done))
            return None
        if self._gathered and isinstance(request, (*_WRITES, *_TOPIC_CHANGES)):
            # Sends are stored in the order in which they came.
            self._append_gathered()
        return self._do(request, peer, done)

    def _do(self, request: Request[Reply], peer: Peer, done: Done) -> GiveUp | None:
        try:
            outcome = self.engine.handle(request, peer, self._now_ms())
        except Exception as error:  # noqa: BLE001 - a request's outermost frame: RocketMQ answers 1
            done(_refusal_of(error, type(request).__name__))
            return None
        if isinstance(outcome, Hold):
            pull = Held(outcome, peer.key, done)
            self._hold(pull)
            return partial(self._held.remove, pull)
        if isinstance(outcome, HoldPop):
            held = self._pop_waiters.hold(outcome, peer.key, done)
            return partial(self._pop_waiters.remove, held)
        if isinstance(request, _WRITES) and not self._waits_for_sync:
            grown = self._publish()
            if grown is None:
                done(self._invisible())
                return None
            self._carry_out(outcome, done)
            self._wake(grown)
        else:
            self._carry_out(outcome, done)
        self._pop_waiters.answered(request, outcome)
        if isinstance(request, _TOPIC_CHANGES):
            topic = request.topic if isinstance(request, DeleteTopic) else request.config.name
            for waiting in self._held.take_topic(topic):
                self._resume(waiting, is_final=False)
        elif isinstance(request, _MEMBER_CHANGES):
            self._notify_members()
        return None

    async def ask(self, request: Request[R], peer: Peer) -> R:
        """The reply to a request. Raises BrokerError."""
        future, give_up = self._start(request, peer)
        try:
            return await future
        finally:
            if give_up is not None:
                # The caller may have been cancelled.
                give_up()

    def ask_later(self, request: Request[R], peer: Peer) -> asyncio.Future[R]:
        """Do a request that is never held; the future gets its reply or BrokerError."""
        future, give_up = self._start(request, peer)
        assert give_up is None
        return future

    def _start(self, request: Request[R], peer: Peer) -> tuple[asyncio.Future[R], GiveUp | None]:
        future: asyncio.Future[R] = self._loop.create_future()

        def done(result: Reply | RocketMQError) -> None:
            if future.done():
                return  # The caller has gone.
            if isinstance(result, RocketMQError):
                future.set_exception(_refusal_of(result, type(request).__name__))
            else:
                future.set_result(cast(R, result))

        return future, self.submit(request, peer, done)

    def held_count(self, peer: Peer) -> int:
        return self._held.count_of_peer(peer.key) + self._pop_waiters.count_of_peer(peer.key)

    def listen(
        self,
        peer: Peer,
        *,
        on_members_changed: Callable[[str], None],
        on_check: Callable[[CheckTransaction], None],
        ask_client: AskClient,
    ) -> None:
        """Register the callbacks of a connection until `forget_peer`.

        `on_members_changed` gets each group whose members change, `on_check` each transaction check
        for a producer of the connection, and `ask_client` the questions of tools to its client.
        """
        self._clients[peer.key] = _Client(on_members_changed, on_check)
        self._member_calls.add(peer.key, ask_client)

    def forget_peer(self, peer: Peer) -> None:
        """Drop the callbacks, the held requests and the clients of a closed connection."""
        self._clients.pop(peer.key, None)
        self._member_calls.remove(peer.key)
        self._held.take_peer(peer.key)
        self._pop_waiters.forget_peer(peer.key)
        self.engine.tables.clients.forget_peer(peer.key)
        self.engine.tables.brokers.forget_peer(peer.key)
        self._notify_members()

    def _notify_members(self) -> None:
        """Notify members of changes, in turns of the loop that serve others in between."""
        if self._notices is None:
            self._notices = self.engine.tables.clients.changes()
            self._loop.call_soon(self._notify_some)

    def _notify_some(self) -> None:
        assert self._notices is not None
        some = list(itertools.islice(self._notices, _NOTICES_AT_ONCE))
        for group, key in some:
            if key in self._clients:
                self._clients[key].on_members_changed(group)
        if len(some) == _NOTICES_AT_ONCE:
            self._loop.call_soon(self._notify_some)
        else:
            self._notices = None

    # --- outcomes -----------------------------------------------------------------------------

    def _carry_out(
        self, outcome: Answer | AfterSync | AskMembers | CountHeldPops, done: Done
    ) -> None:
        if isinstance(outcome, Answer):
            done(outcome.reply)
            return
        if isinstance(outcome, AskMembers):
            self._member_calls.begin(outcome, done)
            return
        if isinstance(outcome, CountHeldPops):
            done(CountReply(self._pop_waiters.count_of(outcome.group, outcome.queue)))
            return
        self._unsynced.append((outcome.position, outcome.reply, done))
        self._commit.order(outcome.position)

    # --- sends that are appended together -----------------------------------------------------

    def _gather(self, send: _Send) -> None:
        """Keep a send until the running sync ends; only the next sync can make it durable."""
        request = send.request
        body = request.records if isinstance(request, SendRecords) else request.body
        self._gathered.append(send)
        self._gathered_size += len(body)
        if self._gathered_size >= _GATHERED_SIZE_MAX:
            self._append_gathered()

    def _append_gathered(self) -> None:
        gathered, self._gathered, self._gathered_size = self._gathered, [], 0
        for _, sends in itertools.groupby(gathered, _kind_and_topic):
            self._append_joined(list(sends))

    def _append_joined(self, sends: Sequence[_Send]) -> None:
        if self._no_writes is not None:
            for send in sends:
                send.done(refusals.store_unavailable(self._no_writes))
            return
        outcomes: Sequence[Outcome] | None = None
        if len(sends) > 1:
            try:
                outcomes = self.engine.handle_joined(
                    [(send.request, send.peer) for send in sends], self._now_ms()
                )
            except BrokerError:
                # Nothing was stored. Sent one by one, only the wrong ones are refused.
                outcomes = None
            except Exception as error:  # noqa: BLE001 - the requests' outermost frame
                refusal = _refusal_of(error, type(sends[0].request).__name__)
                for send in sends:
                    send.done(refusal)
                return
        if outcomes is None:
            for send in sends:
                self._do(send.request, send.peer, send.done)
            return
        for send, outcome in zip(sends, outcomes, strict=True):
            assert not isinstance(outcome, (Hold, HoldPop))
            self._carry_out(outcome, send.done)

    def _hold(self, pull: Held[Hold]) -> None:
        if self._is_stopping or self._held.is_full:
            self._resume(pull, is_final=True)
            return
        delay = (pull.hold.expires_at_ms - self._now_ms()) / 1_000
        pull.timer = self._loop.call_later(max(delay, 0.0), self._expire_pull, pull)
        self._held.add(pull)

    def _expire_pull(self, pull: Held[Hold]) -> None:
        self._held.remove(pull)
        self._resume(pull, is_final=True)

    def _resume(self, pull: Held[Hold], *, is_final: bool) -> None:
        try:
            outcome: Outcome = self.engine.resume(pull.hold, self._now_ms(), is_final=is_final)
        except RocketMQError as error:
            pull.done(_refusal_of(error, "PullMessages"))
            return
        if isinstance(outcome, Hold):
            pull.hold = outcome
            self._hold(pull)
        elif not isinstance(outcome, HoldPop):
            self._carry_out(outcome, pull.done)

    def _wake(self, grown: Sequence[Arrival]) -> None:
        self._pop_waiters.arrived(grown)
        if not len(self._held):
            return
        for arrival in grown:
            for pull in self._held.take_arrived(arrival.topic, arrival.queue_index, arrival.end):
                self._resume(pull, is_final=False)

    # --- the disk -----------------------------------------------------------------------------

    def _on_durable(self, durable_end: int) -> None:
        grown = self._publish()
        waiting = self._unsynced
        while waiting and waiting[0][0] <= durable_end:
            _, reply, done = waiting.popleft()
            done(reply if grown is not None else self._invisible())
        self._wake(grown or ())
        if self._gathered:
            # Scheduled behind the tasks that write these replies, so clients need not wait for it.
            self._loop.call_soon(self._append_gathered)

    def _publish(self) -> list[Arrival] | None:
        """Put stored messages into their queues, and return the queues that grew.

        Returns None if a queue's file cannot be written. Nothing more is stored then until a
        periodic repetition succeeds.
        """
        try:
            grown = self.store.publish()
        except Exception as error:  # noqa: BLE001 - waiting clients must get a reply in any case
            if self._unpublished is None:
                _LOG.error("the queues cannot be written, no more writes until they can: %s", error)
            self._unpublished = f"its queues cannot be written: {error}"
            return None
        if self._unpublished is not None:
            _LOG.warning("the queues can be written again and hold all stored messages")
            self._unpublished = None
        return grown

    def _invisible(self) -> BrokerError:
        """The reply to a send that is on the disk, but not yet in its queue."""
        return refusals.outcome_unknown(str(self._unpublished))

    def _on_sync_failure(self, error: Exception) -> None:
        # After a failed sync the kernel may have dropped the data, so later writes might leave a
        # gap. Writing ends until a restart has checked the files.
        _LOG.error("the log cannot be synced, no more writes until a restart: %s", error)
        self._ended = f"a sync failed, restart the broker: {error}"
        while self._unsynced:
            *_, done = self._unsynced.popleft()
            done(refusals.outcome_unknown(self._ended))
        self._append_gathered()

    # --- ticks --------------------------------------------------------------------------------

    async def _sync(self) -> None:
        if self._ended is None:
            self._commit.order(self.store.appended_end)

    async def _deliver_delayed(self) -> None:
        while self._no_writes is None and self.engine.deliver_delayed(self._now_ms()):
            self._on_grown()
            if not self.engine.timers.is_due(self._now_ms()):
                return
            # More is due than one step delivers: other tasks run in between.
            await asyncio.sleep(0)

    async def _check_transactions(self) -> None:
        if self._no_writes is not None:
            return
        checks, has_grown = self.engine.transactions.take_checks(self._now_ms())
        if has_grown:
            self._on_grown()
        for check in checks:
            # If the client has gone, the next round of checks chooses another one.
            if check.peer_key in self._clients:
                self._clients[check.peer_key].on_check(check.request)

    def _on_grown(self) -> None:
        """Publish or sync what the broker itself has stored."""
        if self._waits_for_sync:
            self._commit.order(self.store.appended_end)
        else:
            self._wake(self._publish() or ())

    async def _turn_pops(self) -> None:
        if self._pop_waiters.turn(can_write=self._no_writes is None):
            self._on_grown()

    async def _report_peers(self) -> None:
        peer_log.report_all()

    async def _publish_again(self) -> None:
        if self._unpublished is not None:
            self._wake(self._publish() or ())

    async def _expire(self) -> None:
        self.engine.expire_clients(self._now_ms())
        self._notify_members()
