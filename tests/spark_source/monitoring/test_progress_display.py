"""A query's progress as people see it: tallies, lines, a terminal's bar, a notebook's widget."""

from __future__ import annotations

import io
import signal
from typing import Any

import pytest

from pyspark_rocketmq.monitoring import progress_display
from pyspark_rocketmq.monitoring.progress_display import (
    BatchSeen,
    Lines,
    Notebook,
    Tally,
    Terminal,
    bar,
    show_progress,
)


def progress(batch: int, rows: int, end: int, latest: int | None) -> dict[str, Any]:
    def offset(at: int) -> dict[str, Any]:
        return {"version": 1, "offsets": {"orders": {"b": {"0": at}}}, "births": {}, "starts": {}}

    source = {"endOffset": offset(end)}
    if latest is not None:
        source["latestOffset"] = offset(latest)
    durations = {"triggerExecution": 500}
    return {"batchId": batch, "numInputRows": rows, "durationMs": durations, "sources": [source]}


class Query:
    """Plays reports one poll after the other, then ends."""

    def __init__(self, *polls: list[dict[str, Any]], error: Exception | None = None) -> None:
        self._polls = list(polls)
        self._error = error

    @property
    def isActive(self) -> bool:  # noqa: N802
        return len(self._polls) > 1

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802
        return self._polls[0]

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        assert timeout < 1
        if self._error is not None:
            raise self._error
        self._polls.pop(0)
        return False


def test_batches_are_counted_once_with_what_is_left() -> None:
    tally = Tally()
    assert tally.add(BatchSeen.from_progress(progress(0, 10, 10, 40)))
    assert not tally.add(BatchSeen.from_progress(progress(0, 10, 10, 40)))
    assert tally.add(BatchSeen.from_progress(progress(1, 20, 30, 40)))
    assert tally.text() == "batch 1  30 rows  40/s  10 behind"
    assert tally.share == 0.75


def test_what_no_report_says_is_not_shown() -> None:
    tally = Tally()
    assert tally.text() == "waiting for the first batch"
    tally.add(BatchSeen.from_progress(progress(0, 5, 5, None)))
    assert tally.share is None
    assert "behind" not in tally.text()
    assert bar(None) == ""


@pytest.mark.parametrize(("share", "hashes"), [(0.0, 0), (0.5, 12), (1.0, 24)])
def test_a_bar_is_as_long_as_its_share(share: float, hashes: int) -> None:
    assert bar(share).count("#") == hashes
    assert f"{share:.0%}" in bar(share)


def test_a_log_gets_one_line_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(progress_display, "_display", lambda: Lines(out))
    first, second = progress(0, 10, 10, 30), progress(1, 20, 30, 30)
    show_progress(Query([], [first], [first], [first, second]))  # type: ignore[arg-type]
    lines = out.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines] == ["batch 0", "batch 1"]


def test_a_terminal_gets_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(progress_display, "_display", lambda: Terminal(out))
    show_progress(Query([], [progress(0, 30, 30, 30)]))  # type: ignore[arg-type]
    assert out.getvalue().count("\n") == 1
    assert "100%" in out.getvalue().rpartition("\r")[2]


def test_a_notebook_gets_one_widget_that_changes() -> None:
    shown: list[str] = []

    class Handle:
        def update(self, value: str) -> None:
            shown.append(value)

    widget = Notebook(lambda *_, **__: Handle(), lambda text: text)
    tally = Tally()
    tally.add(BatchSeen.from_progress(progress(0, 10, 10, 40)))
    widget.show(tally, is_new=True)
    assert shown == [
        '<progress max="1" value="0.2500"></progress> batch 0  10 rows  20/s  30 behind'
    ]


def test_a_failed_query_raises_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_display, "_display", lambda: Lines(io.StringIO()))
    with pytest.raises(ValueError, match="the query's own"):
        show_progress(Query([], [], error=ValueError("the query's own")))  # type: ignore[arg-type]


def test_ctrl_c_ends_the_display_between_two_calls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(Query):
        def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
            signal.raise_signal(signal.SIGINT)
            return super().awaitTermination(timeout)

    monkeypatch.setattr(progress_display, "_display", lambda: Lines(io.StringIO()))
    before = signal.getsignal(signal.SIGINT)
    show_progress(Interrupted([], [], []))  # type: ignore[arg-type]
    assert "query.stop() ends it" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
