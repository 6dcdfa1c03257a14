"""What was popped in order: nothing more of a queue until it is acknowledged or visible again.

The state of a queue is one pop's take: which of it is acknowledged, when the rest is visible, and
how often each was popped. It is kept in RocketMQ's own file `consumerOrderInfo.json`; the group's
progress is always at the first message that is not acknowledged, so losing the file loses nothing.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_broker.engine.pop.in_flight import GroupQueue
from rocketmq_broker.storage.queues.lite_queues import is_lite_queue, parent_of

ORDERS_FILE: Final = "consumerOrderInfo.json"
_SEPARATOR: Final = "@"
_FORGOTTEN_AFTER_MS: Final = 24 * 3_600 * 1_000


@dataclass(slots=True)
class _Taken:
    attempt_id: str
    pop_ms: int
    invisible_ms: int
    offsets: tuple[int, ...]
    consumed_ms: int
    acked: int = 0
    visible_ms: dict[int, int] = field(default_factory=dict)
    """By offset, where it is not pop time and invisible time."""
    counts: dict[int, int] = field(default_factory=dict)
    """How often each was popped before, where it was."""

    def free_ms(self) -> int:
        """When the last of what is not acknowledged is visible again."""
        return max(
            (
                self.visible_ms.get(offset, self.pop_ms + self.invisible_ms)
                for index, offset in enumerate(self.offsets)
                if not self.acked >> index & 1
            ),
            default=0,
        )

    def first_pending(self) -> int:
        for index, offset in enumerate(self.offsets):
            if not self.acked >> index & 1:
                return offset
        return self.offsets[-1] + 1


class Orders:
    """The queues that are popped in order, by group."""

    def __init__(self, stored: Mapping[str, Any] | None) -> None:
        self._table: dict[GroupQueue, _Taken] = {}
        self._unserved: dict[str, Any] = {}
        """The entries of lite topics, kept as they are."""
        for key, queues in ((stored or {}).get("table") or {}).items():
            topic, _, group = key.partition(_SEPARATOR)
            if is_lite_queue(topic):
                self._unserved[key] = queues
                continue
            for index, taken in queues.items():
                self._table[GroupQueue(topic, group, int(index))] = _from_json(taken)
        self._is_changed = False
        self._free: list[tuple[int, GroupQueue]] = []
        for place, taken in self._table.items():
            self._note_free(place, taken)

    def is_blocked(self, place: GroupQueue, attempt_id: str, now_ms: int) -> bool:
        """True while something of the queue is out; not for the attempt that has it."""
        taken = self._table.get(place)
        if taken is None or (attempt_id and taken.attempt_id == attempt_id):
            return False
        return now_ms < taken.free_ms()

    def take(
        self,
        place: GroupQueue,
        *,
        attempt_id: str,
        pop_ms: int,
        invisible_ms: int,
        offsets: tuple[int, ...],
    ) -> tuple[int, ...]:
        """Note what was popped; how often each was popped before."""
        before = self._table.get(place)
        counts: dict[int, int] = {}
        if before is not None and attempt_id and before.attempt_id == attempt_id:
            counts = before.counts
        elif before is not None:
            known = [offset for offset in offsets if offset in before.offsets]
            counts = {offset: before.counts.get(offset, 0) + 1 for offset in known}
        taken = _Taken(attempt_id, pop_ms, invisible_ms, offsets, pop_ms, counts=counts)
        self._put(place, taken)
        return tuple(counts.get(offset, 0) for offset in offsets)

    def knows(self, place: GroupQueue) -> bool:
        """False if nothing of the queue is out, or if what was is forgotten."""
        return place in self._table

    def acknowledge(self, place: GroupQueue, offset: int, pop_ms: int) -> int | None:
        """Where the group's progress is to go, in a queue that is known here; None: it stays.

        Raises KeyError for a wrong offset.
        """
        taken = self._table[place]
        if pop_ms != taken.pop_ms:
            # Of a pop before: what it got has been popped again.
            return None
        if offset not in taken.offsets:
            raise KeyError(offset)
        taken.acked |= 1 << taken.offsets.index(offset)
        following = taken.first_pending()
        self._put(place, taken)
        return following

    def change(self, place: GroupQueue, offset: int, *, pop_ms: int, visible_ms: int) -> None:
        """A message is to be visible at another time."""
        taken = self._table.get(place)
        if taken is not None and taken.pop_ms == pop_ms and offset in taken.offsets:
            taken.visible_ms[offset] = visible_ms
            self._put(place, taken)

    def forget(self, place: GroupQueue) -> None:
        """The group's progress was moved by somebody else."""
        if self._table.pop(place, None) is not None:
            self._is_changed = True

    def forget_topics(self, gone: Collection[str]) -> None:
        for place in [place for place in self._table if place.topic in gone]:
            self.forget(place)
        for key in [key for key in self._unserved if _parent_of_key(key) in gone]:
            del self._unserved[key]
            self._is_changed = True

    def take_free(self, now_ms: int) -> list[GroupQueue]:
        """Queues whose messages are visible again: whoever waits for them may pop."""
        freed = []
        while self._free and self._free[0][0] <= now_ms:
            _, place = heapq.heappop(self._free)
            taken = self._table.get(place)
            if taken is None:
                continue
            if now_ms - taken.consumed_ms > _FORGOTTEN_AFTER_MS:
                self.forget(place)
            if taken.free_ms() <= now_ms:
                freed.append(place)
        return freed

    def take_changes(self) -> dict[str, Any] | None:
        """The file's new content; None if nothing is new."""
        if not self._is_changed:
            return None
        self._is_changed = False
        table: dict[str, dict[str, Any]] = dict(self._unserved)
        for place, taken in self._table.items():
            queues = table.setdefault(f"{place.topic}{_SEPARATOR}{place.group}", {})
            queues[str(place.queue_index)] = _to_json(taken)
        return {"table": table}

    def put_back(self) -> None:
        """What was taken could not be saved: it is to be taken again."""
        self._is_changed = True

    def _put(self, place: GroupQueue, taken: _Taken) -> None:
        self._table[place] = taken
        self._is_changed = True
        self._note_free(place, taken)

    def _note_free(self, place: GroupQueue, taken: _Taken) -> None:
        heapq.heappush(self._free, (taken.free_ms(), place))


def _parent_of_key(key: str) -> str:
    return parent_of(key.partition(_SEPARATOR)[0])


def _to_json(taken: _Taken) -> dict[str, Any]:
    first = taken.offsets[0]
    return {
        "a": taken.attempt_id,
        "cm": taken.acked,
        "i": taken.invisible_ms,
        "l": taken.consumed_ms,
        # All but the first are kept as distances from it.
        "o": [first, *(offset - first for offset in taken.offsets[1:])],
        "oc": {str(offset): count for offset, count in taken.counts.items()},
        "ot": {str(offset): visible_ms for offset, visible_ms in taken.visible_ms.items()},
        "popTime": taken.pop_ms,
    }


def _from_json(stored: Mapping[str, Any]) -> _Taken:
    offsets = [int(offset) for offset in stored.get("o") or [0]]
    first = offsets[0]
    return _Taken(
        attempt_id=str(stored.get("a") or ""),
        pop_ms=int(stored.get("popTime", 0)),
        invisible_ms=int(stored.get("i") or 0),
        offsets=(first, *(first + distance for distance in offsets[1:])),
        consumed_ms=int(stored.get("l", 0)),
        acked=int(stored.get("cm", 0)),
        visible_ms={int(key): int(value) for key, value in (stored.get("ot") or {}).items()},
        counts={int(key): int(value) for key, value in (stored.get("oc") or {}).items()},
    )
