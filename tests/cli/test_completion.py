"""`rmq completion`: what can stand at the end of a line, and the scripts of the shells."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_cli.arguments import VERBS
from rocketmq_cli.commands.completion import candidates, names_at_cluster, words_of
from rocketmq_cli.main import main
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import TopicConfig

NAMES = {"topic": ["orders", "orders-copy"], "group": ["billing"], "profile": ["prod"]}


def known(kind: str, _: Sequence[str]) -> Sequence[str]:
    return NAMES.get(kind, ())


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("rmq ta", ["tail"]),
        ("rmq help ta", ["tail"]),
        ("rmq topic ", ["create", "alter", "list", "describe", "delete"]),
        ("rmq topic d", ["describe", "delete"]),
        ("rmq nothing ", []),
        ("rmq topic nothing ", []),
        ("rmq tail or", ["orders", "orders-copy"]),
        ("rmq tail 'or", ["orders", "orders-copy"]),
        ("rmq tail orders orders-", ["orders-copy"]),
        ("rmq tail --count 3 ", ["orders", "orders-copy"]),
        ("rmq tail -f ", ["orders", "orders-copy"]),
        ("rmq tail --cou", ["--count"]),
        ("rmq tail -n ", []),
        ("rmq produce orders ", []),
        ("rmq lag ", ["billing"]),
        ("rmq lag --topic ", ["orders", "orders-copy"]),
        ("rmq lag --profile ", ["prod"]),
        ("rmq group describe b", ["billing"]),
        ("rmq group reset-offsets billing --to ", ["earliest", "latest"]),
        ("rmq topic create t --permission ", ["rw", "r", "w"]),
        ("rmq dlq replay billing --to ", ["orders", "orders-copy"]),
        ("rmq fsck ", []),
        ("rmq", []),
    ],
)
def test_the_line_decides_what_can_follow(line: str, found: list[str]) -> None:
    assert candidates(words_of(line)[1:], known) == found


def test_the_first_word_is_a_verb() -> None:
    assert set(VERBS) < set(candidates([""], known))


def test_options_of_a_verb_are_those_of_its_help() -> None:
    found = candidates(["message", "get", "--"], known)
    assert {"--key", "--id", "--offset", "--json", "--name-server", "--profile"} <= set(found)


def test_topics_and_groups_are_those_of_the_cluster(broker: Broker) -> None:
    with open_cluster(ConnectionSettings(name_servers=(broker.name_server,))) as cluster:
        cluster.create_topic(TopicConfig("completed", 1, 1))
        cluster.commit("completing", dict.fromkeys(cluster.queues("completed"), 0))
    there = ["-n", broker.name_server]
    # On a busy machine an answer may come too late for the one who types.
    for kind, name in (("topic", "completed"), ("group", "completing")):
        assert any(name in names_at_cluster(kind, there) for _ in range(50))
    assert names_at_cluster("broker", there) == ()


@pytest.mark.parametrize("words", [[], ["-n", "127.0.0.1:1"], ["-n", "a:b:c"], ["--profile", "x"]])
def test_without_a_cluster_there_is_silence(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert main(["completion", "--line", f"rmq tail {' '.join(words)} "]) == 0
    assert capfd.readouterr() == ("", "")


def test_a_cluster_that_never_answers_is_not_waited_for(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        line = f"rmq tail -n 127.0.0.1:{silent.getsockname()[1]} "
        words = [sys.executable, "-m", "rocketmq_cli", "completion", "--line", line]
        # A request's usual limit is five seconds, and there are several.
        subprocess.run(words, check=True, timeout=5)
    assert capfd.readouterr() == ("", "")


_BASH = """\
eval "$({rmq} completion bash)"
COMP_LINE="{rmq} topic d" COMP_POINT=100 COMP_WORDS=({rmq} topic d) COMP_CWORD=2
_rmq
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
_ZSH = """\
compdef() {{ print -r -- "$@" }}
compadd() {{ print -rl -- ${{@[2,-1]}} }}
eval "$({rmq} completion zsh)" > /dev/null
words=({rmq} topic d) CURRENT=3
_rmq
"""


@pytest.mark.parametrize(("shell", "script"), [("bash", _BASH), ("zsh", _ZSH)])
def test_the_shell_s_script_gives_its_candidates(shell: str, script: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    rmq = tmp_path / "rmq"
    rmq.write_text(f'#!/bin/sh\nexec {sys.executable} -m rocketmq_cli "$@"\n')
    rmq.chmod(0o755)
    flags = {"bash": ["--norc"], "zsh": ["-f"]}[shell]
    done = subprocess.run(
        [shell, *flags, "-c", script.format(rmq=rmq)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["describe", "delete"]
