"""How far each group has consumed each queue, and its file `consumerOffset.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rocketmq_wire.model import QueueId

FILE_NAME: Final = "consumerOffset.json"
# Neither a topic's nor a group's name can contain it.
_SEPARATOR: Final = "@"


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

    def commit(self, group: str, queue: QueueId, offset: int) -> None:
        self._table.setdefault(f"{queue.topic}{_SEPARATOR}{group}", {})[queue.index] = offset
        self._is_changed = True

    def get(self, group: str, queue: QueueId) -> int | None:
        offset = self._table.get(f"{queue.topic}{_SEPARATOR}{group}", {}).get(queue.index)
        return None if offset is None or offset < 0 else offset

    def topics(self, group: str) -> tuple[str, ...]:
        """The topics in which the group has progress."""
        pairs = (key.partition(_SEPARATOR) for key in self._table)
        return tuple(sorted(topic for topic, _, name in pairs if name == group))

    def groups(self) -> frozenset[str]:
        """The groups that have progress anywhere."""
        return frozenset(key.partition(_SEPARATOR)[2] for key in self._table)

    def delete_topic(self, topic: str) -> None:
        """Forget a deleted topic's progress, else a new topic of its name would inherit it."""
        gone = [key for key in self._table if key.partition(_SEPARATOR)[0] == topic]
        for key in gone:
            del self._table[key]
        self._is_changed = self._is_changed or bool(gone)

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
