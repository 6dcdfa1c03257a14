"""The image of the bundled broker without a container engine.

Its Dockerfile is carried out in a folder: the copied files are all that the build sees. Commands
run in an environment that has what the wheel depends on. Nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rocketmq_client import ConnectionSettings, Message, Producer, TopicConfig, open_cluster
from rocketmq_wire.model import Bounds

ROOT = Path(__file__).parents[1]
SECONDS_MAX = 60
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
SERVICE = COMPOSE["services"]["broker"]
PORTS = ("9876", "8081", "8088")


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, each with its arguments."""
    text = (ROOT / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def arguments_of(name: str) -> list[str]:
    """The list in the exec form of the only such instruction."""
    (text,) = (rest for found, rest in instructions() if found == name)
    words: list[str] = json.loads(text[text.index("[") :])
    return words


class Image:
    """What the Dockerfile makes, in a folder; `here` puts it and free ports into commands."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self._make_environment()
        (folder / "data").mkdir()
        (folder / "wheels").mkdir()
        for name, rest in instructions():
            if name == "COPY" and not rest.startswith("--from"):
                *sources, target = rest.split()
                for source in sources:
                    self._copy(source, folder / "src" / target)
            elif name == "RUN" and not rest.startswith("useradd"):
                self._run(rest)

    def here(self, word: str) -> str:
        """A command's word outside a container."""
        word = re.sub(r"(?<![\w/])/(src|wheels|data)\b", rf"{self._folder}/\1", word)
        word = re.sub(r"\b(9876|8081|8088)\b", lambda found: self.ports[found[0]], word)
        return word.replace("0.0.0.0", "127.0.0.1")

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [self.here(word) for word in words]
        return subprocess.Popen(command, cwd=self._folder / "data", env=self.environment)

    def is_healthy(self) -> bool:
        """The image's health check."""
        command = [self.here(word) for word in arguments_of("HEALTHCHECK")]
        return subprocess.run(command, env=self.environment, timeout=SECONDS_MAX).returncode == 0

    def _make_environment(self) -> None:
        env = self._folder / "env"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", env], check=True)
        # The packages of this environment, without its editable install of ours.
        purelib = sysconfig.get_paths()["purelib"]
        (site,) = env.glob("lib/python*/site-packages")
        (site / "dependencies.pth").write_text(purelib)
        python = env / "bin" / "python"
        pip = env / "bin" / "pip"
        pip.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip --python {python} "$@"\n')
        pip.chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{env / 'bin'}{os.pathsep}{os.environ['PATH']}",
            # pip reads "no" for "false" here.
            "NAMESRV_ADDR": self.here(dict(instructions())["ENV"].partition("=")[2]),
            "PIP_NO_BUILD_ISOLATION": "false",
            "PIP_NO_DEPS": "1",
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    def _copy(self, source: str, target: Path) -> None:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, target)

    def _run(self, command: str) -> None:
        ended = subprocess.run(
            ["sh", "-euc", self.here(command)],
            cwd=self._folder / "src",
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        assert ended.returncode == 0, f"{command}\n{ended.stdout}{ended.stderr}"


def free_ports(count: int) -> list[str]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for bound in sockets:
            bound.bind(("127.0.0.1", 0))
        return [str(bound.getsockname()[1]) for bound in sockets]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return Image(tmp_path_factory.mktemp("image"))


@contextlib.contextmanager
def running_broker(image: Image) -> Iterator[ConnectionSettings]:
    """The service of compose.yaml, from healthy to stopped."""
    command = [re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word) for word in SERVICE["command"]]
    broker = image.start(*arguments_of("ENTRYPOINT"), *command)
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while not image.is_healthy():
            assert broker.poll() is None
            assert time.monotonic() < deadline
        yield ConnectionSettings(name_servers=(f"127.0.0.1:{image.ports['9876']}",))
    finally:
        # As `docker stop` does.
        broker.terminate()
        assert broker.wait(SECONDS_MAX) == 0


def test_a_message_outlives_the_container(image: Image) -> None:
    assert not image.is_healthy()
    with running_broker(image) as settings, open_cluster(settings) as cluster:
        cluster.create_topic(TopicConfig("orders", 1, 1))
        command = [image.here("/wheels/../env/bin/rmq"), "topic", "list"]
        topics = subprocess.run(command, env=image.environment, capture_output=True, text=True)
        assert "orders" in topics.stdout.splitlines()[-1]
        with Producer(cluster) as producer:
            producer.send(Message("orders", b"kept"))
    assert not image.is_healthy()
    with running_broker(image) as settings, open_cluster(settings) as cluster:
        (bounds,) = cluster.bounds(cluster.queues("orders")).values()
    assert isinstance(bounds, Bounds)
    assert (bounds.start, bounds.end) == (0, 1)


def test_the_status_pages_run_beside_the_broker(image: Image) -> None:
    with running_broker(image):
        pages = image.start(*COMPOSE["services"]["pages"]["entrypoint"])
        try:
            url = f"http://127.0.0.1:{image.ports['8088']}/health"
            deadline = time.monotonic() + SECONDS_MAX
            status = 0
            while status != 200:
                assert time.monotonic() < deadline
                with contextlib.suppress(OSError), urllib.request.urlopen(url) as answer:
                    status = answer.status
        finally:
            pages.terminate()
            pages.wait(SECONDS_MAX)


def test_the_program_is_that_of_the_wheel(image: Image) -> None:
    code = "import rocketmq_broker; print(rocketmq_broker.__file__)"
    where = subprocess.run(
        [image.here("/src/../env/bin/python"), "-I", "-c", code],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "/env/lib/" in where


def test_the_broker_is_no_root_and_its_data_are_a_volume() -> None:
    said = dict(instructions())
    assert said["USER"] == "rocketmq"
    names = [name for name, _ in instructions()]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert not any(name == "USER" and rest == "root" for name, rest in instructions())
    words = arguments_of("ENTRYPOINT")
    assert words[words.index("--data-dir") + 1] == said["VOLUME"] == said["WORKDIR"]
    assert SERVICE["volumes"] == [f"data:{said['VOLUME']}"]
    assert "data" in COMPOSE["volumes"]


def test_every_port_is_published_to_this_machine_under_its_own_number() -> None:
    words = arguments_of("ENTRYPOINT")
    served = [words[words.index(option) + 1] for option in ("--port", "--grpc-port")]
    assert dict(instructions())["EXPOSE"].split() == served
    pages = COMPOSE["services"]["pages"]["entrypoint"]
    served.append(pages[pages.index("--port") + 1])
    assert SERVICE["ports"] == [f"127.0.0.1:{port}:{port}" for port in served]


def test_the_build_is_sent_what_it_copies_and_nothing_else() -> None:
    rules = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    sent = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copied = {
        source
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from")
        for source in shlex.split(rest)[:-1]
    }
    assert "*" in rules
    assert sent == copied
