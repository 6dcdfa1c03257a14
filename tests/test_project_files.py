"""The workflows, the forms and the links. `./run check` compares files with their schemas."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
of_checkouts = pytest.mark.skipif(not WORKFLOWS, reason="an sdist has no workflows")


def workflow(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(
        (ROOT / ".github" / "workflows" / f"{name}.yml").read_text("utf-8")
    )
    return loaded


def steps(job: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = job.get("steps", [])
    return found


@of_checkouts
@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_read_and_uses_actions_of_a_major_version(path: Path) -> None:
    loaded = workflow(path.stem)
    assert loaded["permissions"] == {"contents": "read"}
    assert loaded["concurrency"]["group"]
    for job in loaded["jobs"].values():
        if "uses" in job:
            continue
        assert job["timeout-minutes"]
        for step in steps(job):
            assert "uses" not in step or re.search(r"@(v\d+|release/v\d+)$", step["uses"])


@of_checkouts
def test_every_change_is_checked_by_the_landing_script() -> None:
    (job,) = workflow("ci")["jobs"].values()
    assert [step["run"] for step in steps(job) if "run" in step] == [".ci/run"]


@of_checkouts
def test_only_a_checked_tag_that_reviewers_approved_is_published() -> None:
    jobs = workflow("release")["jobs"]
    assert jobs["check"]["uses"] == "./.github/workflows/ci.yml"
    order = [(name, job["needs"]) for name, job in jobs.items() if "needs" in job]
    assert order == [("build", "check"), ("publish", "build"), ("announce", "publish")]
    publish = jobs["publish"]
    assert publish["environment"] == "pypi"
    assert publish["if"] == "github.ref_type == 'tag'"
    # No secret, and what runs here can only download the files and publish them.
    assert publish["permissions"] == {"id-token": "write"}
    assert not any("run" in step for step in steps(publish))
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text("utf-8")


@of_checkouts
def test_a_tag_that_is_not_the_version_stops_the_release(tmp_path: Path) -> None:
    (check,) = (
        s for s in steps(workflow("release")["jobs"]["build"]) if "grep" in s.get("run", "")
    )
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')

    def code(tag: str) -> int:
        command = ["bash", "-ec", check["run"]]
        return subprocess.run(command, cwd=tmp_path, env={"GITHUB_REF_NAME": tag}).returncode

    assert code("v1.2.3") == 0
    assert code("v1.2.4") == code("v1.2") == 1


@of_checkouts
def test_a_bug_report_asks_for_the_checks_of_rmq() -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text("utf-8"))
    (asked,) = (part for part in form["body"] if part.get("id") == "check")
    assert "rmq check" in asked["attributes"]["label"]
    assert asked["validations"]["required"]


@pytest.mark.parametrize("home", ["https://git.example/someone/fork", ""])
def test_the_links_are_those_of_the_address_that_a_build_is_given(home: str) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "hatchling", "metadata"],
        cwd=ROOT,
        env={"PROJECT_URL": home},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert '"authors"' in said
    assert ("Source" in said) == (f'"{home}/issues"' in said) == bool(home)
