"""The plan of a repair, complete before the first change, and its form as JSON (`repair.plan`).

The plan is stored before the first change and removed after the last one. So a repair that was
interrupted is carried out again as planned, with whatever it had changed by then.
"""

from __future__ import annotations

import json
from dataclasses import astuple, dataclass
from typing import Any, Final

from rocketmq_broker.storage.disk.files import Files, read_file
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.log.blank_records import blank, has_blank_record
from rocketmq_broker.storage.log.durability import LogChecksum, Mark
from rocketmq_broker.storage.queues.consume_queue import QueueKey
from rocketmq_broker.storage.queues.lost_messages import Hole
from rocketmq_broker.storage.settings import PLAN_NAME

QUARANTINE_DIRECTORY: Final = "quarantine"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Damaged bytes of one file of the log."""

    file: str
    position: int
    """Log position of the first damaged byte."""
    size: int
    reason: str
    is_missing: bool = False
    """True if the file is missing, so there is nothing to copy."""
    store_ms: int = 0
    """Store time of the record before the damage, which the blank records get."""

    @property
    def end(self) -> int:
        return self.position + self.size

    def overlaps(self, start: int, end: int) -> bool:
        return self.position < end and self.end > start

    def blank(self, segment_size: int) -> bytes:
        """The blank records that replace the damage."""
        ends_file = self.end % segment_size == 0
        return blank(self.position, self.size, ends_file=ends_file, store_ms=self.store_ms)

    def has_time(self, segment_size: int) -> bool:
        """True if a blank record, not only a filler, replaces the damage: holes refer to it."""
        return has_blank_record(self.size, ends_file=self.end % segment_size == 0)


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The damage to set aside, and the state of the store afterwards."""

    folder: str
    """Folder for the copies of the damaged bytes."""
    damaged_ranges: tuple[DamagedRange, ...]
    lost: tuple[Hole, ...]
    """Offsets of the messages that this repair gives up."""
    unattributed_size: int
    """Size of damage that no known message had."""
    unproven_count: int
    """Number of messages kept beside the damage: they pass all checks that are left, but the
    checksum of their range differs or is damaged."""
    rewritten: tuple[str, ...]
    """Files that are written again because they were damaged or missing."""
    holes: tuple[Hole, ...]
    """All holes of the store, with those of earlier repairs."""
    ends: tuple[tuple[str, int, int], ...]
    """Topic, queue index and next offset of each queue."""
    checksums: tuple[LogChecksum, ...]
    mark: Mark
    store_ms: int
    """Newest known store time."""

    @property
    def is_empty(self) -> bool:
        return not self.damaged_ranges and not self.rewritten

    @property
    def lost_count(self) -> int:
        return sum(hole.end - hole.start for hole in self.lost)

    def lost_by_queue(self) -> dict[QueueKey, list[tuple[int, int]]]:
        """Lost offsets `[start, end)` by queue."""
        found: dict[QueueKey, list[tuple[int, int]]] = {}
        for hole in self.lost:
            found.setdefault((hole.topic, hole.queue_index), []).append((hole.start, hole.end))
        return found

    def report(self) -> dict[str, Any]:
        """The content of `report.json`, for people and scripts."""
        return {
            "quarantine": self.folder,
            "damaged": [
                {
                    "file": each.file,
                    "position": each.position % self.mark.segment_size,
                    "length": each.size,
                    "logPosition": each.position,
                    "missing": each.is_missing,
                    "reason": each.reason,
                }
                for each in self.damaged_ranges
            ],
            "lost": [
                {
                    "topic": hole.topic,
                    "queue": hole.queue_index,
                    "start": hole.start,
                    "end": hole.end,
                    "count": hole.end - hole.start,
                }
                for hole in self.lost
            ],
            "lostMessages": self.lost_count,
            "untoldBytes": self.unattributed_size,
            "unprovenMessages": self.unproven_count,
            "writtenAnew": list(self.rewritten),
        }

    def encode(self) -> bytes:
        content = {
            "version": _VERSION,
            "folder": self.folder,
            "stretches": list(map(astuple, self.damaged_ranges)),
            "lost": [hole.as_json() for hole in self.lost],
            "untold": self.unattributed_size,
            "unproven": self.unproven_count,
            "anew": self.rewritten,
            "holes": [hole.as_json() for hole in self.holes],
            "ends": self.ends,
            "seals": list(map(astuple, self.checksums)),
            "mark": astuple(self.mark),
            "storeTime": self.store_ms,
        }
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def load_plan(files: Files) -> RepairPlan | None:
    """The plan of a repair that was interrupted. Raises StorageError if it is unreadable."""
    data = read_file(files, PLAN_NAME)
    if data is None:
        return None
    try:
        content = json.loads(data)
        if content["version"] != _VERSION:
            raise ValueError(f"its version is {content['version']}")
        return RepairPlan(
            folder=content["folder"],
            damaged_ranges=tuple(DamagedRange(*each) for each in content["stretches"]),
            lost=tuple(map(Hole.of_json, content["lost"])),
            unattributed_size=content["untold"],
            unproven_count=content["unproven"],
            rewritten=tuple(content["anew"]),
            holes=tuple(map(Hole.of_json, content["holes"])),
            ends=tuple((topic, index, end) for topic, index, end in content["ends"]),
            checksums=tuple(LogChecksum(*each) for each in content["seals"]),
            mark=Mark(*content["mark"]),
            store_ms=content["storeTime"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(PLAN_NAME, 0, f"the repair's plan is not readable: {error}") from error
