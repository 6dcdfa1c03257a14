"""Files that are loaded again when they change: the accounts and the certificates."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from rocketmq_broker.errors import ConfigError

_LOG = logging.getLogger(__name__)
CHECK_SECONDS: Final = 1.0
T = TypeVar("T")


class ReloadedFiles(Generic[T]):
    """The value of some files, which any thread may read.

    A read checks the files at most once a second. If changed files cannot be loaded, the last good
    value stays in force, and the error is logged once.
    """

    def __init__(self, name: str, paths: Sequence[str], load: Callable[[], T]) -> None:
        """Load the files. Raises ConfigError, as `load` does."""
        self._name = name
        self._paths = paths
        self._load = load
        self._lock = threading.Lock()
        self._checked_at = time.monotonic()
        self._states = self._read_states()
        self._value = load()

    def value(self) -> T:
        """The value of the files as they are, or of the last good ones."""
        if time.monotonic() - self._checked_at >= CHECK_SECONDS:
            with self._lock:
                self._reload()
        return self._value

    def _reload(self) -> None:
        self._checked_at = time.monotonic()
        try:
            states = self._read_states()
            if states == self._states:
                return
            self._states = states
            self._value = self._load()
        except ConfigError as error:
            _LOG.error("the last good %s stay in force: %s", self._name, error)
        else:
            _LOG.warning("new %s are in force: %s", self._name, self._paths[0])

    def _read_states(self) -> list[tuple[int, int, int]]:
        states = []
        for path in self._paths:
            try:
                stat = os.stat(path)
            except OSError as error:
                raise ConfigError(f"cannot read {path}: {error.strerror}") from error
            states.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
        return states
