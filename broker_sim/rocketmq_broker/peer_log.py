"""Warnings about peers: one line a peer and kind each minute, then a count of the others.

A peer that is refused a thousand times a second would otherwise fill the disk with lines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

INTERVAL_SECONDS: Final = 60.0
_PEERS_MAX: Final = 1_024
"""Peers and kinds with a line each; more share one."""
_OTHERS: Final = "others"
_ALL: Final[list[PeerLog]] = []


@dataclass(slots=True)
class _Repeated:
    began_at: float
    count: int = 0
    """The lines that were left out."""
    args: tuple[object, ...] = ()
    """The facts of the last one of them."""


class PeerLog:
    """Warns about peers, in the name of a logger."""

    def __init__(self, log: logging.Logger, time: Callable[[], float] = monotonic) -> None:
        self._log = log
        self._time = time
        self._seen: dict[tuple[str, str], _Repeated] = {}
        _ALL.append(self)

    def warning(self, host: str, text: str, *args: object) -> None:
        """Log a line, unless there was one of this kind, the text, about this host just now."""
        if len(self._seen) >= _PEERS_MAX and (host, text) not in self._seen:
            host = _OTHERS
        known = self._seen.get((host, text))
        now = self._time()
        if known is not None and now - known.began_at < INTERVAL_SECONDS:
            known.count += 1
            known.args = args
            return
        if known is not None:
            self._report(host, text, known)
        self._seen[host, text] = _Repeated(now)
        self._log.warning(text, *args)

    def report(self) -> None:
        """Log the counts of the lines left out in intervals that are over."""
        now = self._time()
        for (host, text), repeated in list(self._seen.items()):
            if now - repeated.began_at >= INTERVAL_SECONDS:
                # The brokers of one process share this log, each in its own thread.
                self._seen.pop((host, text), None)
                self._report(host, text, repeated)

    def _report(self, host: str, text: str, repeated: _Repeated) -> None:
        if repeated.count:
            self._log.warning(
                "peer=%s: %d more lines like this were left out: %s",
                host,
                repeated.count,
                text % repeated.args,
            )


def report_all() -> None:
    """Log the counts of all loggers; to be called from time to time."""
    for log in _ALL:
        log.report()
