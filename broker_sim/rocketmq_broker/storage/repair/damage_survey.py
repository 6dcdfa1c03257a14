"""Finds what is damaged in a store and what of its queues is lost: a plan of its repair.

Where the log's checksums hold, its records are believed. Elsewhere each record has to prove itself,
by its place, its sizes, its body's checksum, its text, and the entry of its queue; between two
that do lies damage. Gaps in the offsets of a queue are then what is lost.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from rocketmq_broker.storage.disk.checksum import crc32
from rocketmq_broker.storage.disk.config_files import Configs
from rocketmq_broker.storage.disk.files import Files
from rocketmq_broker.storage.log.durable_mark import MARK_NAME, Mark, read_mark
from rocketmq_broker.storage.log.log_checksums import (
    LOG_CHECKSUMS_NAME,
    LogChecksum,
    read_log_checksums,
)
from rocketmq_broker.storage.log.segment import segment_name
from rocketmq_broker.storage.queues.derived import Derived, load_derived
from rocketmq_broker.storage.queues.lost_messages import load_holes
from rocketmq_broker.storage.repair.listed_messages import ListedMessages
from rocketmq_broker.storage.repair.log_files import LogFiles
from rocketmq_broker.storage.repair.queue_gaps import QueueGaps
from rocketmq_broker.storage.repair.record_search import RecordSearch, Span
from rocketmq_broker.storage.repair.repair_plan import DamagedRange, RepairPlan

Said = Callable[[str], None]
_SEAL_SIZE: Final = 16 * 1024 * 1024
_SILENT: Final[Said] = lambda _: None  # noqa: E731
_UNPROVEN: Final = (
    "the bytes are not what was written, and which of its messages they belong to cannot be told"
)


@dataclass(frozen=True, slots=True)
class _Sources:
    """What a survey reads."""

    log: LogFiles
    mark: Mark
    seals: tuple[LogChecksum, ...]
    """Those that can be read, up to the first that cannot."""
    rewritten: tuple[str, ...]


def survey_damage(
    files: Files, folder: str, *, keeps_unproven: bool, progress: Said | None = None
) -> RepairPlan:
    """Look at everything, and change nothing."""
    say = progress or _SILENT
    dead_before = Configs(files).dead_before
    derived = load_derived(files)
    sources = _sources(files, derived)
    log, mark = sources.log, sources.mark
    if derived is not None and derived.position > mark.end:
        derived = None
    listed = ListedMessages(files, derived, dead_before, mark)
    unsealed = _unsealed(sources)
    bad = sorted((*_differing(sources, say), *unsealed))
    search = RecordSearch(log, listed, dead_before, mark)
    damage: list[DamagedRange] = []
    spans: list[Span] = []
    for base in log.bases(mark.log_start, mark.end):
        say(f"looking at {segment_name(base)}")
        found, kept = search.look(base, bad)
        damage += found
        spans += kept
    unproven = 0
    places, ends_of = [span.position for span in spans], [span.end for span in spans]
    for start, end in bad:
        inside = spans[bisect_right(ends_of, start) : bisect_left(places, end)]
        is_located = any(each.position < end and each.end > start for each in damage)
        if is_located or keeps_unproven or (start, end) in unsealed:
            unproven += len(inside)
        else:
            damage += _joined(inside, mark.segment_size)
    gaps = QueueGaps(log, mark, dead_before, _merged(damage), load_holes(files))
    for base in log.bases(mark.log_start, mark.end):
        say(f"reading {segment_name(base)}")
        gaps.read(base)
    damage = gaps.timed()
    lost, ends = gaps.result(listed, search.hints)
    listed.close()
    if not damage:
        # A queue may list what it likes: of a log without damage nothing is lost.
        lost = []
    seals = _seals_after(sources, damage, bad)
    return RepairPlan(
        folder=folder,
        damaged_ranges=tuple(damage),
        lost=tuple(lost),
        unattributed_size=gaps.unattributed_size,
        unproven_count=unproven,
        rewritten=sources.rewritten,
        holes=tuple(gaps.all_holes(lost)),
        ends=tuple((topic, index, end) for (topic, index), end in sorted(ends.items()) if end),
        seals=tuple(seals),
        mark=replace(mark, anchor=mark.end, checksum=0),
        store_ms=max(gaps.newest_ms, derived.store_ms if derived is not None else 0),
    )


def _sources(files: Files, derived: Derived | None) -> _Sources:
    mark = read_mark(files)
    rewritten: list[str] = []
    if mark is None:
        rewritten.append(MARK_NAME)
        mark = _found_mark(files, derived)
    log = LogFiles(files, mark.segment_size)
    seals = read_log_checksums(files, anchor=mark.anchor)
    reached = seals[-1].end if seals else mark.log_start
    if reached < mark.anchor and MARK_NAME not in rewritten:
        rewritten.append(LOG_CHECKSUMS_NAME)
    kept = tuple(seal for seal in seals if seal.end > mark.log_start)
    return _Sources(log, mark, kept, tuple(rewritten))


def _found_mark(files: Files, derived: Derived | None) -> Mark:
    """What the mark will have said, by the rest of the store: at least as far as anything reaches.

    Nothing says any more where acknowledged data ended, so whatever is sound is taken for it.
    """
    log = LogFiles(files, LogFiles.size_of(files))
    bases = log.found
    log_start = bases[0] if bases else 0
    end = log_start if derived is None else max(derived.position, log_start)
    seals = read_log_checksums(files, anchor=2**62)
    end = max([end, *(seal.end for seal in seals)])
    queue_file_entries = ListedMessages.entries_per_file(files)
    mark = Mark(
        end=log.end,
        log_start=log_start,
        anchor=log.end,
        checksum=0,
        segment_size=log.segment_size,
        queue_file_entries=queue_file_entries,
    )
    end = max(end, ListedMessages(files, None, {}, mark).end, RecordSearch.last_end(log))
    return replace(mark, end=end, anchor=end)


def _differing(sources: _Sources, say: Said) -> list[tuple[int, int]]:
    """Where the log is not what its checksums say."""
    log, mark, found = sources.log, sources.mark, []
    for seal in _all_seals(sources):
        say(f"comparing checksums up to {seal.end:,} of {mark.end:,} bytes")
        # One that began in deleted log cannot be compared any more, nor does a start.
        is_whole = seal.start >= mark.log_start
        if is_whole and _checksum(log, seal.start, seal.end) != seal.checksum:
            found.append((seal.start, seal.end))
    return found


def _unsealed(sources: _Sources) -> list[tuple[int, int]]:
    """Where no checksum can be read any more, which says nothing of the log itself."""
    found, reached = [], sources.mark.log_start
    for seal in _all_seals(sources):
        if seal.start > reached:
            found.append((reached, seal.start))
        reached = seal.end
    if reached < sources.mark.end:
        found.append((reached, sources.mark.end))
    return found


def _all_seals(sources: _Sources) -> list[LogChecksum]:
    mark, seals = sources.mark, list(sources.seals)
    if MARK_NAME not in sources.rewritten and mark.end > mark.anchor:
        seals.append(LogChecksum(mark.anchor, mark.end, mark.checksum))
    return seals


def _checksum(log: LogFiles, start: int, end: int) -> int | None:
    found = 0
    for piece in log.pieces(start, end):
        if piece is None:
            return None
        found = crc32(piece.data, found)
    return found


def _joined(spans: list[Span], segment_size: int) -> list[DamagedRange]:
    """All of these records, and a filler behind them, as damage."""
    return [
        DamagedRange(segment_name(span.position - span.position % segment_size), *at, _UNPROVEN)
        for span in spans
        for at in [(span.position, span.end - span.position)]
    ]


def _merged(damage: list[DamagedRange]) -> list[DamagedRange]:
    """Ascending, and those that touch within one file as one."""
    merged: list[DamagedRange] = []
    for stretch in sorted(damage, key=lambda each: each.position):
        last = merged[-1] if merged else None
        if last is not None and last.file == stretch.file and last.end >= stretch.position:
            size = max(last.end, stretch.end) - last.position
            merged[-1] = replace(last, size=size)
        else:
            merged.append(stretch)
    return merged


def _seals_after(
    sources: _Sources, damage: list[DamagedRange], bad: list[tuple[int, int]]
) -> Iterator[LogChecksum]:
    """Checksums of the log as it will be: the old ones where nothing changes."""
    log, mark, reached = sources.log, sources.mark, sources.mark.log_start
    for seal in _all_seals(sources):
        yield from _new_seals(log, reached, seal.start, damage)
        is_bad = (max(seal.start, mark.log_start), seal.end) in bad
        if is_bad or any(each.position < seal.end and each.end > seal.start for each in damage):
            start = max(seal.start, mark.log_start)
            yield LogChecksum(start, seal.end, crc32(log.repaired(start, seal.end, damage), 0))
        else:
            yield seal
        reached = seal.end
    yield from _new_seals(log, reached, mark.end, damage)


def _new_seals(
    log: LogFiles, start: int, end: int, damage: list[DamagedRange]
) -> Iterator[LogChecksum]:
    while start < end:
        stop = min(end, start + _SEAL_SIZE, start - start % log.segment_size + log.segment_size)
        yield LogChecksum(start, stop, crc32(log.repaired(start, stop, damage), 0))
        start = stop
