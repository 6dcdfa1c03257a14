"""Orderly pops: a queue gives no more messages until the last pop is acknowledged or visible again.

The state of a queue is its last pop: which messages are acknowledged, when the others are visible
again, and how often each was popped. RocketMQ's own file `consumerOrderInfo.json` holds it. The
group's committed offset is always at the first unacknowledged message, so losing the file loses no
message.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_broker.engine.pop.in_flight import GroupQueue
from rocketmq_wire.model import is_lite_queue, parent_of
from rocketmq_wire.requests.pop import PopMessages

ORDERS_FILE: Final = "consumerOrderInfo.json"
_SEPARATOR: Final = "@"
_FORGOTTEN_AFTER_MS: Final = 24 * 3_600 * 1_000


@dataclass(slots=True)
class _OrderlyPop:
    attempt_id: str
    pop_ms: int
    invisible_ms: int
    offsets: tuple[int, ...]
    consumed_ms: int
    acked: int = 0
    visible_ms: dict[int, int] = field(default_factory=dict)
    """By offset, if it differs from pop time plus invisible time."""
    counts: dict[int, int] = field(default_factory=dict)
    """The number of earlier pops by offset, without zeros."""

    def unacked(self) -> list[int]:
        return [offset for index, offset in enumerate(self.offsets) if not self.acked >> index & 1]

    def free_ms(self) -> int:
        """The time when every unacknowledged message is visible again."""
        visible_ms = self.pop_ms + self.invisible_ms
        return max(
            (self.visible_ms.get(offset, visible_ms) for offset in self.unacked()), default=0
        )


class OrderlyPops:
    def __init__(self, stored: Mapping[str, Any]) -> None:
        self._table: dict[GroupQueue, _OrderlyPop] = {}
        self._unserved: dict[str, Any] = {}
        """The entries of lite topics, which the broker keeps unchanged."""
        for key, queues in (stored.get("table") or {}).items():
            topic, _, group = key.partition(_SEPARATOR)
            if is_lite_queue(topic):
                self._unserved[key] = queues
                continue
            for index, pop in queues.items():
                self._table[GroupQueue(topic, group, int(index))] = _from_json(pop)
        self._is_changed = False
        self._free: list[tuple[int, GroupQueue]] = []
        for queue, pop in self._table.items():
            self._note_free(queue, pop)

    def is_blocked(self, queue: GroupQueue, attempt_id: str, now_ms: int) -> bool:
        """True while a pop of the queue is in flight; not for a repeat of that attempt."""
        pop = self._table.get(queue)
        if pop is None or (attempt_id and pop.attempt_id == attempt_id):
            return False
        return now_ms < pop.free_ms()

    def take(
        self, queue: GroupQueue, request: PopMessages, pop_ms: int, offsets: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Note a pop; returns the number of earlier pops of each message."""
        attempt_id = request.attempt_id
        before = self._table.get(queue)
        counts: dict[int, int] = {}
        if before is not None and attempt_id and before.attempt_id == attempt_id:
            counts = before.counts
        elif before is not None:
            known = [offset for offset in offsets if offset in before.offsets]
            counts = {offset: before.counts.get(offset, 0) + 1 for offset in known}
        pop = _OrderlyPop(attempt_id, pop_ms, request.invisible_ms, offsets, pop_ms, counts=counts)
        self._put(queue, pop)
        return tuple(counts.get(offset, 0) for offset in offsets)

    def knows(self, queue: GroupQueue) -> bool:
        return queue in self._table

    def acknowledge(self, queue: GroupQueue, offset: int, pop_ms: int) -> int | None:
        """The offset to commit after an acknowledgement in a known queue; None: no change.

        Raises KeyError for an offset that the pop did not return.
        """
        pop = self._table[queue]
        if pop_ms != pop.pop_ms:
            # An earlier pop: its messages were popped again.
            return None
        if offset not in pop.offsets:
            raise KeyError(offset)
        pop.acked |= 1 << pop.offsets.index(offset)
        self._put(queue, pop)
        unacked = pop.unacked()
        return unacked[0] if unacked else pop.offsets[-1] + 1

    def change(self, queue: GroupQueue, offset: int, *, pop_ms: int, visible_ms: int) -> None:
        """Change the time when a message is visible again."""
        pop = self._table.get(queue)
        if pop is not None and pop.pop_ms == pop_ms and offset in pop.offsets:
            pop.visible_ms[offset] = visible_ms
            self._put(queue, pop)

    def forget(self, queue: GroupQueue) -> None:
        """Forget the queue's last pop: the committed offset was moved otherwise."""
        if self._table.pop(queue, None) is not None:
            self._is_changed = True

    def forget_topic(self, topic: str) -> None:
        for queue in [queue for queue in self._table if queue.topic == topic]:
            self.forget(queue)
        for key in [key for key in self._unserved if parent_of(_topic_of(key)) == topic]:
            del self._unserved[key]
            self._is_changed = True

    def take_free(self, now_ms: int) -> list[GroupQueue]:
        """The queues whose messages are visible again: held pops may take them."""
        freed = []
        while self._free and self._free[0][0] <= now_ms:
            _, queue = heapq.heappop(self._free)
            pop = self._table.get(queue)
            if pop is None:
                continue
            if now_ms - pop.consumed_ms > _FORGOTTEN_AFTER_MS:
                self.forget(queue)
            if pop.free_ms() <= now_ms:
                freed.append(queue)
        return freed

    def take_changes(self) -> dict[str, Any] | None:
        """The file's new content; None if nothing changed."""
        if not self._is_changed:
            return None
        self._is_changed = False
        table: dict[str, dict[str, Any]] = dict(self._unserved)
        for queue, pop in self._table.items():
            queues = table.setdefault(f"{queue.topic}{_SEPARATOR}{queue.group}", {})
            queues[str(queue.queue_index)] = _to_json(pop)
        return {"table": table}

    def _put(self, queue: GroupQueue, pop: _OrderlyPop) -> None:
        self._table[queue] = pop
        self._is_changed = True
        self._note_free(queue, pop)

    def _note_free(self, queue: GroupQueue, pop: _OrderlyPop) -> None:
        heapq.heappush(self._free, (pop.free_ms(), queue))


def _topic_of(key: str) -> str:
    return key.partition(_SEPARATOR)[0]


def _to_json(pop: _OrderlyPop) -> dict[str, Any]:
    first = pop.offsets[0]
    return {
        "a": pop.attempt_id,
        "cm": pop.acked,
        "i": pop.invisible_ms,
        "l": pop.consumed_ms,
        # The others are stored as distances from the first.
        "o": [first, *(offset - first for offset in pop.offsets[1:])],
        "oc": {str(offset): count for offset, count in pop.counts.items()},
        "ot": {str(offset): visible_ms for offset, visible_ms in pop.visible_ms.items()},
        "popTime": pop.pop_ms,
    }


def _from_json(stored: Mapping[str, Any]) -> _OrderlyPop:
    offsets = [int(offset) for offset in stored.get("o") or [0]]
    first = offsets[0]
    return _OrderlyPop(
        attempt_id=str(stored.get("a") or ""),
        pop_ms=int(stored.get("popTime", 0)),
        invisible_ms=int(stored.get("i") or 0),
        offsets=(first, *(first + distance for distance in offsets[1:])),
        consumed_ms=int(stored.get("l", 0)),
        acked=int(stored.get("cm", 0)),
        visible_ms={int(key): int(value) for key, value in (stored.get("ot") or {}).items()},
        counts={int(key): int(value) for key, value in (stored.get("oc") or {}).items()},
    )
