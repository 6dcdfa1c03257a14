"""How far the derived files (consume queues, key index) are on the disk, as one small JSON file.

Everything before `position` is in the queues' files, and those are synced: recovery reads the log
again from there on. The bounds of all queues are in here: a queue whose messages have all expired
still knows its next offset, and a queue's file that is missing is missed. While queues are made
anew it says nothing of their files, only of their ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rocketmq_broker.storage.disk.files import Files, read_file, write_file
from rocketmq_broker.storage.queues.lite_queues import is_lite_queue
from rocketmq_wire.model import Bounds

DERIVED_NAME: Final = "derived.json"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class IndexFileState:
    """One file of the key index: the fields of its header."""

    name: str
    begin_ms: int
    end_ms: int
    begin_position: int
    end_position: int
    count: int
    """The number of the next entry; the first is 1."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A state of the derived files that is on the disk."""

    position: int = 0
    store_ms: int = 0
    """The newest store time before `position`."""
    bounds: Mapping[tuple[str, int], Bounds] = field(default_factory=dict)
    index_position: int = 0
    index_slots: int = 0
    index_entries: int = 0
    index_files: tuple[IndexFileState, ...] = ()
    is_rebuilding: bool = False
    """Queues are made anew from the log: of `bounds` only the ends count, for what has expired."""


def save_derived(files: Files, derived: Derived) -> None:
    """Return once the state is on the disk."""
    queues: dict[str, dict[str, list[int]]] = {}
    for (topic, index), bounds in derived.bounds.items():
        queues.setdefault(topic, {})[str(index)] = [bounds.start, bounds.end]
    content = {
        "version": _VERSION,
        "position": derived.position,
        "storeTime": derived.store_ms,
        "queues": queues,
        **({"rebuilding": True} if derived.is_rebuilding else {}),
        "index": {
            "position": derived.index_position,
            "slots": derived.index_slots,
            "entries": derived.index_entries,
            "files": [
                [
                    each.name,
                    each.begin_ms,
                    each.end_ms,
                    each.begin_position,
                    each.end_position,
                    each.count,
                ]
                for each in derived.index_files
            ],
        },
    }
    write_file(files, DERIVED_NAME, json.dumps(content, separators=(",", ":")).encode())


def load_derived(files: Files) -> Derived | None:
    """The state, or None if there is none or it is unreadable: then the log is read instead."""
    data = read_file(files, DERIVED_NAME)
    if data is None:
        return None
    try:
        content = json.loads(data)
        if content["version"] != _VERSION:
            return None
        index = content["index"]
        return Derived(
            position=int(content["position"]),
            store_ms=int(content["storeTime"]),
            bounds={
                (topic, int(queue_index)): Bounds(int(start), int(end))
                for topic, queues in content["queues"].items()
                if not is_lite_queue(topic)
                for queue_index, (start, end) in queues.items()
            },
            index_position=int(index["position"]),
            index_slots=int(index["slots"]),
            index_entries=int(index["entries"]),
            index_files=tuple(
                IndexFileState(str(name), *map(int, numbers)) for name, *numbers in index["files"]
            ),
            is_rebuilding=bool(content.get("rebuilding")),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
