"""The last log lines of a broker in this process, or of a log file."""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path

LOGGER = "rocketmq_broker"
_LINES_KEPT = 500
_TAIL_SIZE = 64 * 1024


class RecentLines(logging.Handler):
    """Keeps the last log lines of the broker in this process, while used in `with`.

    A broker logs mostly at INFO, which loggers drop by default: while a handler is open, the
    logger's level is INFO.
    """

    _listeners = 0
    _level_before = logging.NOTSET

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.extend(self.format(record).splitlines())

    def lines(self) -> list[str]:
        return list(self._lines)

    def __enter__(self) -> RecentLines:
        logger = logging.getLogger(LOGGER)
        if not RecentLines._listeners:
            RecentLines._level_before = logger.level
            if logger.getEffectiveLevel() > logging.INFO:
                logger.setLevel(logging.INFO)
        RecentLines._listeners += 1
        logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger(LOGGER)
        logger.removeHandler(self)
        # Brokers end in any order: the last one restores the level.
        RecentLines._listeners -= 1
        if not RecentLines._listeners:
            logger.setLevel(RecentLines._level_before)


def last_lines(path: Path) -> list[str]:
    """The last whole lines of a log file; empty if it does not exist."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - _TAIL_SIZE))
            lines = log.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
    return lines[1:] if size > _TAIL_SIZE else lines
