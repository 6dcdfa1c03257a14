"""The parts of the real cluster's fixture that need neither Java nor a network."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support.real_cluster import VERSIONS, free_port
from support.real_cluster import jars as jars_module
from support.real_cluster.jars import JarsUnavailableError, cache_folder, fetch_jars, listed_jars

_TESTS = Path(__file__).parents[1]
# Tells the guard of a child of its own, names it, and dies without a chance to tidy up.
_DIES = """
import os, subprocess, sys
from support.real_cluster.process import Guard
child = subprocess.Popen(["sleep", "600"])
Guard().add(child.pid)
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_the_list_of_jars_holds_every_module_and_names_no_host(version: str) -> None:
    listed = listed_jars(version)
    for module in ("namesrv", "broker", "tools", "client"):
        assert (
            f"org/apache/rocketmq/rocketmq-{module}/{version}/rocketmq-{module}-{version}.jar"
            in listed
        )
    assert all(len(digest) == 64 for digest in listed.values())
    names = [Path(path).name for path in listed]
    assert len(set(names)) == len(names), "they end up in one folder"


def test_a_mirror_of_the_users_settings_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ROCKETMQ_MAVEN_REPOSITORY", raising=False)
    assert jars_module._repository().endswith("/maven2")
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors>'
        "<mirror><mirrorOf>other</mirrorOf><url>http://other.example/</url></mirror>"
        "<mirror><mirrorOf>*,!other</mirrorOf><url>http://mirror.example/m2/</url></mirror>"
        "</mirrors></settings>"
    )
    assert jars_module._repository() == "http://mirror.example/m2"


def test_what_cannot_be_downloaded_says_what_to_do_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("ROCKETMQ_MAVEN_REPOSITORY", "http://127.0.0.1:1/maven2")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(jars_module, "_TRIES", 1)
    with pytest.raises(JarsUnavailableError, match="install Maven"):
        fetch_jars("4.9.7")
    assert list(cache_folder().iterdir()) == []


def test_a_port_is_free_together_with_its_neighbours() -> None:
    port = free_port(-2, 1)
    assert 20_000 <= port - 2 < port + 1 < 32_768


def test_the_guard_kills_what_its_process_leaves_behind() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DIES], stdout=subprocess.PIPE, text=True, cwd=_TESTS,
        timeout=60, check=False,
    )  # fmt: skip
    left_behind = int(done.stdout)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(left_behind).wait(20)
    assert not psutil.pid_exists(left_behind)
