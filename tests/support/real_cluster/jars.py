"""Turns a RocketMQ version into a folder of its jars, resolved once and kept in the user's cache.

With Maven on the machine its resolution and its settings count; without it the list that such a
resolution gave (`jars-VERSION.txt`: path in the repository, SHA-256) is downloaded file by file.
Both resume where an earlier attempt was cut short, so a slow repository only takes several.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

VERSIONS: Final = tuple(os.environ.get("ROCKETMQ_VERSIONS", "5.3.3 4.9.7").split())
"""What the suites run against; the first is the default. Of others Maven has to fetch the jars."""
_HERE: Final = Path(__file__).parent
_POM: Final = _HERE / "rocketmq.pom.xml"
# Pinned: plug-ins of other versions name their goals and properties differently.
_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_MAVEN_SECONDS_MAX: Final = 900
_REPORT_SECONDS: Final = 5
_FILE_SECONDS_MAX: Final = 60
_FILE_BYTES_MAX: Final = 64 << 20
_DOWNLOADS_AT_ONCE: Final = 6
_TRIES: Final = 3


class JarsUnavailableError(RuntimeError):
    """The jars are not in the cache and cannot be had."""


def fetch_jars(version: str) -> Path:
    """The folder with every jar of that version; resolves it when it is not in the cache.

    Raises JarsUnavailableError.
    """
    folder = cache_folder() / f"rocketmq-{version}"
    if folder.exists():
        return folder
    with _alone(version):
        if folder.exists():
            return folder
        with _new_folder(folder) as new:
            began = time.monotonic()
            if shutil.which("mvn"):
                _by_maven(version, new)
            else:
                _by_list(version, new)
            count = len(list(new.glob("*.jar")))
            _say(version, f"{count} jars in {time.monotonic() - began:.0f} s, kept in {folder}")
    return folder


def cache_folder() -> Path:
    """Where what was fetched or compiled outlives a run."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "pyspark-rocketmq"


@contextlib.contextmanager
def _alone(version: str) -> Iterator[None]:
    """Only one process at a time gets the jars of a version."""
    path = cache_folder() / f".rocketmq-{version}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(version, "waiting for another process that gets the jars")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A folder that appears as `folder` only when the block has filled it."""
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        yield new
        new.chmod(0o755)
        new.rename(folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _say(version: str, text: str) -> None:
    print(f"rocketmq {version}: {text}", file=sys.stderr, flush=True)


# --- with Maven -------------------------------------------------------------------------------


def _by_maven(version: str, folder: Path) -> None:
    command = ["mvn", "--batch-mode", "--file", str(_POM), _GOAL, f"-Drocketmq.version={version}"]
    command += [f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    if not version.startswith("4."):
        command.append("-Pproxy")
    _say(version, "resolving with Maven (the first time about 100 MB)")
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as maven:
        assert maven.stdout is not None
        reader = threading.Thread(target=_hand_on, args=(maven.stdout, lines), name="maven")
        reader.start()
        try:
            tail = _watch(version, lines)
            code = None if tail is None else maven.wait(_REPORT_SECONDS)
        finally:
            maven.kill()
            reader.join()
    if tail is None or code:
        errors = [line for line in tail or () if line.startswith("[ERROR]")] or tail
        problem = "\n".join(errors[:8]) if errors else f"not done in {_MAVEN_SECONDS_MAX} s"
        raise JarsUnavailableError(
            f"Maven could not resolve RocketMQ {version}:\n{problem}\n"
            "Needed: a Maven repository with what Maven Central has (a mirror is named in "
            "~/.m2/settings.xml). Then repeat: what has arrived is kept."
        )


def _hand_on(printed: Iterable[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in printed:
        lines.put(line)
    lines.put(None)


def _watch(version: str, lines: queue.SimpleQueue[str | None]) -> list[str] | None:
    """Say how far Maven is; returns the end of what it printed, None if it takes too long."""
    began = shown = time.monotonic()
    tail: list[str] = []
    count = 0
    while (now := time.monotonic()) - began < _MAVEN_SECONDS_MAX:
        if now - shown >= _REPORT_SECONDS:
            shown = now
            _say(version, f"{count} files downloaded, {now - began:.0f} s")
        with contextlib.suppress(queue.Empty):
            line = lines.get(timeout=1)
            if line is None:
                return tail
            tail = [*tail[-30:], line.rstrip()]
            count += "Downloaded from" in line
    return None


# --- without Maven ----------------------------------------------------------------------------


def listed_jars(version: str) -> dict[str, str]:
    """Path in a Maven repository -> SHA-256 of every jar of that version."""
    lines = (_HERE / f"jars-{version}.txt").read_text().splitlines()
    return {path: digest for digest, path in (line.split() for line in lines)}


def _by_list(version: str, folder: Path) -> None:
    listed = listed_jars(version)
    base = _repository()
    arrived = cache_folder() / f".rocketmq-{version}-arrived"
    arrived.mkdir(exist_ok=True)
    wanted = {path: digest for path, digest in listed.items() if not (arrived / digest).exists()}
    _say(version, f"there is no Maven here: downloading {len(wanted)} of {len(listed)} listed jars")

    def download(item: tuple[str, str]) -> None:
        path, digest = item
        half = arrived / f"{digest}.half"
        half.write_bytes(_verified(f"{base}/{path}", digest))
        half.rename(arrived / digest)

    shown = time.monotonic()
    with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as pool:
        for number, _ in enumerate(pool.map(download, wanted.items()), 1):
            if time.monotonic() - shown >= _REPORT_SECONDS:
                shown = time.monotonic()
                _say(version, f"{number} of {len(wanted)} jars downloaded")
    for path, digest in listed.items():
        (arrived / digest).rename(folder / Path(path).name)
    shutil.rmtree(arrived)


def _verified(url: str, digest: str) -> bytes:
    """The file at a URL, if it is the right one. Raises JarsUnavailableError."""
    problem = ""
    for attempt in range(_TRIES):
        time.sleep(attempt)
        try:
            with urllib.request.urlopen(url, timeout=_FILE_SECONDS_MAX) as answer:
                body: bytes = answer.read(_FILE_BYTES_MAX)
        except (OSError, urllib.error.URLError) as error:
            problem = str(error)
            continue
        found = hashlib.sha256(body).hexdigest()
        if found == digest:
            return body
        problem = f"its SHA-256 is {found}, not {digest}"
    raise JarsUnavailableError(
        f"{url} cannot be had: {problem}\nNeeded: network to a Maven repository. Name another in "
        "ROCKETMQ_MAVEN_REPOSITORY, or as a mirror in ~/.m2/settings.xml, or install Maven "
        "(Debian, Ubuntu: apt-get install maven). Then repeat: what has arrived is kept."
    )


def _repository() -> str:
    """The repository that the environment or the user's settings name.

    Raises JarsUnavailableError.
    """
    named = os.environ.get("ROCKETMQ_MAVEN_REPOSITORY")
    if named:
        return named.rstrip("/")
    settings = Path.home() / ".m2" / "settings.xml"
    with contextlib.suppress(OSError, ElementTree.ParseError):
        text = re.sub(r'\sxmlns="[^"]*"', "", settings.read_text("utf-8"), count=1)
        for mirror in ElementTree.fromstring(text).iter("mirror"):
            covers = (mirror.findtext("mirrorOf") or "").replace(" ", "").split(",")
            url = (mirror.findtext("url") or "").strip()
            if url and {"*", "external:*", "central"} & set(covers) and "!central" not in covers:
                return url.rstrip("/")
    raise JarsUnavailableError(
        "there is no Maven here and no repository is named. Install Maven (Debian, Ubuntu: "
        "apt-get install maven), or name a repository with what Maven Central has in "
        "ROCKETMQ_MAVEN_REPOSITORY. Then repeat."
    )
