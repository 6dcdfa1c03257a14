"""`rmq serve --ui` as processes: the pages come and go with the broker."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

WAIT_S = 60.0


@contextmanager
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker with pages, and their address."""
    rmq = str(Path(sys.executable).with_name("rmq"))
    command = [rmq, "serve", "--port", "0", "--memory", "--ui", "0"]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, text=True) as process,
    ):
        try:
            yield process, page_address(process, folder / "log")
        finally:
            process.kill()


def page_address(process: subprocess.Popen[str], log: Path) -> str:
    def said() -> re.Match[str] | None:
        assert process.poll() is None, log.read_text()
        return re.search(r"status page: (http://127\.0\.0\.1:\d+/)", log.read_text())

    until(lambda: said() is not None)
    found = said()
    assert found is not None
    return found[1]


def until(is_so: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < give_up_at, "it did not come about"
        time.sleep(0.05)


def health(address: str) -> str:
    try:
        with urllib.request.urlopen(f"{address}health", timeout=WAIT_S) as answer:
            return str(answer.read().decode())
    except OSError as error:  # Refused, or reset in the midst of an answer.
        return f"none: {error}"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("way", ["is told to stop", "is killed"])
def test_the_pages_live_as_long_as_the_broker(way: str, tmp_path: Path) -> None:
    with serving(tmp_path) as (process, address):
        until(lambda: health(address) == "ok\n")
        with urllib.request.urlopen(f"{address}metrics", timeout=WAIT_S) as answer:
            assert 'node_id="broker-a"' in answer.read().decode()
        if way == "is killed":
            process.kill()
        else:
            process.terminate()
        assert process.wait(WAIT_S) == (-9 if way == "is killed" else 0)
        until(lambda: "Connection refused" in health(address))
