"""What the fuzzer takes for a finding: an undeclared error, too much time, too much memory."""

from __future__ import annotations

import time

import pytest

from fuzz.targets import Target

worker = pytest.importorskip("fuzz.worker", reason="Atheris is not for this Python or machine")


def target(run) -> Target:
    return Target(run, (ValueError,), lambda: [b""])


def test_an_undeclared_error_is_a_finding_and_a_declared_one_is_none() -> None:
    runner = worker.Runner(target(lambda data: int(data) / 0))
    runner(b"no number")
    with pytest.raises(ZeroDivisionError):
        runner(b"1")


def test_an_input_that_takes_a_second_is_a_finding() -> None:
    def burn(data: bytes) -> None:
        end = time.process_time() + len(data)
        while time.process_time() < end:
            pass

    runner = worker.Runner(target(burn))
    runner(b"")
    with pytest.raises(worker.FoundError, match="s of CPU for 2 bytes"):
        runner(b"no")


def test_an_input_that_takes_memory_is_a_finding() -> None:
    peaks = iter([*[100_000] * 300, 160_000, 230_000])
    runner = worker.Runner(target(len), lambda: next(peaks))
    for _ in range(301):
        runner(b"")
    with pytest.raises(worker.FoundError, match="70000 KiB more memory for 4 bytes"):
        runner(b"much")
