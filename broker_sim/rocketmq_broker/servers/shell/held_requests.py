"""The requests that wait for messages, by key and by connection, each with its timer.

New messages of a queue wake one pop or notification for any queue and one for this queue. If it
leaves messages behind, the next one wakes, so that one arrival never wakes all of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from rocketmq_broker.engine.core.outcomes import AfterSync, Answer, Hold, HoldPop, Outcome
from rocketmq_broker.engine.pop.in_flight import GroupQueue
from rocketmq_broker.engine.pop.registry import Pops
from rocketmq_broker.storage.settings import Arrival
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.handles import RetryKind, origin_topic_of
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.pop import ANY_QUEUE, AckMessage, AckMessages, PopMessages, PopReply

H = TypeVar("H", Hold, HoldPop)
K = TypeVar("K", bound=Hashable)

GiveUp = Callable[[], object]
"""Drops a held request whose caller no longer waits."""
Done = Callable[[Reply | RocketMQError], None]
"""Called once, on the loop's thread, with a request's answer."""
# As in RocketMQ: popPollingSize and maxPopPollingSize.
_KEY_COUNT_MAX: Final = 1_024
_COUNT_MAX: Final = 100_000


@dataclass(eq=False, slots=True)
class Held(Generic[H]):
    """One waiting request, and the callback for its reply."""

    hold: H
    peer_key: int
    done: Done
    timer: asyncio.TimerHandle | None = None


class HeldRequests(Generic[K, H]):
    """Waiting requests. The caller that takes a request out answers it or adds it again."""

    def __init__(self, key_of: Callable[[H], K]) -> None:
        """`key_of` gives the key of a request in `by_key`: the queue that it waits for."""
        self._key_of: Callable[[H], K] = key_of
        self.by_key: dict[K, dict[Held[H], None]] = {}
        self._by_peer: dict[int, dict[Held[H], None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def count_of_peer(self, peer_key: int) -> int:
        return len(self._by_peer.get(peer_key, ()))

    def add(self, held: Held[H]) -> None:
        self.by_key.setdefault(self._key_of(held.hold), {})[held] = None
        self._by_peer.setdefault(held.peer_key, {})[held] = None
        self._count += 1

    def remove(self, held: Held[H]) -> bool:
        """Take out one request and stop its timer; False if it is unknown."""
        if held not in self._by_peer.get(held.peer_key, ()):
            return False
        _discard(self.by_key, self._key_of(held.hold), held)
        _discard(self._by_peer, held.peer_key, held)
        self._count -= 1
        if held.timer is not None:
            held.timer.cancel()
            held.timer = None
        return True

    def take(self, requests: Iterable[Held[H]]) -> list[Held[H]]:
        return [held for held in list(requests) if self.remove(held)]

    def take_peer(self, peer_key: int) -> list[Held[H]]:
        return self.take(self._by_peer.get(peer_key, ()))

    def take_all(self) -> list[Held[H]]:
        return self.take(held for waiting in self._by_peer.values() for held in waiting)


class HeldPulls(HeldRequests[tuple[str, int], Hold]):
    """The waiting pulls, by topic and queue index."""

    def __init__(self, *, count_max: int) -> None:
        super().__init__(lambda hold: (hold.queue.topic, hold.queue.index))
        self._count_max = count_max

    @property
    def is_full(self) -> bool:
        return len(self) >= self._count_max

    def take_arrived(self, topic: str, queue_index: int, end: int) -> list[Held[Hold]]:
        """Take out the pulls of a queue that start before its new `end`."""
        waiting = self.by_key.get((topic, queue_index), ())
        return self.take(pull for pull in waiting if pull.hold.start < end)

    def take_topic(self, topic: str) -> list[Held[Hold]]:
        """Take out the pulls of a topic that changed."""
        keys = [key for key in self.by_key if key[0] == topic]
        return self.take(pull for key in keys for pull in self.by_key[key])


def _discard(table: dict[Any, dict[Held[H], None]], key: Hashable, held: Held[H]) -> None:
    waiting = table[key]
    del waiting[held]
    if not waiting:
        del table[key]


class _Key(NamedTuple):
    group: str
    topic: str
    queue_index: int
    is_pop: bool


def _key_of(hold: HoldPop) -> _Key:
    return _key(hold.group, hold.queue, is_pop=isinstance(hold.request, PopMessages))


def _key(group: str, queue: QueueId, *, is_pop: bool = True) -> _Key:
    return _Key(group, queue.topic, queue.index if queue.index >= 0 else ANY_QUEUE, is_pop)


class PopWaiters:
    """Holds requests and resumes them. All calls happen on the loop's thread."""

    def __init__(
        self,
        pops: Pops,
        carry_out: Callable[[Answer | AfterSync, Done], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._pops = pops
        self._carry_out = carry_out
        self._now_ms = now_ms
        self._held = HeldRequests(_key_of)
        self._names: dict[str, dict[tuple[str, str], int]] = {}
        """Stored topic -> (group, popped topic) of its waiting requests -> their number."""
        self._wakes: deque[_Key] = deque()
        self._is_waking = False
        self._is_stopping = False

    def count_of(self, group: str, queue: QueueId) -> int:
        """The number of pops of a group that wait for a queue."""
        return len(self._held.by_key.get(_key(group, queue), ()))

    def count_of_peer(self, peer_key: int) -> int:
        return self._held.count_of_peer(peer_key)

    def hold(self, hold: HoldPop, peer_key: int, done: Done) -> Held[HoldPop]:
        """Hold a request until messages come for it or its time is over."""
        held = Held(hold, peer_key, done)
        self._keep(held)
        return held

    def remove(self, held: Held[HoldPop]) -> bool:
        """Take out one request and stop its timer; False if it is unknown."""
        is_known = self._held.remove(held)
        if is_known:
            self._count_names(_key_of(held.hold), -1)
        return is_known

    def forget_peer(self, peer_key: int) -> None:
        """Drop the requests of a closed connection."""
        for held in self._held.take_peer(peer_key):
            self._count_names(_key_of(held.hold), -1)

    def answer_all(self) -> None:
        """Answer all requests, because the broker stops."""
        self._is_stopping = True
        for held in self._held.take_all():
            self._count_names(_key_of(held.hold), -1)
            self._resume(held, is_final=True)

    def arrived(self, grown: Iterable[Arrival]) -> None:
        """Wake requests for queues that grew."""
        for queue in grown:
            for group, topic in self._names.get(queue.topic, ()):
                self._wake(group, topic, queue.topic, queue.queue_index)
        self._work()

    def freed(self, queues: Iterable[GroupQueue]) -> None:
        """Wake requests for queues that may be popped in order again."""
        if not self._held:
            return
        for queue in queues:
            topic = origin_topic_of(queue.topic, queue.group)
            self._wake(queue.group, topic, queue.topic, queue.queue_index)
        self._work()

    def answered(self, request: Request[Reply], outcome: Outcome) -> None:
        """Wake the requests that a reply may concern.

        Messages that a pop left behind go to the next request of its kind, and acknowledgements in
        order may have freed a queue.
        """
        if not self._held:
            return
        if isinstance(request, (AckMessage, AckMessages)):
            self.freed(self._pops.acks.take_freed(self._now_ms()))
        reply = outcome.reply if isinstance(outcome, Answer) else None
        if isinstance(request, PopMessages) and isinstance(reply, PopReply):
            if reply.spans and reply.rest_count > 0:
                self._wakes.append(_key(request.group, request.queue))
            self._work()

    def turn(self, *, can_write: bool) -> bool:
        """Do the periodic work of pops; True if the log grew."""
        now_ms = self._now_ms()
        has_grown = can_write and self._pops.revival.turn(now_ms)
        self.freed(self._pops.acks.take_freed(now_ms))
        return has_grown

    # --- waking -------------------------------------------------------------------------------

    def _wake(self, group: str, topic: str, stored: str, queue_index: int) -> None:
        if stored == topic:
            indices: Iterable[int] = (ANY_QUEUE, queue_index)
        else:
            # All of them read the retry topic, too, whichever queue they name.
            indices = {key.queue_index for key in self._held.by_key if key[:2] == (group, topic)}
        for index in indices:
            for is_pop in (True, False):
                key = _Key(group, topic, index, is_pop)
                if key in self._held.by_key:
                    self._wakes.append(key)

    def _work(self) -> None:
        """Resume the requests to be woken; messages that they leave behind may wake more."""
        if self._is_waking:
            return
        self._is_waking = True
        try:
            while self._wakes:
                waiting = self._held.by_key.get(self._wakes.popleft())
                if waiting:
                    held = next(iter(waiting))
                    self.remove(held)
                    self._resume(held, is_final=False)
        finally:
            self._is_waking = False

    def _resume(self, held: Held[HoldPop], *, is_final: bool) -> None:
        try:
            outcome = self._pops.popping.resume(held.hold, self._now_ms(), is_final=is_final)
        except RocketMQError as error:
            held.done(error)
            return
        if isinstance(outcome, HoldPop):
            self._keep(held)
        elif isinstance(outcome, (Answer, AfterSync)):
            self._carry_out(outcome, held.done)
            self.answered(held.hold.request, outcome)

    def _expire(self, held: Held[HoldPop]) -> None:
        if self.remove(held):
            self._resume(held, is_final=True)

    # --- keeping ------------------------------------------------------------------------------

    def _keep(self, held: Held[HoldPop]) -> None:
        key, now_ms = _key_of(held.hold), self._now_ms()
        if self._is_stopping:
            self._resume(held, is_final=True)
            return
        same = self._held.by_key.get(key, ())
        if len(self._held) >= _COUNT_MAX or len(same) >= _KEY_COUNT_MAX:
            held.done(self._pops.popping.polling_full(held.hold, now_ms))
            return
        delay = max(held.hold.expires_at_ms - now_ms, 0) / 1_000
        held.timer = asyncio.get_running_loop().call_later(delay, self._expire, held)
        self._held.add(held)
        self._count_names(key, 1)

    def _count_names(self, key: _Key, step: int) -> None:
        popped = (key.group, key.topic)
        for kind in RetryKind:
            name = kind.topic_of(key.topic, key.group)
            counts = self._names.setdefault(name, {})
            counts[popped] = counts.get(popped, 0) + step
            if not counts[popped]:
                del counts[popped]
            if not counts:
                del self._names[name]
