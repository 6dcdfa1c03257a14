"""Tells sound records of a log's file from damage, where its checksums do not hold.

A record has no checksum but its body's. So it must also say the place that it is at, have sizes
that add up and text that reads, and be what its queue lists, or go on where its queue ended.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from rocketmq_arrow.decode.boundaries import MAGIC_V1, MAGIC_V2
from rocketmq_arrow.decode.layout import PHYSICAL_OFFSET_AT, read_layout
from rocketmq_broker.storage.log.blank_records import BLANK_SIZE_MIN, BLANK_TOPIC
from rocketmq_broker.storage.log.commit_log import FILLER, FILLER_MAGIC
from rocketmq_broker.storage.log.durable_mark import Mark
from rocketmq_broker.storage.log.scan import Bytes, chain, columns_of, is_filler
from rocketmq_broker.storage.log.segment import segment_name
from rocketmq_broker.storage.queues.due_times import SCHEDULE_TOPIC
from rocketmq_broker.storage.queues.lost_messages import QueueKey
from rocketmq_broker.storage.repair.listed_messages import ListedMessages
from rocketmq_broker.storage.repair.log_files import LogFiles
from rocketmq_broker.storage.repair.repair_plan import DamagedRange
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.hashes import java_hash
from rocketmq_wire.model import StoredMessage
from rocketmq_wire.records.properties import TAGS
from rocketmq_wire.records.record import decode_record

_ROWS_PER_CHUNK: Final = 16_384
_MAGICS: Final = (struct.pack(">I", MAGIC_V1), struct.pack(">I", MAGIC_V2))
_FILLER_MAGIC: Final = struct.pack(">I", FILLER_MAGIC)
_MAGIC_AT: Final = 4
_PLACE: Final = struct.Struct(">q")

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Span:
    """A record that proved itself, by log position."""

    position: int
    end: int


class RecordSearch:
    """Looks at one file after the other, in the order of the log."""

    def __init__(
        self,
        log: LogFiles,
        listed: ListedMessages,
        dead_before: Mapping[str, int],
        mark: Mark,
    ) -> None:
        self.hints: dict[QueueKey, int] = {}
        """Next offsets that damaged records speak of, where their queues have not listed them."""
        self._log, self._listed, self._dead_before, self._mark = log, listed, dead_before, mark
        self._next: dict[QueueKey, int] = {}
        self._place: dict[QueueKey, int] = {}
        self._last_damage = -1
        self._text: tuple[int, bytes] = (-1, b"")
        self._found: dict[bytes, tuple[int, int]] = {}

    @staticmethod
    def last_end(log: LogFiles) -> int:
        """Where the last record of a log ends that says its own place, whatever is before it."""
        for base in reversed(log.found):
            data = log.data(base)
            assert data is not None
            text = data.tobytes()
            at = max(text.rfind(magic) for magic in _MAGICS)
            while at >= 0:
                end = _record_end(data, base, at - _MAGIC_AT)
                if end is not None:
                    return base + end
                at = max(text.rfind(magic, 0, at) for magic in _MAGICS)
        return 0

    def look(self, base: int, bad: Ranges) -> tuple[list[DamagedRange], list[Span]]:
        """The damage of one file, and the records that are sound in its bad ranges."""
        data, name = self._log.data(base), segment_name(base)
        limit = min(self._log.segment_size, self._mark.end - base)
        if data is None:
            self._last_damage = base
            return [DamagedRange(name, base, limit, "the file is missing", is_missing=True)], []
        damaged_ranges: list[DamagedRange] = []
        spans: list[Span] = []
        at = 0
        while at < limit:
            bad_start = next((start for start, end in bad if end > base + at), base + limit)
            believed_end = min(limit, bad_start - base)
            if believed_end > at:
                end = self._believe(data[:believed_end], base, at)
                if end > at:
                    at = end
                    continue
            found = self._prove(data, base, at, limit)
            if isinstance(found, str):
                end = self._next_sound(data, base, at, limit)
                self._note_hints(data, base, at, end)
                self._last_damage = base + at
                damaged_ranges.append(DamagedRange(name, base + at, end - at, found))
                at = end
            else:
                spans.append(Span(base + at, base + found))
                at = found
        return damaged_ranges, spans

    def _believe(self, data: Bytes, base: int, at: int) -> int:
        """Take the records that a checksum vouches for; returns how far they go."""
        starts, end, is_full = chain(data, at, _ROWS_PER_CHUNK)
        if len(starts):
            sizes = np.diff(starts, append=end)
            layout, damaged = read_layout(data, starts, sizes, None)
            if len(damaged):
                return at
            for part in columns_of(layout, base, self._dead_before).queues:
                key = (part.topic, part.queue_index)
                self._next[key] = int(part.offsets[-1]) + 1
                self._place[key] = base + int(starts[part.rows[-1]])
        if is_full and len(data) == self._log.segment_size:
            return len(data)
        return end

    def _prove(self, data: Bytes, base: int, at: int, limit: int) -> int | str:
        """Where the sound record or filler at a place ends; else what is wrong with it."""
        if limit == self._log.segment_size and is_filler(data, at):
            if data[at + FILLER.size :].any():
                return "what fills the end of the file is not blank"
            return limit
        try:
            message, end = decode_record(data.data[:limit], at)
        except CorruptRecordError as error:
            return error.reason
        if message.physical_offset != base + at:
            return f"the record says it is at log position {message.physical_offset}"
        reason = _text_damage(data, at, end, message)
        if reason is None and message.topic != BLANK_TOPIC:
            reason = self._queue_damage(message, base + at, end - at)
        return end if reason is None else reason

    def _queue_damage(self, message: StoredMessage, position: int, size: int) -> str | None:
        """What speaks against a record's place in its queue; notes it where nothing does."""
        if position < self._dead_before.get(message.topic, 0):
            return None
        key, offset = (message.topic, message.queue_index), message.queue_offset
        name = f"offset {offset} of {key[0]}/{key[1]}"
        entry = self._listed.entry(key, offset)
        goes_on = self._goes_on(key, offset)
        if entry is not None and entry[:2] == (position, size):
            tag_hash = java_hash(message.properties.get(TAGS, ""))
            if message.topic != SCHEDULE_TOPIC and entry[2] != tag_hash:
                return f"its tags are not those that {name} is listed with"
        elif self._listed.is_promised(key, offset) and self._next.get(key) != offset:
            return f"it says it is {name}, which is listed elsewhere"
        elif position < self._listed.position and not self._listed.is_promised(key, offset):
            return f"it says it is {name}, which is not listed"
        elif not goes_on:
            return f"it says it is {name}, which is not what follows there"
        self._next[key], self._place[key] = offset + 1, position
        return None

    def _goes_on(self, key: QueueKey, offset: int) -> bool:
        expected = self._next.get(key)
        if expected is None:
            return offset == 0 or self._mark.log_start > 0 or self._last_damage >= 0
        if offset > expected:
            return self._last_damage > self._place[key]
        return offset == expected

    def _next_sound(self, data: Bytes, base: int, at: int, limit: int) -> int:
        """Where damage ends: at the next sound record or filler, or at the limit."""
        if self._text[0] != base:
            self._text = base, data.tobytes()
            self._found = {}
        # What is written over damage is a record, and no record is smaller.
        candidate = self._next_candidate(at + BLANK_SIZE_MIN)
        while candidate is not None and candidate < limit:
            if not isinstance(self._prove(data, base, candidate, limit), str):
                return candidate
            candidate = self._next_candidate(candidate + 1)
        return limit

    def _next_candidate(self, at: int) -> int | None:
        """The first place from `at` on where a record or a filler might begin."""
        found = [self._find(magic, at + _MAGIC_AT) for magic in (*_MAGICS, _FILLER_MAGIC)]
        return min((place - _MAGIC_AT for place in found if place >= 0), default=None)

    def _find(self, magic: bytes, at: int) -> int:
        """As `bytes.find`; what was found, or that nothing was, holds for later places too."""
        since, place = self._found.get(magic, (at + 1, -1))
        if at < since or 0 <= place < at:
            place = self._text[1].find(magic, at)
            self._found[magic] = at, place
        return place

    def _note_hints(self, data: Bytes, base: int, at: int, end: int) -> None:
        """Take down offsets of damaged records that are behind what their queues have listed."""
        while at < end:
            try:
                message, after = decode_record(data.data[:end], at, check_crc=False)
            except CorruptRecordError:
                return
            key = (message.topic, message.queue_index)
            is_known = key in self._next or key in self._listed.queues
            if is_known and message.physical_offset == base + at >= self._listed.position:
                expected = self._next.get(key, 0)
                # A damaged offset may be any number; more than the damage can hold is not true.
                if expected <= message.queue_offset <= expected + (end - at) // BLANK_SIZE_MIN:
                    end_hint = message.queue_offset + 1
                    self.hints[key] = max(self.hints.get(key, 0), end_hint)
            at = after


def _record_end(data: Bytes, base: int, at: int) -> int | None:
    if at < 0 or len(data) - at < BLANK_SIZE_MIN:
        return None
    if _PLACE.unpack_from(data.data, at + PHYSICAL_OFFSET_AT)[0] != base + at:
        return None
    try:
        return decode_record(data.data, at)[1]
    except CorruptRecordError:
        return None


def _text_damage(data: Bytes, at: int, end: int, message: StoredMessage) -> str | None:
    """What no checksum covers, but text has to be: the topic and the properties."""
    view = data.data
    is_v2 = bytes(view[at + _MAGIC_AT : at + 2 * _MAGIC_AT]) == _MAGICS[1]
    topic = message.topic.encode("utf-8", "replace")
    if not topic or b"\x00" in topic or "\ufffd" in message.topic:
        return "the record's topic is not readable"
    head = end - at - len(message.body) - len(topic)
    # Behind the fixed fields, with IPv4 or IPv6 hosts: body, topic and properties.
    hosts = 12 * (bool(message.sys_flag & 0x10) + bool(message.sys_flag & 0x20))
    text_size = head - 88 - hosts - (2 if is_v2 else 1) - 2
    try:
        text = str(view[end - text_size : end], "utf-8")
    except UnicodeDecodeError:
        return "the record's properties are not readable"
    items = [item for item in text.split("\x02") if item]
    if "\x00" in text or any(item.count("\x01") != 1 for item in items):
        return "the record's properties are not readable"
    return None
