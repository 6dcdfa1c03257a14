"""Finds the damage of a store and the lost messages of its queues: plans the repair.

Where the log's checksums match, its records are trusted. Elsewhere each record must prove itself:
by its position, its sizes, its body's checksum, its text, and its queue's entry. The bytes between
two proven records are damage. Gaps in the offsets of a queue are lost messages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from rocketmq_broker.storage.disk.config_files import Configs
from rocketmq_broker.storage.disk.files import Files, crc32
from rocketmq_broker.storage.log.commit_log import segment_name
from rocketmq_broker.storage.log.durability import (
    LOG_CHECKSUMS_NAME,
    MARK_NAME,
    LogChecksum,
    Mark,
    read_log_checksums,
    read_mark,
)
from rocketmq_broker.storage.queues.derived import Derived, load_derived
from rocketmq_broker.storage.queues.lost_messages import load_holes
from rocketmq_broker.storage.repair.listed_messages import ListedMessages
from rocketmq_broker.storage.repair.log_files import LogFiles, LogRange, Say, silent
from rocketmq_broker.storage.repair.queue_gaps import QueueGaps
from rocketmq_broker.storage.repair.record_search import RecordSearch
from rocketmq_broker.storage.repair.repair_plan import DamagedRange, RepairPlan

_CHECKSUM_RANGE_SIZE: Final = 16 * 1024 * 1024
_UNPROVEN: Final = (
    "the bytes are not what was written, and it is unknown which of its messages had them"
)


@dataclass(frozen=True, slots=True)
class _Sources:
    """The files that a survey reads."""

    log: LogFiles
    mark: Mark
    checksums: tuple[LogChecksum, ...]
    """Readable checksums of the log, with the mark's."""
    rewritten: tuple[str, ...]
    """Files that are damaged or missing, so that the repair writes them again."""

    def differing(self, say: Say) -> list[LogRange]:
        """The ranges of the log that differ from their checksums."""
        found = []
        for each in self.checksums:
            say(f"comparing checksums up to {each.end:,} of {self.mark.end:,} bytes")
            # A range whose start was deleted has no checksum any more.
            is_whole = each.start >= self.mark.log_start
            if is_whole and self.log.crc(each.start, each.end) != each.crc:
                found.append(LogRange(each.start, each.end))
        return found

    def without_checksum(self) -> list[LogRange]:
        """The ranges of the log whose checksums are not readable; they may be sound."""
        found, reached = [], self.mark.log_start
        for each in self.checksums:
            if each.start > reached:
                found.append(LogRange(reached, each.start))
            reached = each.end
        if reached < self.mark.end:
            found.append(LogRange(reached, self.mark.end))
        return found


def survey_damage(
    files: Files, folder: str, *, keeps_unproven: bool, say: Say = silent
) -> RepairPlan:
    """Read the whole store and plan its repair; changes nothing."""
    dead_before = Configs(files).dead_before
    derived = load_derived(files)
    sources = _sources(files, derived)
    log, mark = sources.log, sources.mark
    if derived is None or derived.position > mark.end:
        derived = Derived(mark.log_start)
    listed = ListedMessages(files, derived, dead_before, mark)
    without_checksum = sources.without_checksum()
    unverified = sorted((*sources.differing(say), *without_checksum))
    search = RecordSearch(log, listed)
    damage: list[DamagedRange] = []
    proven: list[LogRange] = []
    for base in log.bases(mark.log_start, mark.end):
        say(f"searching {segment_name(base)}")
        found, records = search.search(base, unverified)
        damage += found
        proven += records
    unproven_count = 0
    starts, ends_of = [each.start for each in proven], [each.end for each in proven]
    for bad in unverified:
        inside = proven[bisect_right(ends_of, bad.start) : bisect_left(starts, bad.end)]
        is_located = any(each.overlaps(bad.start, bad.end) for each in damage)
        if is_located or keeps_unproven or bad in without_checksum:
            unproven_count += len(inside)
        else:
            damage += _as_damage(inside, mark.segment_size)
    gaps = QueueGaps(log, listed, _merged(damage), load_holes(files))
    for base in log.bases(mark.log_start, mark.end):
        say(f"reading {segment_name(base)}")
        gaps.read(base)
    damage = gaps.timed()
    lost, ends = gaps.result(search.hints)
    listed.close()
    if not damage:
        # A queue may list more messages, but a log without damage has lost none.
        lost = []
    return RepairPlan(
        folder=folder,
        damaged_ranges=tuple(damage),
        lost=tuple(lost),
        unattributed_size=gaps.unattributed_size,
        unproven_count=unproven_count,
        rewritten=sources.rewritten,
        holes=tuple(gaps.all_holes(lost)),
        ends=tuple((topic, index, end) for (topic, index), end in sorted(ends.items()) if end),
        checksums=tuple(_repaired_checksums(sources, damage, unverified)),
        mark=replace(mark, anchor=mark.end, checksum=0),
        store_ms=max(gaps.newest_ms, derived.store_ms),
    )


def _sources(files: Files, derived: Derived | None) -> _Sources:
    found = read_mark(files)
    mark = found or _estimated_mark(files, derived)
    checksums = read_log_checksums(files, anchor=mark.anchor)
    reached = checksums[-1].end if checksums else mark.log_start
    rewritten: tuple[str, ...] = ()
    if found is None:
        rewritten = (MARK_NAME,)
    elif reached < mark.anchor:
        rewritten = (LOG_CHECKSUMS_NAME,)
    kept = [each for each in checksums if each.end > mark.log_start]
    # An estimated mark ends at its anchor.
    if mark.end > mark.anchor:
        kept.append(LogChecksum(mark.anchor, mark.end, mark.checksum))
    return _Sources(LogFiles(files, mark.segment_size), mark, tuple(kept), rewritten)


def _estimated_mark(files: Files, derived: Derived | None) -> Mark:
    """A mark that reaches as far as anything else in the store does.

    The end of acknowledged data is not known without a mark, so all sound data counts as
    acknowledged.
    """
    log = LogFiles(files, LogFiles.size_of(files))
    log_start = log.found[0] if log.found else 0
    checksums = read_log_checksums(files, anchor=2**62)
    entries_per_file = ListedMessages.entries_per_file(files)
    mark = Mark.at_anchor(log.end, log_start, log.segment_size, entries_per_file)
    end = max(
        log_start,
        derived.position if derived is not None else 0,
        *(each.end for each in checksums),
        ListedMessages(files, Derived(log_start), {}, mark).end,
        RecordSearch.last_end(log),
    )
    return replace(mark, end=end, anchor=end)


def _as_damage(records: list[LogRange], segment_size: int) -> list[DamagedRange]:
    """These records as damage."""
    return [
        DamagedRange(
            segment_name(each.start - each.start % segment_size),
            each.start,
            each.end - each.start,
            _UNPROVEN,
        )
        for each in records
    ]


def _merged(damage: list[DamagedRange]) -> list[DamagedRange]:
    """The ranges in ascending order; those that touch within one file are merged."""
    merged: list[DamagedRange] = []
    for each in sorted(damage, key=lambda each: each.position):
        last = merged[-1] if merged else None
        if last is not None and last.file == each.file and last.end >= each.position:
            merged[-1] = replace(last, size=max(last.end, each.end) - last.position)
        else:
            merged.append(each)
    return merged


def _repaired_checksums(
    sources: _Sources, damage: list[DamagedRange], unverified: list[LogRange]
) -> Iterator[LogChecksum]:
    """Checksums of the repaired log: the old ones of ranges that do not change."""
    log, mark, reached = sources.log, sources.mark, sources.mark.log_start
    for each in sources.checksums:
        yield from _new_checksums(log, reached, each.start, damage)
        start = max(each.start, mark.log_start)
        is_changed = any(bad.overlaps(each.start, each.end) for bad in damage)
        if is_changed or LogRange(start, each.end) in unverified:
            crc = crc32(log.repaired(start, each.end, damage), 0)
            yield LogChecksum(start, each.end, crc)
        else:
            yield each
        reached = each.end
    yield from _new_checksums(log, reached, mark.end, damage)


def _new_checksums(
    log: LogFiles, start: int, end: int, damage: list[DamagedRange]
) -> Iterator[LogChecksum]:
    while start < end:
        file_end = start - start % log.segment_size + log.segment_size
        stop = min(end, start + _CHECKSUM_RANGE_SIZE, file_end)
        yield LogChecksum(start, stop, crc32(log.repaired(start, stop, damage), 0))
        start = stop
