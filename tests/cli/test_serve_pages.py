"""`rmq serve --ui` as processes: the pages come and go with the broker."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import pytest

from rocketmq_broker.config import BrokerConfig
from rocketmq_cli.main import main
from rocketmq_cli.usage import EXIT_FAILED, EXIT_USAGE

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
        return re.search(r"status pages: (http://127\.0\.0\.1:\d+/)", log.read_text())

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
@pytest.mark.parametrize("way", ["is stopped", "is killed"])
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


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["serve", "--port", "0", "--memory", "--ui"], "--ui"),
        (["ui", "--name-server", "127.0.0.1:1", "--port"], "--port"),
    ],
)
def test_a_taken_port_of_the_pages_is_said_before_anything_starts(
    words: list[str], option: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main([*words, str(port)]) == EXIT_FAILED
    shown = capfd.readouterr()
    assert f"127.0.0.1:{port}: Address already in use" in shown.err
    assert f"{option} 0 takes a free one" in shown.err
    assert "ready" not in shown.out


@pytest.mark.parametrize("words", [["serve", "--memory", "--ui"], ["ui", "--port"]])
@pytest.mark.parametrize("port", ["99999", "-1", "http"])
def test_what_is_no_port_is_a_wrong_command_line(
    words: list[str], port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*words, port])
    assert stopped.value.code == EXIT_USAGE
    assert f"{port!r} is no port: give 0 to 65535" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--set", "foo=1"], "unknown key 'foo'"),
        (["--set", "flush=fast"], "'flush' must be one of"),
        (["--config", "missing.toml"], "cannot read missing.toml"),
    ],
)
def test_a_wrong_setting_of_the_broker_is_a_wrong_command_line(
    words: list[str], text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--memory", *words]) == EXIT_USAGE
    assert text in capfd.readouterr().err


def test_the_help_of_serve_lists_the_keys_of_the_configuration(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    shown = capsys.readouterr().out
    assert "(default: rocketmq-data)" in shown
    words = {word.partition("=")[0] for word in shown.split()}
    options = {key.name: f"--{key.name.replace('_', '-')}" for key in fields(BrokerConfig)}
    assert [name for name, option in options.items() if not {name, option} & words] == []


def test_the_pages_offer_no_endpoints_and_refuse_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["ui", "--help"])
    assert "--endpoints" not in capsys.readouterr().out
    assert main(["ui", "--endpoints", "127.0.0.1:1"]) == EXIT_USAGE
    assert "give --name-server" in capsys.readouterr().err
