"""The log that a broker must hold, by simple rules: queues, retries, delays, half messages.

The broker is one list of entries in the order of its log. A queue is the entries that name it; a
delayed message lies in the queue of its level; a half message lies in a queue of its own until an
entry ends it. Entries are durable up to a point, and visible as far as durable. A crash keeps the
durable entries and perhaps some of the following ones, never with a gap; of committed offsets and
delay offsets it keeps the last saved ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rocketmq_broker.storage.queues.consume_queue import DELAYS_MS, SCHEDULE_TOPIC
from rocketmq_wire.requests.transactions import END_TOPIC, HALF_TOPIC

Queue = tuple[str, int]
"""A topic and a queue index."""

GROUP = "g"
RETRY: Queue = ("%RETRY%g", 0)
DEAD: Queue = ("%DLQ%g", 0)
HALF_QUEUE: Queue = (HALF_TOPIC, 0)
END_QUEUE: Queue = (END_TOPIC, 0)
ATTEMPTS_MAX = 16
_FIRST_LEVEL = 3


@dataclass(frozen=True)
class Entry:
    """One record of the log."""

    queue: Queue
    body: bytes
    attempts: int = 0
    stored_ms: int = 0
    target: Queue | None = None
    """The queue of its delivery, once it is due or committed."""
    is_committed: bool = False
    """True for a committed message; the entry behind it ends its half message."""


@dataclass
class LogModel:
    """The state after some steps."""

    now_ms: int
    log: list[Entry] = field(default_factory=list)
    durable: int = 0
    delivered: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """The number of delivered entries by level."""
    deliveries: list[tuple[int, int, int]] = field(default_factory=list)
    """Level, number of its delivered entries, and the log's length then; not durable yet."""
    delivered_saved: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    committed: dict[Queue, int] = field(default_factory=dict)
    committed_saved: dict[Queue, int] = field(default_factory=dict)
    locks: dict[Queue, tuple[str, int]] = field(default_factory=dict)

    # --- the state ---------------------------------------------------------------------------

    def entries(self, queue: Queue) -> list[Entry]:
        """The visible entries of a queue."""
        return [entry for entry in self.log[: self.durable] if entry.queue == queue]

    def all_entries(self) -> dict[Queue, list[Entry]]:
        """Every queue with visible entries."""
        found: dict[Queue, list[Entry]] = defaultdict(list)
        for entry in self.log[: self.durable]:
            found[entry.queue].append(entry)
        return found

    def pending(self) -> Iterator[tuple[int, Entry]]:
        """The pending half messages: offset and entry."""
        ended = {int(entry.body.rstrip(b",")) for entry in self.log if entry.queue == END_QUEUE}
        pending = [entry for entry in self.log if entry.queue == HALF_QUEUE]
        return ((at, entry) for at, entry in enumerate(pending) if at not in ended)

    def waiting(self) -> dict[int, int]:
        """The number of waiting messages by level."""
        counts = {
            level: len(self.entries((SCHEDULE_TOPIC, level - 1))) - self.delivered[level]
            for level in range(1, len(DELAYS_MS) + 1)
        }
        return {level: count for level, count in counts.items() if count}

    # --- steps ----------------------------------------------------------------------------------

    def sync(self) -> None:
        """Make all entries durable."""
        self.durable = len(self.log)

    def send(self, queue: Queue, body: bytes, level: int = 0) -> None:
        """Send a message, with a delay level if not 0."""
        self._put(Entry(queue, body), level)

    def send_back(self, entry: Entry, level: int, attempts_max: int | None) -> None:
        """Send a message back that could not be consumed."""
        most = ATTEMPTS_MAX if attempts_max is None else attempts_max
        again = replace(entry, attempts=entry.attempts + 1, is_committed=False)
        if entry.attempts >= most or level < 0:
            self._put(replace(again, queue=DEAD), 0)
        else:
            wanted = min(level or _FIRST_LEVEL + entry.attempts, len(DELAYS_MS))
            self._put(replace(again, queue=RETRY), wanted)

    def half(self, queue: Queue, body: bytes) -> None:
        """Send a half message."""
        self.log.append(Entry(HALF_QUEUE, body, stored_ms=self.now_ms, target=queue))

    def end(self, offset: int, entry: Entry, *, is_commit: bool) -> None:
        """Commit or roll back a half message."""
        if is_commit:
            assert entry.target is not None
            self.log.append(
                Entry(entry.target, entry.body, stored_ms=self.now_ms, is_committed=True)
            )
        self.log.append(Entry(END_QUEUE, b"%d," % offset, stored_ms=self.now_ms))

    def pass_time(self, ms: int) -> None:
        """Deliver the due messages level by level, each in order."""
        self.now_ms += ms
        for level, delay_ms in enumerate(DELAYS_MS, start=1):
            waiting = self.entries((SCHEDULE_TOPIC, level - 1))
            for entry in waiting[self.delivered[level] :]:
                if entry.stored_ms + delay_ms > self.now_ms:
                    break
                assert entry.target is not None
                moved = replace(entry, queue=entry.target, target=None, stored_ms=self.now_ms)
                self.log.append(moved)
                self.delivered[level] += 1
                self.deliveries.append((level, self.delivered[level], len(self.log)))

    def save(self) -> None:
        """Save the configuration files, which cover only durable deliveries."""
        while self.deliveries and self.deliveries[0][2] <= self.durable:
            level, count, _ = self.deliveries.pop(0)
            self.delivered_saved[level] = count
        self.committed_saved = dict(self.committed)

    def crash(self, survivors: int) -> None:
        """Lose power; `survivors` entries are there after the restart."""
        assert self.durable <= survivors <= len(self.log) + 1, "an acknowledged entry is lost"
        self.log = self.log[:survivors]
        if self.log and self.log[-1].is_committed and len(self.log) < survivors:
            # The last message of the queue names its half message, which the restart ends.
            offset = next(at for at, one in self.pending() if one.body == self.log[-1].body)
            self.log.append(Entry(END_QUEUE, b"%d," % offset, stored_ms=self.now_ms))
        self.sync()
        self.deliveries, self.locks = [], {}
        ends = {queue: len(entries) for queue, entries in self.all_entries().items()}
        self.committed = {
            queue: min(at, ends.get(queue, 0)) for queue, at in self.committed_saved.items()
        }
        self.committed_saved = dict(self.committed)
        for level in range(1, len(DELAYS_MS) + 1):
            end = ends.get((SCHEDULE_TOPIC, level - 1), 0)
            self.delivered[level] = min(self.delivered_saved[level], end)
        self.delivered_saved = defaultdict(int, self.delivered)

    def lock(self, queue: Queue, client_id: str) -> bool:
        """Lock a queue for a minute, if it is free or the client's own."""
        owner, since_ms = self.locks.get(queue, (client_id, self.now_ms))
        if owner != client_id and self.now_ms - since_ms <= 60_000:
            return False
        self.locks[queue] = (client_id, self.now_ms)
        return True

    def unlock(self, queue: Queue, client_id: str) -> None:
        if self.locks.get(queue, ("", 0))[0] == client_id:
            del self.locks[queue]

    def _put(self, entry: Entry, level: int) -> None:
        entry = replace(entry, stored_ms=self.now_ms)
        if level:
            entry = replace(entry, queue=(SCHEDULE_TOPIC, level - 1), target=entry.queue)
        self.log.append(entry)
