"""The pulls of one download that are under way, by ticket: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# A broker holds what it was asked for until it is sent: beyond these bytes a few pulls will do.
_BYTES_MAX: Final = 2 * 1024 * 1024
_FEW_PULLS: Final = 8


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull to send, or several: each goes on `count_max` offsets behind the one before.

    `ticket` names them in the window's `on_reply`, `on_replies` and `on_failure`.
    """

    ticket: int
    start: int
    count_max: int
    bytes_max: int
    times: int = 1

    @property
    def width(self) -> int:
        """Offsets asked for."""
        return self.count_max * self.times


@dataclass(slots=True)
class InFlightPull:
    """A pull under way."""

    pull: Pull
    planned_end: int
    is_open: bool
    """Free to cover more than planned: its answer tells what the broker gives."""
    sent_ms: int
    bytes_expected: int


class InFlightPulls:
    """What is under way, and how much of everything that is."""

    __slots__ = ("_flights", "_tickets", "bytes_expected", "pulls", "width")

    def __init__(self) -> None:
        self._flights: dict[int, InFlightPull] = {}
        self._tickets = 0
        self.pulls = 0
        """Requests without an answer."""
        self.width = 0
        """Offsets that are planned to arrive."""
        self.bytes_expected = 0

    def __bool__(self) -> bool:
        return bool(self._flights)

    def new_ticket(self) -> int:
        """A number that no pull had before."""
        self._tickets += 1
        return self._tickets

    def add(self, flight: InFlightPull) -> None:
        """It was sent."""
        self._flights[flight.pull.ticket] = flight
        self._count(flight, 1)

    def land(self, ticket: int) -> InFlightPull | None:
        """It is no longer under way; None if it was not."""
        flight = self._flights.pop(ticket, None)
        if flight is not None:
            self._count(flight, -1)
        return flight

    def part(self, flight: InFlightPull) -> list[int]:
        """Put the single pulls of one that has landed in its place; their tickets."""
        tickets = []
        for number in range(flight.pull.times):
            start = flight.pull.start + number * flight.pull.count_max
            pull = Pull(self.new_ticket(), start, flight.pull.count_max, flight.pull.bytes_max)
            self.add(InFlightPull(pull, start + pull.count_max, False, flight.sent_ms, 0))
            tickets.append(pull.ticket)
        return tickets

    def are_enough(self, pulls_max: int) -> bool:
        """No more is to be asked for now."""
        is_much = self.bytes_expected >= _BYTES_MAX and self.pulls >= _FEW_PULLS
        return is_much or self.pulls >= pulls_max

    def first_gap(
        self, start: int, end: int, arrived: list[tuple[int, int]]
    ) -> tuple[int, int] | None:
        """The first offsets within `[start, end)` that are neither here nor under way."""
        for first, stop in sorted(arrived + self.spans()):
            if start >= end:
                return None
            if first > start:
                return start, min(first, end)
            start = max(start, stop)
        return (start, end) if start < end else None

    def spans(self) -> list[tuple[int, int]]:
        """The offsets that each is planned to bring."""
        return [(flight.pull.start, flight.planned_end) for flight in self._flights.values()]

    def joins(self, offset: int) -> bool:
        """True if one of them is to bring this offset."""
        return any(start <= offset < end for start, end in self.spans())

    def _count(self, flight: InFlightPull, sign: int) -> None:
        self.pulls += sign * flight.pull.times
        self.width += sign * (flight.planned_end - flight.pull.start)
        self.bytes_expected += sign * flight.bytes_expected


class Joining:
    """How many pulls are sent as one. After trouble they go one by one: what became of each is
    known at once then.
    """

    __slots__ = ("_in_flight_max", "_singles_due", "_times_max")

    def __init__(self, times_max: int, in_flight_max: int) -> None:
        # Some others are to be under way while the answers to one come in.
        self._times_max = max(1, min(times_max, in_flight_max // 4))
        self._in_flight_max = in_flight_max
        self._singles_due = 0

    @property
    def is_possible(self) -> bool:
        """More than one may go."""
        return self._times_max > 1 and not self._singles_due

    def times(self, in_flight: int, fitting: int) -> int:
        """Of the `fitting` next ones; 0: wait for more of what is under way."""
        if not self.is_possible:
            return 1
        wanted = max(1, min(self._times_max, fitting))
        return wanted if self._in_flight_max - in_flight >= wanted else 0

    def trouble(self) -> None:
        """Something else came than what was planned."""
        self._singles_due = self._times_max

    def answered(self) -> None:
        """What was planned came."""
        self._singles_due = max(0, self._singles_due - 1)
