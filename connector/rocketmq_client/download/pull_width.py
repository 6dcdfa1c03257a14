"""Predicts how many offsets one pull covers, from what earlier pulls covered.

A real broker gives at most 32 messages or 256 KiB a pull whatever it is asked for, stops at the
end of a consume-queue file, and scans a fixed width under a filter; ours gives megabytes. The
prediction decides where the next pull starts while earlier ones are still under way.
"""

from __future__ import annotations

from collections import deque
from typing import Final

# A pull that asks for more than predicted shows when the broker gives more than it did before.
PROBE_INTERVAL: Final = 16
_SAMPLES_MAX: Final = 8


class PullWidth:
    """The prediction for one queue; None until a first answer was seen."""

    __slots__ = ("_asked", "_samples", "value", "width_max")

    def __init__(self, width_max: int) -> None:
        self.width_max = width_max
        self.value: int | None = None
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
        # is lifted. Keeping them would hold the stride down for a hundred pulls.
        if self.value is not None and width >= 2 * self.value:
            self._samples.clear()
        self._samples.append(width)
        # The lower quartile: one short answer at an index file's end does not shrink the stride,
        # and under a byte cap most pulls reach the next one's start without a hole.
        self.value = min(sorted(self._samples)[len(self._samples) // 4], self.width_max)
