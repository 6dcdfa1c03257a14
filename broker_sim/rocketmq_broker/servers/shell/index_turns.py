"""When the key index works and when it waits: pure, times are seconds of one clock.

The index waits while very much is sent, for both want the interpreter: a burst of 500,000 messages
is taken at full speed. After a second of waiting, or with that much log to read, it works off all
that it owed then, which takes about half a second, before it may wait again.
"""

from __future__ import annotations

from typing import Final

WAIT_SECONDS_MAX: Final = 1.0
LAG_SIZE_MAX: Final = 128 * 1024 * 1024
BUSY_SIZE_PER_SECOND: Final = 10 * 1024 * 1024
"""Log that grows faster is busy."""


class IndexTurns:
    """Decides for an index that starts at `index_end`, behind a log that ends at `appended_end`."""

    def __init__(self, now: float, appended_end: int) -> None:
        self._looked_at, self._appended_end = now, appended_end
        self._began_to_wait = now
        self._owed_end = 0

    def must_wait(self, now: float, *, appended_end: int, index_end: int, index_lag: int) -> bool:
        """True if the index should leave the interpreter to the senders for a moment."""
        grown = appended_end - self._appended_end
        is_busy = grown > BUSY_SIZE_PER_SECOND * (now - self._looked_at)
        self._looked_at, self._appended_end = now, appended_end
        if index_end < self._owed_end:
            return False
        may_wait = now - self._began_to_wait < WAIT_SECONDS_MAX
        if is_busy and may_wait and index_lag < LAG_SIZE_MAX:
            return True
        self._owed_end = index_end + index_lag
        return False

    def worked(self, now: float, *, index_end: int) -> None:
        """A step is done."""
        if index_end >= self._owed_end:
            self._began_to_wait = now
