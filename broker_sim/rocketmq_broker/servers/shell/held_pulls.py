"""The pulls that wait for messages: by queue, each with its timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from rocketmq_broker.engine.core.outcomes import Hold
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.requests.contract import Reply

_Key = TypeVar("_Key", int, tuple[str, int])

Done = Callable[[Reply | RocketMQError], None]
"""Called once, on the loop's thread, with a request's answer."""


@dataclass(eq=False, slots=True)
class HeldPull:
    """One waiting pull, and the callback for its reply."""

    hold: Hold
    peer_key: int
    done: Done
    timer: asyncio.TimerHandle | None = None


class HeldPulls:
    """The waiting pulls. The caller that takes a pull out answers it or adds it again."""

    def __init__(self, *, count_max: int) -> None:
        self._count_max = count_max
        self._by_queue: dict[tuple[str, int], dict[HeldPull, None]] = {}
        self._by_peer: dict[int, dict[HeldPull, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        return self._count >= self._count_max

    def count_of(self, peer_key: int) -> int:
        """The number of waiting pulls of one connection."""
        return len(self._by_peer.get(peer_key, ()))

    def add(self, pull: HeldPull) -> None:
        queue = pull.hold.queue
        self._by_queue.setdefault((queue.topic, queue.index), {})[pull] = None
        self._by_peer.setdefault(pull.peer_key, {})[pull] = None
        self._count += 1

    def remove(self, pull: HeldPull) -> None:
        """Take out one pull and stop its timer; an unknown pull is ignored."""
        if pull not in self._by_peer.get(pull.peer_key, ()):
            return
        queue = pull.hold.queue
        _discard(self._by_queue, (queue.topic, queue.index), pull)
        _discard(self._by_peer, pull.peer_key, pull)
        self._count -= 1
        if pull.timer is not None:
            pull.timer.cancel()
            pull.timer = None

    def take_arrived(self, topic: str, queue_index: int, end: int) -> list[HeldPull]:
        """Take out the pulls of a queue that start before its new `end`."""
        waiting = self._by_queue.get((topic, queue_index), {})
        return self._take(pull for pull in waiting if pull.hold.start < end)

    def take_topic(self, topic: str) -> list[HeldPull]:
        """Take out the pulls of a topic that changed."""
        keys = [key for key in self._by_queue if key[0] == topic]
        return self._take(pull for key in keys for pull in self._by_queue[key])

    def take_peer(self, peer_key: int) -> list[HeldPull]:
        """Take out the pulls of a connection that closed."""
        return self._take(self._by_peer.get(peer_key, {}))

    def take_all(self) -> list[HeldPull]:
        return self._take(pull for pulls in self._by_peer.values() for pull in pulls)

    def _take(self, pulls: Iterable[HeldPull]) -> list[HeldPull]:
        taken = list(pulls)
        for pull in taken:
            self.remove(pull)
        return taken


def _discard(table: dict[_Key, dict[HeldPull, None]], key: _Key, pull: HeldPull) -> None:
    pulls = table[key]
    del pulls[pull]
    if not pulls:
        del table[key]
