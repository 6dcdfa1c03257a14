"""Histories of a store with their promises, and a check of what a crash leaves of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.settings import StoreConfig
from rocketmq_broker.storage.store import Store
from rocketmq_wire.model import Bounds
from rocketmq_wire.records.record import decode_record
from support.crash_files import Crash, CrashFiles, State
from support.storage_blocks import SimpleBlock, block_of

NOW = 1_700_000_000_000
TINY = StoreConfig(
    segment_size=1024,
    queue_file_entries=4,
    index_slot_count=8,
    index_entry_count=10,
    checksum_range_size=300,
    retention_ms=1000,
)
QueueKey = tuple[str, int]


class Violation(AssertionError):
    """A promise that was not kept."""


@dataclass
class Sent:
    """One message, and when (as a point of the journal) it was promised."""

    topic: str
    queue: int
    offset: int
    record: bytes
    life: int
    """Number of earlier deletions of its topic."""
    appended_at: int
    acknowledged_at: int | None = None
    end_position: int = 0
    gone_at: int | None = None
    """Point from which it must not exist: a start has shown that it was lost."""

    def is_promised(self, point: int) -> bool:
        return self.acknowledged_at is not None and self.acknowledged_at <= point

    def is_possible(self, point: int) -> bool:
        return self.appended_at < point and (self.gone_at is None or point < self.gone_at)


@dataclass
class Span:
    """An operation that was under way between two points of the journal."""

    started_at: int
    ended_at: int | None = None

    def is_over(self, point: int) -> bool:
        return self.ended_at is not None and self.ended_at <= point

    def is_under_way(self, point: int) -> bool:
        return self.started_at < point and not self.is_over(point)


@dataclass
class Promises:
    """The acts of a history, with which a restarted store is compared."""

    sent: list[Sent] = field(default_factory=list)
    deletions: dict[str, list[Span]] = field(default_factory=dict)
    cleanings: list[tuple[Span, dict[QueueKey, int]]] = field(default_factory=list)
    """Each cleaning, with the first offset that each queue keeps."""
    topics: list[tuple[Span, frozenset[str]]] = field(default_factory=list)
    """Each content of `topics.json`."""


class History:
    """Drives a store on a disk that can lose power, and notes its promises."""

    def __init__(self, files: CrashFiles | None = None, config: StoreConfig = TINY) -> None:
        self.files = files or CrashFiles()
        self.config = config
        self.promises = Promises()
        self.now_ms = NOW
        self.tags = "red"
        self._lives: dict[str, int] = {}
        self._topics: frozenset[str] = frozenset()
        self.store = Store.open(self.files, config, NOW)
        self.opened_at = self.point

    @classmethod
    def reopened(cls, crash: Crash, before: History) -> History | None:
        """The history that begins with a start after a crash of an earlier one.

        None if the crash was in the middle of something whose outcome is not promised.
        """
        promises, point = before.promises, crash.point
        spans = [span for each in promises.deletions.values() for span in each]
        spans += [span for span, _ in (*promises.cleanings, *promises.topics)]
        if any(span.is_under_way(point) for span in spans):
            return None
        history = cls(CrashFiles.of(crash.state), before.config)
        for key in KNOWN_QUEUES:
            history._inherit(key, promises, point)
        over = [span for span, _ in promises.cleanings if span.is_over(point)]
        if over:
            starts = {key: history.store.bounds(*key).start for key in KNOWN_QUEUES}
            history.promises.cleanings.append((Span(-1, 0), starts))
        for span, topics in promises.topics:
            if span.is_over(point):
                history._topics = topics
        history.promises.topics.append((Span(-1, 0), history._topics))
        return history

    def _inherit(self, key: QueueKey, promises: Promises, point: int) -> None:
        """Keep the promises of the earlier history, and promise what this start shows."""
        deletions = promises.deletions.get(key[0], [])
        life = sum(span.is_over(point) for span in deletions)
        start, records = self.store.bounds(*key).start, records_of(self.store, *key)
        for sent in promises.sent:
            if (sent.topic, sent.queue, sent.life) != (*key, life) or sent.appended_at >= point:
                continue
            is_there = start <= sent.offset < start + len(records)
            self.promises.sent.append(
                replace(
                    sent,
                    life=0,
                    appended_at=-1,
                    acknowledged_at=0
                    if sent.is_promised(point)
                    else (self.opened_at if is_there else None),
                    gone_at=None if is_there or sent.offset < start else self.opened_at,
                )
            )

    @property
    def point(self) -> int:
        return len(self.files.journal)

    def send(self, topic: str, queue: int, *bodies: bytes) -> None:
        """Append without syncing."""
        started_at = self.point
        block = block_of(topic, *bodies, tags=self.tags, keys=f"k{len(self.promises.sent)}")
        appended = self.store.append(topic, queue, block, self.now_ms)
        offsets = range(appended.start, appended.start + appended.count)
        self._note(topic, queue, offsets, records_in(block), appended.end_position, started_at)

    def send_together(self, topic: str, *parts: tuple[int, Sequence[bytes]]) -> None:
        """Append several sends, each for its queue, as one block and without syncing."""
        started_at = self.point
        bodies = [body for _, sent in parts for body in sent]
        block = block_of(topic, *bodies, tags=self.tags, keys=f"k{len(self.promises.sent)}")
        parts_by_queue = [(queue, len(sent)) for queue, sent in parts]
        together = self.store.append_parts(topic, block, parts_by_queue, self.now_ms)
        assert together is not None, "the block does not fit in the file"
        records = iter(records_in(block))
        for (queue, _), appended in zip(parts_by_queue, together, strict=True):
            offsets = range(appended.start, appended.start + appended.count)
            own = [next(records) for _ in offsets]
            self._note(topic, queue, offsets, own, appended.end_position, started_at)

    def _note(
        self,
        topic: str,
        queue: int,
        offsets: range,
        records: Sequence[bytes],
        end_position: int,
        started_at: int,
    ) -> None:
        life = self._lives.get(topic, 0)
        self.promises.sent += [
            Sent(topic, queue, offset, record, life, started_at, end_position=end_position)
            for offset, record in zip(offsets, records, strict=True)
        ]

    def sync(self) -> None:
        """Sync and publish: everything sent is promised from now on."""
        durable_end = self.store.sync()
        self._promise(durable_end)
        self.store.publish()

    def publish(self) -> None:
        """Publish: what readers can see is promised from now on."""
        for arrival in self.store.publish():
            for sent in self.promises.sent:
                is_there = (sent.topic, sent.queue) == (arrival.topic, arrival.queue_index)
                if is_there and sent.offset < arrival.end and sent.acknowledged_at is None:
                    sent.acknowledged_at = self.point

    def _promise(self, durable_end: int) -> None:
        for sent in self.promises.sent:
            is_open = sent.acknowledged_at is None and sent.gone_at is None
            if is_open and sent.end_position <= durable_end:
                sent.acknowledged_at = self.point

    def put(self, topic: str, queue: int, *bodies: bytes) -> None:
        """Send and sync."""
        self.send(topic, queue, *bodies)
        self.sync()

    def create(self, topic: str) -> None:
        """Put a topic into `topics.json`."""
        self._topics |= {topic}
        span = Span(self.point)
        self.promises.topics.append((span, self._topics))
        table = {name: {"topicName": name} for name in sorted(self._topics)}
        self.store.configs.save("topics.json", {"topicConfigTable": table})
        span.ended_at = self.point

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._topics -= {topic}
        span = Span(self.point)
        self.promises.topics.append((span, self._topics))
        self.promises.deletions.setdefault(topic, []).append(span)
        self.store.delete_topic(topic)
        span.ended_at = self.point
        self._lives[topic] = self._lives.get(topic, 0) + 1

    def clean(self) -> None:
        """Delete all files that may expire."""
        span = Span(self.point)
        starts: dict[QueueKey, int] = {}
        self.promises.cleanings.append((span, starts))
        self.store.clean(self.now_ms + 10 * self.config.retention_ms)
        for topic, queue in KNOWN_QUEUES:
            starts[topic, queue] = self.store.bounds(topic, queue).start
        span.ended_at = self.point

    def index(self) -> None:
        """Bring the key index up to date."""
        while self.store.index_step():
            pass


KNOWN_QUEUES: tuple[QueueKey, ...] = (("orders", 0), ("orders", 1), ("bills", 0))


def records_in(block: SimpleBlock) -> list[bytes]:
    """The block's records as they are now."""
    return [
        block.buffer[start : start + size].tobytes()
        for start, size in zip(block.starts.tolist(), block.sizes.tolist(), strict=True)
    ]


def records_of(store: Store, topic: str, queue: int) -> list[bytes]:
    """All readable records of a queue; their offsets must follow each other."""
    bounds = store.bounds(topic, queue)
    records: list[bytes] = []
    offset = bounds.start
    while offset < bounds.end:
        result = store.read(topic, queue, offset, count_max=1000, bytes_max=1 << 20)
        data = b"".join(result.parts)
        position = 0
        while position < len(data):
            (size,) = struct.unpack_from(">i", data, position)
            record = data[position : position + size]
            (found,) = struct.unpack_from(">q", record, 20)
            if size < 91 or found != offset + len(records) - (offset - bounds.start):
                raise Violation(f"{topic}/{queue}: offset {found} after {len(records)} records")
            records.append(record)
            position += size
        if result.next_begin <= offset:
            raise Violation(f"{topic}/{queue}: no way past offset {offset}")
        offset = result.next_begin
    if len(records) != bounds.end - bounds.start:
        raise Violation(f"{topic}/{queue}: {bounds} but {len(records)} records")
    return records


@dataclass(frozen=True)
class Shown:
    """What a store shows after a start."""

    queues: dict[QueueKey, tuple[Bounds, list[bytes]]]
    topics: frozenset[str]


class Restarts:
    """Starts a store on each distinct disk state of crashes once."""

    def __init__(self, config: StoreConfig) -> None:
        self._config = config
        self._shown: dict[int, Shown] = {}
        self._resumed: set[int] = set()

    def __len__(self) -> int:
        """Number of distinct disk states that were tried."""
        return len(self._shown)

    def shows(self, state: State) -> Shown:
        """The messages that readers see after a start, which must never fail."""
        key = hash(state)
        if key not in self._shown:
            self._shown[key] = self._start(state)
        return self._shown[key]

    def _start(self, state: State) -> Shown:
        files = CrashFiles.of(state)
        try:
            store = Store.open(files, self._config, NOW)
        except StorageError as error:
            raise Violation(f"the store does not open: {error}") from error
        queues = {key: (store.bounds(*key), records_of(store, *key)) for key in KNOWN_QUEUES}
        table: Any = store.configs.load("topics.json").get("topicConfigTable", {})
        shown = Shown(queues, frozenset(table))
        # Many crashes are recovered to the same disk.
        key = hash(files.state())
        if key not in self._resumed:
            self._resumed.add(key)
            self._resume(files, store, shown)
        return shown

    def _resume(self, files: CrashFiles, store: Store, shown: Shown) -> None:
        """Write to the recovered store; the next start must show the same messages."""
        expected = {}
        for (topic, queue), (bounds, records) in shown.queues.items():
            block = block_of(topic, b"resumed")
            appended = store.append(topic, queue, block, NOW)
            if appended.start != bounds.end:
                raise Violation(f"{topic}/{queue}: went on at {appended.start} after {bounds}")
            expected[topic, queue] = [*records, block.buffer.tobytes()]
        store.sync()
        store.publish()
        self._check_index(store, expected)
        files.unlock_all()
        again = Store.open(files, self._config, NOW)
        for (topic, queue), records in expected.items():
            if records_of(again, topic, queue) != records:
                raise Violation(f"{topic}/{queue}: the second start shows something else")

    def _check_index(self, store: Store, expected: dict[QueueKey, list[bytes]]) -> None:
        while store.index_step():
            pass
        for (topic, queue), records in expected.items():
            for record in records:
                properties = decode_record(record)[0].properties
                if "KEYS" not in properties:
                    continue
                found = store.query_index(topic, properties["KEYS"], 100, 0, 2 * NOW)
                if int.from_bytes(record[28:36], "big") not in found:
                    raise Violation(f"{topic}/{queue}: no key {properties['KEYS']} in the index")


class Checker:
    """Compares the disk states of one history's crashes with its promises."""

    def __init__(self, history: History, restarts: Restarts | None = None) -> None:
        self._promises = history.promises
        self.restarts = Restarts(history.config) if restarts is None else restarts

    def check(self, crash: Crash) -> None:
        """Raises Violation if a promise is broken in this state."""
        shown = self.restarts.shows(crash.state)
        for key, (bounds, records) in shown.queues.items():
            self._check_queue(key, bounds, records, crash.point)
        self._check_topics(shown.topics, crash.point)

    def _check_queue(self, key: QueueKey, bounds: Bounds, records: list[bytes], point: int) -> None:
        spans = self._promises.deletions.get(key[0], [])
        life = sum(span.is_over(point) for span in spans)
        if any(span.is_under_way(point) for span in spans) and bounds.end == 0:
            return
        living = [
            sent
            for sent in self._promises.sent
            if sent.life == life and (sent.topic, sent.queue) == key
        ]
        end = max((sent.offset + 1 for sent in living if sent.is_promised(point)), default=0)
        if bounds.end < end:
            raise Violation(f"{key}: acknowledged up to {end}, found {bounds}")
        self._check_start(key, bounds.start, point)
        by_offset = {sent.offset: sent for sent in living if sent.is_possible(point)}
        for offset, record in enumerate(records, bounds.start):
            sent = by_offset.get(offset)
            if sent is None or sent.record != record:
                raise Violation(f"{key}: offset {offset} has a message that was not sent there")

    def _check_start(self, key: QueueKey, found: int, point: int) -> None:
        least, most = 0, 0
        for span, starts in self._promises.cleanings:
            if span.is_over(point):
                least = max(least, starts.get(key, 0))
            if span.started_at < point:
                most = max(most, starts.get(key, 0))
        if not least <= found <= most:
            raise Violation(f"{key}: starts at {found}, not in {least}..{most}")

    def _check_topics(self, found: frozenset[str], point: int) -> None:
        allowed = {frozenset[str]()}
        for span, topics in self._promises.topics:
            if span.is_over(point):
                allowed = {topics}
            elif span.started_at < point:
                allowed.add(topics)
        if found not in allowed:
            raise Violation(f"topics {sorted(found)}, allowed were {allowed}")
