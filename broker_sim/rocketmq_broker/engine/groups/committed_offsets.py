"""The committed offsets of groups, and their file `consumerOffset.json`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from rocketmq_wire.model import QueueId, parent_of

# No name of a topic or group contains it.
_SEPARATOR: Final = "@"


def _plain(queue: QueueId) -> QueueId:
    """The queue without the broker's name, which clients may give differently."""
    return QueueId(queue.topic, "", queue.index)


class CommittedOffsets:
    """Committed offsets by group and queue.

    As in RocketMQ, a commit overwrites, also backwards, and a negative offset reads as absent.
    The broker saves changes with the next flush, so a crash may bring back offsets that are one
    flush interval old.
    """

    def __init__(self, stored: Mapping[str, Any]) -> None:
        self._table: dict[tuple[str, str], dict[int, int]] = {}
        """By topic and group, the committed offset of each queue."""
        for key, offsets in (stored.get("offsetTable") or {}).items():
            topic, _, group = key.partition(_SEPARATOR)
            self._table[topic, group] = {int(index): int(at) for index, at in offsets.items()}
        self._version = int((stored.get("dataVersion") or {}).get("counter", 0))
        self._is_changed = False
        self._resets: dict[tuple[str, QueueId], int] = {}
        self._pulled: dict[str, dict[tuple[str, int], int]] = {}

    def commit(self, group: str, queue: QueueId, offset: int) -> None:
        self._table.setdefault((queue.topic, group), {})[queue.index] = offset
        self._is_changed = True

    def get(self, group: str, queue: QueueId) -> int | None:
        offset = self._table.get((queue.topic, group), {}).get(queue.index)
        return None if offset is None or offset < 0 else offset

    def reset(self, group: str, queue: QueueId, offset: int) -> None:
        """Commit for an administrator, and redirect the group's next pull to this offset.

        Commits of members are ignored until that pull, because they still consume elsewhere.
        """
        self.commit(group, queue, offset)
        self._resets[group, _plain(queue)] = offset

    def take_reset(self, group: str, queue: QueueId) -> int | None:
        """The offset of a reset, once, for the next pull; None without a reset."""
        return self._resets.pop((group, _plain(queue)), None) if self._resets else None

    def awaits_reset(self, group: str, queue: QueueId) -> bool:
        """True between a reset and the pull that it redirects."""
        return bool(self._resets) and (group, _plain(queue)) in self._resets

    def note_pull(self, group: str, queue: QueueId, next_begin: int) -> None:
        """Note the next offset that a group pulls, for statistics only: it is not saved."""
        self._pulled.setdefault(group, {})[queue.topic, queue.index] = next_begin

    def pulled(self, group: str, queue: QueueId) -> int:
        return self._pulled.get(group, {}).get((queue.topic, queue.index), 0)

    def topics(self, group: str) -> tuple[str, ...]:
        return tuple(sorted(topic for topic, name in self._table if name == group))

    def groups(self) -> frozenset[str]:
        return frozenset(group for _, group in self._table)

    def groups_of(self, topic: str) -> frozenset[str]:
        return frozenset(group for name, group in self._table if name == topic)

    def delete_group(self, group: str) -> None:
        """Forget a group's committed offsets in all topics."""
        self._drop(lambda _, of_group: of_group == group)
        self._pulled.pop(group, None)

    def delete_topic(self, deleted: str) -> None:
        """Forget the committed offsets in a deleted topic and in its lite topics.

        A new topic of this name must not inherit them.
        """
        self._drop(lambda topic, _: parent_of(topic) == deleted)
        for pulled in self._pulled.values():
            for key in [key for key in pulled if key[0] == deleted]:
                del pulled[key]

    def _drop(self, is_dropped: Callable[[str, str], bool]) -> None:
        for key in [key for key in self._table if is_dropped(*key)]:
            del self._table[key]
            self._is_changed = True
        self._resets = {
            (group, queue): offset
            for (group, queue), offset in self._resets.items()
            if not is_dropped(queue.topic, group)
        }

    def take_changes(self) -> dict[str, Any] | None:
        """The file's new content, or None if nothing changed since the last call."""
        if not self._is_changed:
            return None
        self._is_changed = False
        return self.content()

    def content(self) -> dict[str, Any]:
        """The file's content, newer than all earlier ones."""
        self._version += 1
        version = {"counter": self._version, "stateVersion": 0, "timestamp": 0}
        table = {
            f"{topic}{_SEPARATOR}{group}": {str(index): at for index, at in offsets.items()}
            for (topic, group), offsets in self._table.items()
        }
        return {"dataVersion": version, "offsetTable": table}
