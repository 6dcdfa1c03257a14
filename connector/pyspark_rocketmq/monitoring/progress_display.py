"""`show_progress(query)`: a running query as a live line in a terminal, a widget in a notebook.

In a pipe or a log it is one line a batch.
"""

from __future__ import annotations

import html
import importlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

from pyspark_rocketmq.planning.progress_report import field_of, source_progress
from pyspark_rocketmq.session import restore_session

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

_POLL_S: Final = 0.25
_BAR_WIDTH: Final = 24


@dataclass(frozen=True, slots=True)
class BatchSeen:
    batch_id: int
    rows: int
    duration_ms: int
    behind: int | None
    """Unread messages of its sources; None if the report does not contain them."""

    @classmethod
    def from_progress(cls, progress: object) -> BatchSeen:
        """Read an item of `query.recentProgress`: an object or a dict, depending on Spark's API."""
        sources = source_progress(progress)
        behind = None
        if sources and all(source.latest for source in sources):
            behind = sum(
                max(0, latest - source.end.get(queue, latest))
                for source in sources
                for queue, latest in source.latest.items()
            )
        durations = field_of(progress, "durationMs") or {}
        return cls(
            int(field_of(progress, "batchId")),
            int(field_of(progress, "numInputRows") or 0),
            int(durations.get("triggerExecution", 0)),
            behind,
        )


@dataclass(slots=True)
class Tally:
    rows: int = 0
    last: BatchSeen | None = None

    def add(self, batch: BatchSeen) -> bool:
        """Count a batch; False if it was counted before."""
        if self.last is not None and batch.batch_id <= self.last.batch_id:
            return False
        self.rows += batch.rows
        self.last = batch
        return True

    @property
    def share(self) -> float | None:
        """The share of known messages that has been read; None if it is unknown."""
        if self.last is None or self.last.behind is None:
            return None
        known = self.rows + self.last.behind
        return self.rows / known if known else 1.0

    def text(self) -> str:
        """`batch 7  12,000 rows  40,000/s  3,000 behind`."""
        if self.last is None:
            return "waiting for the first batch"
        parts = [f"batch {self.last.batch_id}", f"{self.rows:,} rows"]
        if self.last.duration_ms:
            parts.append(f"{self.last.rows / self.last.duration_ms * 1_000:,.0f}/s")
        if self.last.behind is not None:
            parts.append(f"{self.last.behind:,} behind")
        return "  ".join(parts)


class Display(Protocol):
    def show(self, tally: Tally, *, is_new: bool) -> None:
        """Show the tally; `is_new` if a batch has ended since the last call."""
        ...

    def close(self) -> None:
        """Finish the display, keeping what was shown last."""
        ...


class Lines:
    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, tally: Tally, *, is_new: bool) -> None:
        if is_new:
            print(tally.text(), file=self._out, flush=True)

    def close(self) -> None: ...


class Terminal:
    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, tally: Tally, *, is_new: bool) -> None:
        del is_new
        print(f"\r{bar(tally.share)}{tally.text()}\x1b[K", end="", file=self._out, flush=True)

    def close(self) -> None:
        print(file=self._out, flush=True)


class Notebook:
    def __init__(self, display: Callable[..., Any], html_of: Callable[[str], object]) -> None:
        self._html_of = html_of
        self._handle = display(html_of(""), display_id=True)

    def show(self, tally: Tally, *, is_new: bool) -> None:
        del is_new
        share = tally.share
        value = "" if share is None else f' value="{share:.4f}"'
        text = html.escape(tally.text())
        self._handle.update(self._html_of(f'<progress max="1"{value}></progress> {text}'))

    def close(self) -> None: ...


def bar(share: float | None) -> str:
    """`[#####.....]  50 % `; empty if the share is unknown."""
    if share is None:
        return ""
    full = round(share * _BAR_WIDTH)
    return f"[{'#' * full}{'.' * (_BAR_WIDTH - full)}] {share:4.0%}  "


def show_progress(query: StreamingQuery, timeout_s: float | None = None) -> None:
    """Show a streaming query's progress until it ends, or for `timeout_s` seconds.

    Ctrl-C stops the display, not the query. Raises the error of a failed query.

    Args:
        query: The streaming query to show.
        timeout_s: The limit of the display in seconds; None: until the query ends.
    """
    restore_session()
    display = _display()
    tally = Tally()
    give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
    try:
        with _interrupts() as is_interrupted:
            while not is_interrupted.is_set():
                is_active = query.isActive
                for progress in query.recentProgress:
                    if tally.add(BatchSeen.from_progress(progress)):
                        display.show(tally, is_new=True)
                display.show(tally, is_new=False)
                if not is_active:
                    break
                if give_up_at is not None and time.monotonic() >= give_up_at:
                    return
                # Raises the error of a failed query.
                query.awaitTermination(_POLL_S)  # type: ignore[arg-type]
    finally:
        display.close()
    if is_interrupted.is_set():
        print("the query still runs: query.stop() ends it", file=sys.stderr, flush=True)


@contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, instead of breaking the call to the JVM that it arrives in."""
    is_interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield is_interrupted
        return
    before = signal.signal(signal.SIGINT, lambda *_: is_interrupted.set())
    try:
        yield is_interrupted
    finally:
        # None: the handler was set outside of Python.
        signal.signal(signal.SIGINT, before or signal.default_int_handler)


def _display() -> Display:
    shell = sys.modules.get("IPython")
    if shell is not None and "IPKernelApp" in getattr(shell.get_ipython(), "config", {}):
        # Present only in a notebook, so it is no requirement.
        widgets = importlib.import_module("IPython.display")
        return Notebook(widgets.display, widgets.HTML)
    return Terminal(sys.stderr) if sys.stderr.isatty() else Lines(sys.stderr)
