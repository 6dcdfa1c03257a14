"""The parts of the real cluster's fixture that need neither Java nor a network."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from support.real_cluster import VERSIONS, RealCluster, free_port
from support.real_cluster import jars as jars_module
from support.real_cluster.cluster import require_room
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
    with pytest.raises(JarsUnavailableError, match="apt-get install maven"):
        jars_module._repository()
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
    assert [path.name for path in cache_folder().rglob("*") if path.name[0] != "."] == []


def test_a_download_goes_on_where_the_one_before_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    central, cache = tmp_path / "central", tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("ROCKETMQ_MAVEN_REPOSITORY", central.as_uri())
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(jars_module, "_TRIES", 1)
    bodies = {f"g/{name}.jar": name.encode() for name in ("a", "b", "c")}
    listed = {path: hashlib.sha256(body).hexdigest() for path, body in bodies.items()}
    monkeypatch.setattr(jars_module, "listed_jars", lambda _: listed)
    (central / "g").mkdir(parents=True)
    for path, body in bodies.items():
        (central / path).write_bytes(body if path != "g/b.jar" else b"not this")
    with pytest.raises(JarsUnavailableError, match="SHA-256"):
        fetch_jars("4.9.7")
    (central / "g/b.jar").write_bytes(b"b")
    (central / "g/a.jar").unlink()
    found = {path.name: path.read_bytes() for path in fetch_jars("4.9.7").iterdir()}
    assert found == {"a.jar": b"a", "b.jar": b"b", "c.jar": b"c"}
    assert [path.name for path in cache_folder().iterdir() if path.is_dir()] == ["rocketmq-4.9.7"]


def test_a_disk_too_full_for_rocketmq_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(used=94, free=6))
    with pytest.raises(RuntimeError, match=r"94\.0% full.*--basetemp"):
        RealCluster("5.3.3", tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(used=89, free=11))
    require_room(tmp_path)


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
