"""What a repair will do, decided before it changes anything: values, and their form as JSON.

The plan is stored before the first change and removed after the last one, so a repair that was cut
short is carried out again as it was decided, whatever it had changed by then.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_broker.storage.disk.files import Files, read_file
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.log.blank_records import blank, has_blank_record
from rocketmq_broker.storage.log.durable_mark import Mark
from rocketmq_broker.storage.log.log_checksums import LogChecksum
from rocketmq_broker.storage.queues.lost_messages import Hole, QueueKey
from rocketmq_broker.storage.settings import PLAN_NAME

QUARANTINE_DIRECTORY: Final = "quarantine"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Damaged bytes of one file of the log."""

    file: str
    position: int
    """In the log."""
    size: int
    reason: str
    is_missing: bool = False
    """The file is not there, so there is nothing to copy."""
    store_ms: int = 0
    """The time of what stands before it, which what replaces it gets."""

    @property
    def end(self) -> int:
        return self.position + self.size

    def blank(self, segment_size: int) -> bytes:
        """What is written over it."""
        ends_file = self.end % segment_size == 0
        return blank(self.position, self.size, ends_file=ends_file, store_ms=self.store_ms)

    def has_time(self, segment_size: int) -> bool:
        """Whether what is written over it begins with a record: holes stand there."""
        return has_blank_record(self.size, ends_file=self.end % segment_size == 0)


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What is set aside, and what the store is afterwards."""

    folder: str
    """Where the damaged bytes go."""
    damaged_ranges: tuple[DamagedRange, ...]
    lost: tuple[Hole, ...]
    """Offsets whose messages are gone, by what this repair found."""
    unattributed_size: int
    """Bytes of damage of which nobody knows whose messages they were."""
    unproven_count: int
    """Messages kept beside the damage: sound in all that can still be checked, but the checksum
    that proved each of their bytes is among what is damaged."""
    rewritten: tuple[str, ...]
    """Files that are written anew because they were damaged or missing."""
    holes: tuple[Hole, ...]
    """All holes of the store, with those of earlier repairs."""
    ends: tuple[tuple[str, int, int], ...]
    """(topic, queue, next offset)."""
    seals: tuple[LogChecksum, ...]
    mark: Mark
    store_ms: int
    """The newest store time that is known."""

    @property
    def is_empty(self) -> bool:
        return not self.damaged_ranges and not self.rewritten

    @property
    def lost_count(self) -> int:
        """How many offsets are lost."""
        return sum(hole.end - hole.start for hole in self.lost)

    def lost_by_queue(self) -> dict[QueueKey, list[tuple[int, int]]]:
        """The lost offsets `[start, end)` of each queue."""
        found: dict[QueueKey, list[tuple[int, int]]] = {}
        for hole in self.lost:
            found.setdefault((hole.topic, hole.queue_index), []).append((hole.start, hole.end))
        return found

    def report(self) -> dict[str, Any]:
        """What people and scripts are told."""
        return {
            "quarantine": self.folder,
            "damaged": [
                {
                    "file": stretch.file,
                    "position": stretch.position % self.mark.segment_size,
                    "length": stretch.size,
                    "logPosition": stretch.position,
                    "missing": stretch.is_missing,
                    "reason": stretch.reason,
                }
                for stretch in self.damaged_ranges
            ],
            "lost": [
                {
                    "topic": hole.topic,
                    "queueId": hole.queue_index,
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
        mark = self.mark
        content = {
            "version": _VERSION,
            "folder": self.folder,
            "stretches": [
                [each.file, each.position, each.size, each.reason, each.is_missing, each.store_ms]
                for each in self.damaged_ranges
            ],
            "lost": [hole.as_json() for hole in self.lost],
            "untold": self.unattributed_size,
            "unproven": self.unproven_count,
            "anew": list(self.rewritten),
            "holes": [hole.as_json() for hole in self.holes],
            "ends": [list(end) for end in self.ends],
            "seals": [[seal.start, seal.end, seal.checksum] for seal in self.seals],
            "mark": [
                *(mark.end, mark.log_start, mark.anchor, mark.checksum),
                *(mark.segment_size, mark.queue_file_entries),
            ],
            "storeTime": self.store_ms,
        }
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def load_plan(files: Files) -> RepairPlan | None:
    """The plan of a repair that was cut short. Raises StorageError where it is not readable."""
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
            seals=tuple(LogChecksum(*each) for each in content["seals"]),
            mark=Mark(*content["mark"]),
            store_ms=content["storeTime"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(PLAN_NAME, 0, f"the repair's plan is not readable: {error}") from error
