"""How far each group has consumed each queue, and its file `consumerOffset.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from rocketmq_broker.storage.queues.lite_queues import parent_of
from rocketmq_wire.model import QueueId

# Neither a topic's nor a group's name can contain it.
_SEPARATOR: Final = "@"


def _plain(queue: QueueId) -> QueueId:
    """The queue as this broker's, whatever name a client gave to the broker."""
    return QueueId(queue.topic, "", queue.index)


class Progress:
    """Offsets by group and queue.

    A commit overwrites, also backwards, and any number is taken: a negative one reads as absent
    afterwards, as in RocketMQ. Changes reach the disk with the next flush, so a crash may show
    progress that is one flush interval old.
    """

    def __init__(self, stored: Mapping[str, Any] | None) -> None:
        self._table: dict[str, dict[int, int]] = {
            key: {int(index): int(offset) for index, offset in offsets.items()}
            for key, offsets in ((stored or {}).get("offsetTable") or {}).items()
        }
        self._version = int(((stored or {}).get("dataVersion") or {}).get("counter", 0))
        self._is_changed = False
        self._resets: dict[tuple[str, QueueId], int] = {}
        self._pulled: dict[str, dict[tuple[str, int], int]] = {}

    def commit(self, group: str, queue: QueueId, offset: int) -> None:
        self._table.setdefault(f"{queue.topic}{_SEPARATOR}{group}", {})[queue.index] = offset
        self._is_changed = True

    def get(self, group: str, queue: QueueId) -> int | None:
        offset = self._table.get(f"{queue.topic}{_SEPARATOR}{group}", {}).get(queue.index)
        return None if offset is None or offset < 0 else offset

    def reset(self, group: str, queue: QueueId, offset: int) -> None:
        """Commit by an administrator's word, and have the group's next pull sent there.

        Until that pull what members commit does not count: they are still elsewhere.
        """
        self.commit(group, queue, offset)
        self._resets[group, _plain(queue)] = offset

    def take_reset(self, group: str, queue: QueueId) -> int | None:
        """The offset to which the next pull is sent, once; None if there was no reset."""
        return self._resets.pop((group, _plain(queue)), None) if self._resets else None

    def awaits_reset(self, group: str, queue: QueueId) -> bool:
        """True between a reset and the pull that learns of it."""
        return bool(self._resets) and (group, _plain(queue)) in self._resets

    def note_pull(self, group: str, queue: QueueId, next_begin: int) -> None:
        """Note how far a group has pulled: for statistics, so it is not stored."""
        self._pulled.setdefault(group, {})[queue.topic, queue.index] = next_begin

    def pulled(self, group: str, queue: QueueId) -> int:
        return self._pulled.get(group, {}).get((queue.topic, queue.index), 0)

    def topics(self, group: str) -> tuple[str, ...]:
        """The topics in which the group has progress."""
        pairs = (key.partition(_SEPARATOR) for key in self._table)
        return tuple(sorted(topic for topic, _, name in pairs if name == group))

    def groups(self) -> frozenset[str]:
        """The groups that have progress anywhere."""
        return frozenset(key.partition(_SEPARATOR)[2] for key in self._table)

    def groups_of(self, topic: str) -> frozenset[str]:
        """The groups that have progress in a topic."""
        pairs = (key.partition(_SEPARATOR) for key in self._table)
        return frozenset(group for name, _, group in pairs if name == topic)

    def delete_group(self, group: str) -> None:
        """Forget a group's progress everywhere."""
        self._drop(
            [key for key in self._table if key.partition(_SEPARATOR)[2] == group],
            lambda of_group, _: of_group == group,
        )
        self._pulled.pop(group, None)

    def delete_topic(self, *topics: str) -> None:
        """Forget deleted topics' progress, else new topics of their names would inherit it.

        Progress in the lite topics of a deleted topic goes, too.
        """
        names = frozenset(topics)
        gone = [key for key in self._table if parent_of(key.partition(_SEPARATOR)[0]) in names]
        self._drop(gone, lambda _, queue: queue.topic in names)
        for places in self._pulled.values():
            for place in [place for place in places if place[0] in names]:
                del places[place]

    def _drop(self, keys: list[str], is_dropped: Callable[[str, QueueId], bool]) -> None:
        for key in keys:
            del self._table[key]
        self._is_changed = self._is_changed or bool(keys)
        self._resets = {
            place: offset for place, offset in self._resets.items() if not is_dropped(*place)
        }

    def take_changes(self) -> dict[str, Any] | None:
        """The file's new content, or None if nothing changed since it was last taken."""
        if not self._is_changed:
            return None
        self._is_changed = False
        self._version += 1
        version = {"counter": self._version, "stateVersion": 0, "timestamp": 0}
        table = {
            key: {str(index): offset for index, offset in offsets.items()}
            for key, offsets in self._table.items()
        }
        return {"dataVersion": version, "offsetTable": table}

    def put_back(self) -> None:
        """What was taken could not be saved: it is to be taken again."""
        self._is_changed = True
