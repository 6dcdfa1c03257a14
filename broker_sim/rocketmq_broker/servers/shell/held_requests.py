"""The requests that wait for messages, by key and by connection, each with its timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rocketmq_broker.engine.core.outcomes import Hold, HoldPop
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.requests.contract import Reply

H = TypeVar("H", Hold, HoldPop)
K = TypeVar("K", bound=Hashable)

GiveUp = Callable[[], object]
"""Drops a held request whose caller no longer waits."""
Done = Callable[[Reply | RocketMQError], None]
"""Called once, on the loop's thread, with a request's answer."""


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
        """The number of waiting requests of one connection."""
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
        """Take out several requests."""
        return [held for held in list(requests) if self.remove(held)]

    def take_peer(self, peer_key: int) -> list[Held[H]]:
        """Take out the requests of a connection."""
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
