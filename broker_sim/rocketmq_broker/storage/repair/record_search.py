"""Separates sound records from damage in ranges of the log whose checksums do not match.

Only a record's body has a checksum. So a sound record must also have its own log position, sizes
that add up and readable text, and must be what its queue lists, or follow its queue's end.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from rocketmq_arrow.decode.boundaries import MAGIC_V1, MAGIC_V2
from rocketmq_arrow.decode.layout import PHYSICAL_OFFSET_AT, read_layout
from rocketmq_arrow.kernels.gather import Bytes
from rocketmq_broker.storage.log.blank_records import BLANK_SIZE_MIN, BLANK_TOPIC
from rocketmq_broker.storage.log.commit_log import FILLER, FILLER_MAGIC, segment_name
from rocketmq_broker.storage.log.scan import ROWS_PER_CHUNK, chain_of, columns_of, is_filler
from rocketmq_broker.storage.queues.consume_queue import SCHEDULE_TOPIC, QueueKey
from rocketmq_broker.storage.repair.listed_messages import ListedMessages
from rocketmq_broker.storage.repair.log_files import LogFiles, LogRange
from rocketmq_broker.storage.repair.repair_plan import DamagedRange
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.hashes import java_hash
from rocketmq_wire.model import StoredMessage
from rocketmq_wire.records.properties import TAGS
from rocketmq_wire.records.record import decode_record

_MAGICS: Final = (struct.pack(">I", MAGIC_V1), struct.pack(">I", MAGIC_V2))
_FILLER_MAGIC: Final = struct.pack(">I", FILLER_MAGIC)
_MAGIC_AT: Final = 4
_POSITION: Final = struct.Struct(">q")


class RecordSearch:
    """Searches one file after the other, in the order of the log."""

    def __init__(self, log: LogFiles, listed: ListedMessages) -> None:
        self.hints: dict[QueueKey, int] = {}
        """Next offsets of queues, from damaged records that the queues do not list."""
        self._log = log
        self._listed = listed
        self._dead_before = listed.dead_before
        self._mark = listed.mark
        self._next: dict[QueueKey, int] = {}
        self._last_position: dict[QueueKey, int] = {}
        self._last_damage = -1
        self._text: tuple[int, bytes] = (-1, b"")
        self._found: dict[bytes, tuple[int, int]] = {}

    @staticmethod
    def last_end(log: LogFiles) -> int:
        """The end of the log's last record that has its own position; 0 if there is none."""
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

    def search(
        self, base: int, unverified: Sequence[LogRange]
    ) -> tuple[list[DamagedRange], list[LogRange]]:
        """The damage of one file, and the sound records of its unverified ranges."""
        data, name = self._log.data(base), segment_name(base)
        limit = min(self._log.segment_size, self._mark.end - base)
        if data is None:
            self._last_damage = base
            return [DamagedRange(name, base, limit, "the file is missing", is_missing=True)], []
        damage: list[DamagedRange] = []
        proven: list[LogRange] = []
        at = 0
        while at < limit:
            following = (each.start for each in unverified if each.end > base + at)
            trusted_end = min(limit, next(following, base + limit) - base)
            if trusted_end > at:
                end = self._trust(data[:trusted_end], base, at)
                if end > at:
                    at = end
                    continue
            found = self._prove(data, base, at, limit)
            if isinstance(found, str):
                end = self._next_sound(data, base, at, limit)
                self._note_hints(data, base, at, end)
                self._last_damage = base + at
                damage.append(DamagedRange(name, base + at, end - at, found))
                at = end
            else:
                proven.append(LogRange(base + at, base + found))
                at = found
        return damage, proven

    def _trust(self, data: Bytes, base: int, at: int) -> int:
        """Note the records of ranges with a matching checksum; returns their end."""
        chain = chain_of(data, at, ROWS_PER_CHUNK)
        if len(chain.starts):
            layout, damaged = read_layout(data, chain.starts, chain.sizes, None)
            if len(damaged):
                return at
            for part in columns_of(layout, base, self._dead_before).queues:
                key = (part.topic, part.queue_index)
                self._next[key] = int(part.offsets[-1]) + 1
                self._last_position[key] = base + int(chain.starts[part.rows[-1]])
        if chain.has_filler and len(data) == self._log.segment_size:
            return len(data)
        return chain.end

    def _prove(self, data: Bytes, base: int, at: int, limit: int) -> int | str:
        """The end of the sound record or filler at `at`, or the reason why there is none."""
        if limit == self._log.segment_size and is_filler(data, at):
            if data[at + FILLER.size :].any():
                return "the filler at the end of the file is not blank"
            return limit
        try:
            message, end = decode_record(data.data[:limit], at)
        except CorruptRecordError as error:
            return error.reason
        if message.physical_offset != base + at:
            return f"the record has log position {message.physical_offset}"
        reason = _text_damage(data, at, end, message)
        if reason is None and message.topic != BLANK_TOPIC:
            reason = self._queue_damage(message, base + at, end - at)
        return end if reason is None else reason

    def _queue_damage(self, message: StoredMessage, position: int, size: int) -> str | None:
        """The reason why a record does not belong in its queue; None if it does."""
        if position < self._dead_before.get(message.topic, 0):
            return None
        key, offset = (message.topic, message.queue_index), message.queue_offset
        name = f"offset {offset} of {key[0]}/{key[1]}"
        entry = self._listed.entry(key, offset)
        if entry is not None and entry[:2] == (position, size):
            tag_hash = java_hash(message.properties.get(TAGS, ""))
            if message.topic != SCHEDULE_TOPIC and entry[2] != tag_hash:
                return f"its tags are not those of the entry of {name}"
        elif self._listed.is_promised(key, offset) and self._next.get(key) != offset:
            return f"it has {name}, whose entry is for another record"
        elif position < self._listed.position and not self._listed.is_promised(key, offset):
            return f"it has {name}, which is not listed"
        elif not self._follows(key, offset):
            return f"it has {name}, which does not follow the end of its queue"
        self._next[key], self._last_position[key] = offset + 1, position
        return None

    def _follows(self, key: QueueKey, offset: int) -> bool:
        expected = self._next.get(key)
        if expected is None:
            return offset == 0 or self._mark.log_start > 0 or self._last_damage >= 0
        if offset > expected:
            return self._last_damage > self._last_position[key]
        return offset == expected

    def _next_sound(self, data: Bytes, base: int, at: int, limit: int) -> int:
        """The end of damage: the next sound record or filler, or the limit."""
        if self._text[0] != base:
            self._text = base, data.tobytes()
            self._found = {}
        # A blank record replaces the damage, so that is no smaller.
        candidate = self._next_candidate(at + BLANK_SIZE_MIN)
        while candidate is not None and candidate < limit:
            if not isinstance(self._prove(data, base, candidate, limit), str):
                return candidate
            candidate = self._next_candidate(candidate + 1)
        return limit

    def _next_candidate(self, at: int) -> int | None:
        """The first byte from `at` on where a record or a filler may begin."""
        found = [self._find(magic, at + _MAGIC_AT) for magic in (*_MAGICS, _FILLER_MAGIC)]
        return min((each - _MAGIC_AT for each in found if each >= 0), default=None)

    def _find(self, magic: bytes, at: int) -> int:
        """As `bytes.find`, with the last result of each magic number kept for later calls."""
        since, found = self._found.get(magic, (at + 1, -1))
        if at < since or 0 <= found < at:
            found = self._text[1].find(magic, at)
            self._found[magic] = at, found
        return found

    def _note_hints(self, data: Bytes, base: int, at: int, end: int) -> None:
        """Note offsets of damaged records that their queues do not list yet."""
        while at < end:
            try:
                message, after = decode_record(data.data[:end], at, check_crc=False)
            except CorruptRecordError:
                return
            key = (message.topic, message.queue_index)
            is_known = key in self._next or key in self._listed.queues
            if is_known and message.physical_offset == base + at >= self._listed.position:
                expected = self._next.get(key, 0)
                # A damaged offset may be any number, but the damage holds few records.
                if expected <= message.queue_offset <= expected + (end - at) // BLANK_SIZE_MIN:
                    end_hint = message.queue_offset + 1
                    self.hints[key] = max(self.hints.get(key, 0), end_hint)
            at = after


def _record_end(data: Bytes, base: int, at: int) -> int | None:
    if at < 0 or len(data) - at < BLANK_SIZE_MIN:
        return None
    if _POSITION.unpack_from(data.data, at + PHYSICAL_OFFSET_AT)[0] != base + at:
        return None
    try:
        return decode_record(data.data, at)[1]
    except CorruptRecordError:
        return None


def _text_damage(data: Bytes, at: int, end: int, message: StoredMessage) -> str | None:
    """The reason why topic or properties are not text; no checksum covers them."""
    view = data.data
    is_v2 = bytes(view[at + _MAGIC_AT : at + 2 * _MAGIC_AT]) == _MAGICS[1]
    topic = message.topic.encode("utf-8", "replace")
    if not topic or b"\x00" in topic or "\ufffd" in message.topic:
        return "the record's topic is not readable"
    head = end - at - len(message.body) - len(topic)
    # Body, topic and properties follow the fixed fields, whose hosts are IPv4 or IPv6.
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
