"""Checkpoints of the derived files (consume queues, key index): how far they are on the disk.

`derived.json` is this broker's own. The queues' files hold all records before `position`, and are
synced; recovery reads the log from there on. With the bounds of all queues, a queue whose messages
have all expired keeps its next offset, and recovery notices a missing file. While queues are
rebuilt only their ends are valid. Its second line is the CRC-32 of the first, in hexadecimal.

`checkpoint` is RocketMQ's: the store times up to which its files are on the disk. This broker
writes it for RocketMQ, and never reads it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from typing import Final

from rocketmq_broker.storage.disk.files import Files, crc32, read_file, write_file
from rocketmq_broker.storage.queues.consume_queue import QueueKey
from rocketmq_wire.model import Bounds, is_lite_queue

DERIVED_NAME: Final = "derived.json"
CHECKPOINT_NAME: Final = "checkpoint"
_VERSION: Final = 1
_CHECKPOINT: Final = struct.Struct(">qqq")
_CHECKPOINT_SIZE: Final = 4096


@dataclass(frozen=True, slots=True)
class IndexFileState:
    """The header's fields of one file of the key index."""

    name: str
    begin_ms: int
    end_ms: int
    begin_position: int
    end_position: int
    count: int
    """Number of the next entry; the first is 1."""


@dataclass(frozen=True, slots=True)
class Derived:
    """One checkpoint of the derived files."""

    position: int = 0
    store_ms: int = 0
    """Newest store time before `position`."""
    bounds: Mapping[QueueKey, Bounds] = field(default_factory=dict)
    checksums: Mapping[QueueKey, tuple[int, ...]] = field(default_factory=dict)
    """CRC-32 of the entries in each file of a queue."""
    index_position: int = 0
    index_slots: int = 0
    index_entries: int = 0
    index_files: tuple[IndexFileState, ...] = ()
    is_rebuilding: bool = False
    """Queues are being rebuilt from the log: only the ends of `bounds` count."""

    def living(self, dead_before: Mapping[str, int]) -> dict[QueueKey, Bounds]:
        """The bounds of queues, without topics deleted later: their records are behind it."""
        return {
            (topic, index): bounds
            for (topic, index), bounds in self.bounds.items()
            if dead_before.get(topic, -1) < self.position
        }


def save_derived(files: Files, derived: Derived) -> None:
    """Return once the checkpoint is on the disk."""
    queues: dict[str, dict[str, list[int]]] = {}
    for (topic, index), bounds in derived.bounds.items():
        queues.setdefault(topic, {})[str(index)] = [
            *(bounds.start, bounds.end),
            *derived.checksums.get((topic, index), ()),
        ]
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
            "files": [list(astuple(each)) for each in derived.index_files],
        },
    }
    text = json.dumps(content, separators=(",", ":")).encode()
    write_file(files, DERIVED_NAME, b"%s\n%08x\n" % (text, crc32(text, 0)))


def load_derived(files: Files) -> Derived | None:
    """The last checkpoint; None if it is missing or damaged, and the log must be read.

    One without a checksum, of a version that had none, is not trusted either.
    """
    data = read_file(files, DERIVED_NAME)
    if data is None:
        return None
    text, _, checksum = data.partition(b"\n")
    if checksum != b"%08x\n" % crc32(text, 0):
        return None
    try:
        content = json.loads(text)
        if content["version"] != _VERSION:
            return None
        index = content["index"]
        queues = {
            (topic, int(queue_index)): tuple(map(int, numbers))
            for topic, queues in content["queues"].items()
            if not is_lite_queue(topic)
            for queue_index, numbers in queues.items()
        }
        return Derived(
            position=int(content["position"]),
            store_ms=int(content["storeTime"]),
            bounds={key: Bounds(start, end) for key, (start, end, *_) in queues.items()},
            checksums={key: numbers[2:] for key, numbers in queues.items()},
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


def save_rocketmq_checkpoint(files: Files, store_ms: int) -> None:
    """Return once RocketMQ's file has this store time for log, queues and index."""
    data = _CHECKPOINT.pack(store_ms, store_ms, store_ms)
    write_file(files, CHECKPOINT_NAME, data.ljust(_CHECKPOINT_SIZE, b"\x00"))
