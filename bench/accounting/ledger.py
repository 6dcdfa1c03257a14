"""What was sent and what was written, held against each other: pure.

Every body names its number in its queue, given in sending order. A queue's numbers must come out
once each and in order. A send whose answer never came may have been stored or not, and after the
sends that followed: such numbers are counted apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


@dataclass(slots=True)
class Tally:
    """Counts over all queues."""

    sent: int = 0
    read: int = 0
    missing: int = 0
    duplicate: int = 0
    unexpected: int = 0
    out_of_order: int = 0
    wrong: int = 0
    """Rows whose body is not the one that was sent."""
    unknown: int = 0
    unknown_stored: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return self.is_complete and not (self.duplicate or self.out_of_order)

    @property
    def is_complete(self) -> bool:
        """Whether every message was read as it was sent, at least once."""
        return not (self.missing or self.unexpected or self.wrong)


def account(
    acknowledged: dict[int, Numbers], unknown: dict[int, Numbers], read: dict[int, Numbers]
) -> Tally:
    """Compare, queue by queue, what was sent with what was read in the order it was read."""
    tally = Tally()
    for queue in sorted({*acknowledged, *unknown, *read}):
        _account_queue(
            tally,
            queue,
            acknowledged.get(queue, _NONE),
            unknown.get(queue, _NONE),
            read.get(queue, _NONE),
        )
    return tally


_NONE: Numbers = np.empty(0, np.int64)


def _account_queue(
    tally: Tally, queue: int, acknowledged: Numbers, unknown: Numbers, read: Numbers
) -> None:
    found, counts = np.unique(read, return_counts=True)
    missing = np.setdiff1d(acknowledged, found)
    twice = found[counts > 1]
    stored = np.intersect1d(unknown, found)
    unexpected = np.setdiff1d(found, np.concatenate([acknowledged, unknown]))
    known = read[np.isin(read, acknowledged)]
    behind = np.flatnonzero(np.diff(known) < 0)
    tally.sent += len(acknowledged)
    tally.read += len(read)
    tally.missing += len(missing)
    tally.duplicate += int((counts - 1).sum())
    tally.unexpected += len(unexpected)
    tally.out_of_order += len(behind)
    tally.unknown += len(unknown)
    tally.unknown_stored += len(stored)
    for what, numbers in (
        ("missing", missing),
        ("twice", twice),
        ("unexpected", unexpected),
        ("out of order after", known[behind]),
    ):
        if len(numbers):
            tally.examples.append(f"queue {queue}: {what} {numbers[:5].tolist()}")
