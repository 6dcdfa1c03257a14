"""`.ci/run` over verbs of the test's own: what fails or is not run is never said to have passed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(
    not (ROOT / ".ci" / "run").exists(), reason="an sdist has no .ci/run: this is of checkouts"
)
# Notes what it was asked for and ends with the code that a file named like the verb holds.
STUB = """#!/usr/bin/env bash
echo "$*" >>asked
exit "$(cat "code-$1" 2>/dev/null || echo 0)"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci" / "run")
    (tmp_path / "run").write_text(STUB)
    (tmp_path / "run").chmod(0o755)
    return tmp_path


def land(checkout: Path, **codes: int) -> tuple[int, str]:
    for verb, code in codes.items():
        (checkout / f"code-{verb.replace('_', '-')}").write_text(str(code))
    ended = subprocess.run(
        [str(checkout / ".ci" / "run")], capture_output=True, text=True, timeout=60, check=False
    )
    return ended.returncode, ended.stdout.splitlines()[-1] if ended.stdout else ""


def test_every_step_runs_and_passes(checkout: Path) -> None:
    code, last = land(checkout)
    assert code == 0
    assert last.startswith("ci: all steps passed in ")
    asked = (checkout / "asked").read_text().splitlines()
    verbs = [line.split()[0] for line in asked]
    assert verbs[0] == "setup"
    usage = subprocess.run(
        [str(ROOT / "run"), "help"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert all(f"\n  {verb} " in usage for verb in verbs)
    tests = {line.split()[0] for line in usage.splitlines() if line.startswith("  test")}
    assert tests <= set(verbs)


def test_a_step_that_fails_stops_no_other_and_is_named(checkout: Path) -> None:
    assert land(checkout, check=1, test=2) == (1, "ci: FAILED: check test")
    assert "test-pages" in (checkout / "asked").read_text()


def test_what_a_machine_cannot_run_is_named(checkout: Path) -> None:
    code, last = land(checkout, test_pages=77)
    assert code == 0
    assert last.startswith("ci: all other steps passed in ")
    assert last.endswith("; NOT RUN, this machine lacks what it needs: test-pages")
    assert land(checkout, test_pages=77, docs=1) == (1, "ci: FAILED: docs")


def test_nothing_runs_where_nothing_can_be_set_up(checkout: Path) -> None:
    assert land(checkout, setup=1)[0] == 1
    assert (checkout / "asked").read_text() == "setup\n"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["foo"], "run: there is no verb 'foo'; ./run help lists them all"),
        (
            ["exec", "no-such-command"],
            "run: there is no command 'no-such-command' in the project's environment",
        ),
    ],
)
def test_an_unknown_verb_or_command_is_named_last(words: list[str], error: str) -> None:
    ended = subprocess.run(
        [str(ROOT / "run"), *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.splitlines()[-1] == error
