"""What a broker is to hold, by rules simple enough to be believed: queues, retries, delays, halves.

The broker is one list of entries in the order of its log. A queue is the entries that name it; what
waits for its time lies in a queue for each level; a half message in a queue of its own until an
entry says that it is ended. Entries are durable up to a point, and visible as far as durable. A
crash keeps what is durable and perhaps some of what follows, never with a gap, and of progress and
of how far levels are delivered what was saved last.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rocketmq_broker.storage.queues.due_times import DELAYS_MS, SCHEDULE_TOPIC
from rocketmq_wire.requests.transactions import END_TOPIC, HALF_TOPIC

Place = tuple[str, int]
"""A topic and the number of a queue."""

GROUP = "g"
RETRY: Place = ("%RETRY%g", 0)
DEAD: Place = ("%DLQ%g", 0)
HALVES: Place = (HALF_TOPIC, 0)
ENDS: Place = (END_TOPIC, 0)
ATTEMPTS_MAX = 16
_FIRST_LEVEL = 3


@dataclass(frozen=True)
class Entry:
    """One record of the log."""

    place: Place
    body: bytes
    attempts: int = 0
    stored_ms: int = 0
    target: Place | None = None
    """Where it goes when its time comes, or when it is committed."""
    is_committed: bool = False
    """A message that was a half; the entry behind it says that the half is ended."""


@dataclass
class LogModel:
    """The state after some steps."""

    now_ms: int
    log: list[Entry] = field(default_factory=list)
    durable: int = 0
    delivered: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """By level: how many of its entries went to where they are for."""
    deliveries: list[tuple[int, int, int]] = field(default_factory=list)
    """Level, entries of it delivered, and the log's length then: not known to be durable."""
    delivered_saved: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    progress: dict[Place, int] = field(default_factory=dict)
    progress_saved: dict[Place, int] = field(default_factory=dict)
    locks: dict[Place, tuple[str, int]] = field(default_factory=dict)

    # --- what is there --------------------------------------------------------------------------

    def queue(self, place: Place) -> list[Entry]:
        """What of a queue is visible."""
        return [entry for entry in self.log[: self.durable] if entry.place == place]

    def places(self) -> dict[Place, list[Entry]]:
        """Every queue with visible entries."""
        found: dict[Place, list[Entry]] = defaultdict(list)
        for entry in self.log[: self.durable]:
            found[entry.place].append(entry)
        return found

    def halves(self) -> Iterator[tuple[int, Entry]]:
        """Half messages that are not ended: offset and entry."""
        ended = {int(entry.body.rstrip(b",")) for entry in self.log if entry.place == ENDS}
        halves = [entry for entry in self.log if entry.place == HALVES]
        return ((at, entry) for at, entry in enumerate(halves) if at not in ended)

    def waiting(self) -> dict[int, int]:
        """How many wait, by level."""
        counts = {
            level: len(self.queue((SCHEDULE_TOPIC, level - 1))) - self.delivered[level]
            for level in range(1, len(DELAYS_MS) + 1)
        }
        return {level: count for level, count in counts.items() if count}

    # --- steps ----------------------------------------------------------------------------------

    def sync(self) -> None:
        """All that was appended is on the disk."""
        self.durable = len(self.log)

    def send(self, place: Place, body: bytes, level: int = 0) -> None:
        """A message, at once or later."""
        self._put(Entry(place, body), level)

    def send_back(self, entry: Entry, level: int, attempts_max: int | None) -> None:
        """A message that could not be consumed."""
        most = ATTEMPTS_MAX if attempts_max is None else attempts_max
        again = replace(entry, attempts=entry.attempts + 1, is_committed=False)
        if entry.attempts >= most or level < 0:
            self._put(replace(again, place=DEAD), 0)
        else:
            wanted = min(level or _FIRST_LEVEL + entry.attempts, len(DELAYS_MS))
            self._put(replace(again, place=RETRY), wanted)

    def half(self, place: Place, body: bytes) -> None:
        """A message that waits for its producer's word."""
        self.log.append(Entry(HALVES, body, stored_ms=self.now_ms, target=place))

    def end(self, offset: int, entry: Entry, *, is_commit: bool) -> None:
        """The producer's word."""
        if is_commit:
            assert entry.target is not None
            self.log.append(
                Entry(entry.target, entry.body, stored_ms=self.now_ms, is_committed=True)
            )
        self.log.append(Entry(ENDS, b"%d," % offset, stored_ms=self.now_ms))

    def pass_time(self, ms: int) -> None:
        """What is due is delivered, level by level, each in the order that it came in."""
        self.now_ms += ms
        for level, delay_ms in enumerate(DELAYS_MS, start=1):
            waiting = self.queue((SCHEDULE_TOPIC, level - 1))
            for entry in waiting[self.delivered[level] :]:
                if entry.stored_ms + delay_ms > self.now_ms:
                    break
                assert entry.target is not None
                moved = replace(entry, place=entry.target, target=None, stored_ms=self.now_ms)
                self.log.append(moved)
                self.delivered[level] += 1
                self.deliveries.append((level, self.delivered[level], len(self.log)))

    def save(self) -> None:
        """The configuration files are written: what is behind what is durable, never ahead."""
        while self.deliveries and self.deliveries[0][2] <= self.durable:
            level, count, _ = self.deliveries.pop(0)
            self.delivered_saved[level] = count
        self.progress_saved = dict(self.progress)

    def crash(self, survivors: int) -> None:
        """Power is lost; so many entries are there after the start."""
        assert self.durable <= survivors <= len(self.log) + 1, "what was acknowledged is lost"
        self.log = self.log[:survivors]
        if self.log and self.log[-1].is_committed and len(self.log) < survivors:
            # The last of its queue names the half that it came from, which is ended so.
            offset = next(at for at, one in self.halves() if one.body == self.log[-1].body)
            self.log.append(Entry(ENDS, b"%d," % offset, stored_ms=self.now_ms))
        self.sync()
        self.deliveries, self.locks = [], {}
        ends = {place: len(entries) for place, entries in self.places().items()}
        self.progress = {
            place: min(at, ends.get(place, 0)) for place, at in self.progress_saved.items()
        }
        self.progress_saved = dict(self.progress)
        for level in range(1, len(DELAYS_MS) + 1):
            end = ends.get((SCHEDULE_TOPIC, level - 1), 0)
            self.delivered[level] = min(self.delivered_saved[level], end)
        self.delivered_saved = defaultdict(int, self.delivered)

    def lock(self, place: Place, client_id: str) -> bool:
        """A minute for whoever had it before, or finds it free."""
        owner, since_ms = self.locks.get(place, (client_id, self.now_ms))
        if owner != client_id and self.now_ms - since_ms <= 60_000:
            return False
        self.locks[place] = (client_id, self.now_ms)
        return True

    def unlock(self, place: Place, client_id: str) -> None:
        if self.locks.get(place, ("", 0))[0] == client_id:
            del self.locks[place]

    def _put(self, entry: Entry, level: int) -> None:
        entry = replace(entry, stored_ms=self.now_ms)
        if level:
            entry = replace(entry, place=(SCHEDULE_TOPIC, level - 1), target=entry.place)
        self.log.append(entry)
