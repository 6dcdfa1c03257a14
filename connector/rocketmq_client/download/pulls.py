"""The pulls of one range: those in flight, the width of the next, how many go as one. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

# A broker holds the bytes of a pull until they are sent: beyond these bytes a few pulls will do.
_BYTES_MAX: Final = 2 * 1024 * 1024
_FEW_PULLS: Final = 8
# A pull that asks for more than predicted shows when the broker gives more than it did before.
PROBE_INTERVAL: Final = 16
_SAMPLES_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull to send, or several as one: each begins `count_max` offsets behind the one before.

    `ticket` names it in the window's `on_reply`, `on_replies` and `on_failure`.
    """

    ticket: int
    start: int
    count_max: int
    bytes_max: int
    times: int = 1

    @property
    def width(self) -> int:
        """The offsets asked for."""
        return self.count_max * self.times


@dataclass(slots=True)
class InFlightPull:
    """A pull that was sent, and what is planned to arrive."""

    pull: Pull
    planned_end: int
    is_open: bool
    """True if it may cover more than planned: its answer shows what the broker gives."""
    sent_ms: int
    bytes_expected: int


class InFlightPulls:
    """The pulls in flight by ticket, and their sums."""

    __slots__ = ("_sent", "_tickets", "bytes_expected", "pulls", "width")

    def __init__(self) -> None:
        self._sent: dict[int, InFlightPull] = {}
        self._tickets = 0
        self.pulls = 0
        """Requests without an answer."""
        self.width = 0
        """Offsets that are planned to arrive."""
        self.bytes_expected = 0

    def __bool__(self) -> bool:
        return bool(self._sent)

    def new_ticket(self) -> int:
        """Return a number that no pull had before."""
        self._tickets += 1
        return self._tickets

    def add(self, sent: InFlightPull) -> None:
        self._sent[sent.pull.ticket] = sent
        self._count(sent, 1)

    def remove(self, ticket: int) -> InFlightPull | None:
        """Return a pull that is no longer in flight; None if it was not."""
        sent = self._sent.pop(ticket, None)
        if sent is not None:
            self._count(sent, -1)
        return sent

    def split(self, joined: InFlightPull) -> list[int]:
        """Count the single pulls of a removed one as in flight; return their tickets."""
        tickets = []
        for number in range(joined.pull.times):
            start = joined.pull.start + number * joined.pull.count_max
            pull = Pull(self.new_ticket(), start, joined.pull.count_max, joined.pull.bytes_max)
            self.add(InFlightPull(pull, start + pull.count_max, False, joined.sent_ms, 0))
            tickets.append(pull.ticket)
        return tickets

    def are_enough(self, pulls_max: int) -> bool:
        """True if no more pulls should be sent now."""
        is_much = self.bytes_expected >= _BYTES_MAX and self.pulls >= _FEW_PULLS
        return is_much or self.pulls >= pulls_max

    def first_gap(
        self, start: int, end: int, arrived: list[tuple[int, int]]
    ) -> tuple[int, int] | None:
        """The first offsets within `[start, end)` that are neither here nor in flight."""
        for first, stop in sorted(arrived + self.spans()):
            if start >= end:
                return None
            if first > start:
                return start, min(first, end)
            start = max(start, stop)
        return (start, end) if start < end else None

    def spans(self) -> list[tuple[int, int]]:
        return [(sent.pull.start, sent.planned_end) for sent in self._sent.values()]

    def covers(self, offset: int) -> bool:
        """True if a pull in flight is planned to bring this offset."""
        return any(start <= offset < end for start, end in self.spans())

    def _count(self, sent: InFlightPull, sign: int) -> None:
        self.pulls += sign * sent.pull.times
        self.width += sign * (sent.planned_end - sent.pull.start)
        self.bytes_expected += sign * sent.bytes_expected


class Joining:
    """Decides how many pulls are sent as one.

    After trouble they go one by one: then the fate of each is known at once.
    """

    __slots__ = ("_in_flight_max", "_singles_due", "_times_max")

    def __init__(self, times_max: int, in_flight_max: int) -> None:
        # Other pulls should be in flight while the answers to joined ones come in.
        self._times_max = max(1, min(times_max, in_flight_max // 4))
        self._in_flight_max = in_flight_max
        self._singles_due = 0

    def times(self, in_flight: int, fitting: int) -> int:
        """How many of the `fitting` next pulls go as one; 0: wait for answers first."""
        if self._times_max == 1 or self._singles_due:
            return 1
        wanted = max(1, min(self._times_max, fitting))
        return wanted if self._in_flight_max - in_flight >= wanted else 0

    def on_trouble(self) -> None:
        """An answer differed from the plan."""
        self._singles_due = self._times_max

    def on_answer(self) -> None:
        """An answer was as planned."""
        self._singles_due = max(0, self._singles_due - 1)


class PullWidth:
    """Predicts how many offsets one pull covers, from what earlier pulls covered.

    A real broker gives at most 32 messages or 256 KiB a pull, stops at the end of a consume-queue
    file, and scans a fixed width under a filter; the bundled one gives megabytes. The prediction
    decides where the next pull starts while earlier ones are still in flight.
    """

    __slots__ = ("_asked", "_samples", "value", "width_max")

    def __init__(self, width_max: int) -> None:
        self.width_max = width_max
        self.value: int | None = None
        """The prediction; None until the first answer."""
        self._samples: deque[int] = deque(maxlen=_SAMPLES_MAX)
        self._asked = 0

    def is_probe_due(self) -> bool:
        """True for every sixteenth pull while the broker gives less than it is asked for."""
        self._asked += 1
        is_short = self.value is not None and self.value < self.width_max
        return is_short and self._asked % PROBE_INTERVAL == 0

    def observe(self, width: int) -> None:
        """Learn what a pull covered that was free to cover more."""
        if width <= 0:
            return
        # Far more than predicted: the earlier samples speak of other records, or of a cap that
        # is lifted. Keeping them would hold the prediction down for a hundred pulls.
        if self.value is not None and width >= 2 * self.value:
            self._samples.clear()
        self._samples.append(width)
        # The lower quartile: one short answer at an index file's end does not shrink the width,
        # and under a byte cap most pulls reach the next one's start without a hole.
        self.value = min(sorted(self._samples)[len(self._samples) // 4], self.width_max)
