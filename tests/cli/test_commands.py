"""`rmq` against a running broker, over both of its protocols."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_cli.main import main
from rocketmq_cli.usage import EXIT_FAILED, EXIT_USAGE, parse_moment_ms

RMQ = (sys.executable, "-m", "rocketmq_cli")
WAIT_S = 20.0
Produce = Callable[..., int]


def test_a_created_topic_is_listed_and_described(
    where: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    name = f"made-over-{where[0].strip('-')}"
    assert main(["topic", "create", name, "--queues", "3", *where]) == 0
    assert main(["topic", "list", *where]) == 0
    assert main(["topic", "describe", name, *where]) == 0
    printed = capfd.readouterr().out.splitlines()
    assert name in printed
    assert f"topic {name}: 3 queues, 0 messages" in printed
    assert "TBW102" not in printed


def test_lines_produced_are_tailed_in_order(
    where: tuple[str, str],
    topic: str,
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(2_500))
    assert produce(lines, topic, *where) == 0
    assert "sent 2,500 messages" in capfd.readouterr().err
    assert main(["tail", topic, *where]) == 0
    assert capfd.readouterr().out.encode() == lines


def test_tail_starts_and_ends_at_the_given_offsets(
    where: tuple[str, str],
    topic: str,
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    produce(b"a\nb\nc\nd\n", topic, "--quiet", *where)
    capfd.readouterr()
    assert main(["tail", topic, "--from", "1", "--count", "2", *where]) == 0
    assert capfd.readouterr().out == "b\nc\n"
    assert main(["tail", topic, "--from", "latest", *where]) == 0
    assert capfd.readouterr().out == ""


def test_tail_prints_only_the_wanted_tags(
    where: tuple[str, str],
    topic: str,
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for tag in ("new", "paid", "sent"):
        produce(tag.encode(), topic, "--tags", tag, "--quiet", *where)
    capfd.readouterr()
    assert main(["tail", topic, "--tags", "new || sent", *where]) == 0
    assert capfd.readouterr().out == "new\nsent\n"


def test_few_lines_are_spread_over_the_queues_as_one_by_one(
    where: tuple[str, str], topic: str, produce: Produce, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "create", topic, "--queues", "4", *where]) == 0
    assert produce(b"".join(b"%d\n" % n for n in range(10)), topic, *where) == 0
    capfd.readouterr()
    assert main(["tail", topic, "--json", *where]) == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    found: dict[int, list[int]] = {}
    for row in rows:
        found.setdefault(row["queue"], []).append(int(row["body"]))
    assert sorted(found.values()) == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]


def test_a_decision_topic_is_listed_with_rocketmqs_own(
    where: tuple[str, str], topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in (topic, "PYSPARK_DECISIONS"):
        assert main(["topic", "create", name, *where]) == 0
    capfd.readouterr()
    assert main(["topic", "list", *where]) == 0
    shown = capfd.readouterr().out.splitlines()
    assert topic in shown
    assert "PYSPARK_DECISIONS" not in shown
    assert main(["topic", "list", "--all", *where]) == 0
    assert {topic, "PYSPARK_DECISIONS"} <= set(capfd.readouterr().out.splitlines())
    assert main(["topic", "delete", "PYSPARK_DECISIONS", "--yes", *where]) == 0


def test_a_line_that_is_too_long_is_named_with_what_was_stored(
    where: tuple[str, str],
    topic: str,
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    rows = [{"body": body} for body in ("first", "x" * 5_000_000, "last")]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    assert produce(lines, topic, "--json", *where) == EXIT_FAILED
    error_line, stored_line = capfd.readouterr().err.splitlines()[-2:]
    assert "[ROCKETMQ_SEND.TOO_LARGE] " in error_line
    assert "not counting empty ones: line 2" in error_line
    assert main(["tail", topic, *where]) == 0
    stored = capfd.readouterr().out.splitlines()
    assert stored_line == f"rmq: not all was sent; stored so far: {len(stored)}"
    assert "first" in stored


def test_a_line_that_no_broker_would_take_is_not_read_to_its_end(
    where: tuple[str, str],
    topic: str,
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert produce(b"first\n" + b"x" * 5_000_000 + b"\nlast\n", topic, *where) == EXIT_USAGE
    assert "line 2, not counting empty ones, is longer than 4,194,304" in capfd.readouterr().err
    assert main(["tail", topic, *where]) == 0
    assert capfd.readouterr().out == "first\n"


def test_queues_are_hidden_only_by_who_says_so(
    where: tuple[str, str], topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "create", topic, "--queues", "3", *where]) == 0
    assert f"{topic} on broker-a existed and is changed: 3" in capfd.readouterr().out
    assert main(["topic", "create", topic, *where]) == 0
    assert f"{topic} on broker-a existed and is unchanged: 3" in capfd.readouterr().out
    assert main(["topic", "create", topic, "--queues", "2", *where]) == EXIT_USAGE
    assert "has 3 queues" in capfd.readouterr().err
    assert main(["topic", "create", topic, "--queues", "2", "--shrink", *where]) == 0


def test_an_unknown_topic_is_one_line_and_a_failure(
    where: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "describe", "no-such-topic", *where]) == EXIT_FAILED
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("rmq: [ROCKETMQ_TOPIC_NOT_FOUND]")


def test_a_start_that_is_no_offset_is_refused(
    where: tuple[str, str], topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["tail", topic, "--from", "yesterday", *where]) == EXIT_USAGE
    assert "yesterday" in capfd.readouterr().err


def test_follow_prints_what_arrives_and_ends_after_its_count(
    where: tuple[str, str], topic: str, produce: Produce
) -> None:
    produce(b"before\n", topic, "--quiet", *where)
    follower = subprocess.Popen(
        [*RMQ, "tail", topic, "--follow", "--from", "0", "--count", "2", *where],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    with follower.stdout as printed:
        assert printed.readline() == "before\n"
        produce(b"after\n", topic, "--quiet", *where)
        assert printed.readline() == "after\n"
    assert follower.wait(WAIT_S) == 0


def test_serve_says_where_it_serves_and_ends_when_asked_to(tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    broker = subprocess.Popen(
        [*RMQ, "serve", "--memory", "--port", "0", "--ready-file", str(ready)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        give_up_at = time.monotonic() + WAIT_S
        while not ready.exists() and time.monotonic() < give_up_at:
            time.sleep(0.01)
        written = json.loads(ready.read_text())
        environment = {**os.environ, "NAMESRV_ADDR": written["nameServer"]}
        listed = subprocess.run([*RMQ, "topic", "list"], env=environment, check=False)
    finally:
        broker.send_signal(signal.SIGTERM)
        printed, _ = broker.communicate(timeout=WAIT_S)
    assert (broker.returncode, listed.returncode, written["pid"]) == (0, 0, broker.pid)
    assert f"nameServer={written['nameServer']}" in printed
    assert f"endpoints={written['endpoints']}" in printed
    assert f"\nexport NAMESRV_ADDR={written['nameServer']}\n" in printed
    assert not ready.exists()


@pytest.mark.parametrize("start", ["99999", "2199-01-01T00:00:00Z"])
def test_a_start_behind_the_end_is_reported(
    start: str,
    where: tuple[str, str],
    topic: str,
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert produce(b"a\nb\n", topic, "-q", *where) == 0
    capfd.readouterr()
    assert main(["tail", topic, "--from", start, *where]) == 0
    assert capfd.readouterr() == (
        "",
        f"rmq: --from {start}: no queue has messages there, the longest ends at 2\n",
    )
    assert main(["tail", topic, "--from", "1", *where]) == 0
    assert main(["tail", topic, "--from", "latest", *where]) == 0
    assert capfd.readouterr() == ("b\n", "")


def test_a_missing_queue_is_named_with_those_that_exist(
    where: tuple[str, str], topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["tail", topic, "--queue", "99", *where]) == EXIT_FAILED
    assert f"topic {topic} has no queue 99: it has 0 to 0 at broker-a" in capfd.readouterr().err


def test_times_are_text_in_a_format(
    where: tuple[str, str], topic: str, produce: Produce, capfd: pytest.CaptureFixture[str]
) -> None:
    assert produce(b"a", topic, "-q", *where) == 0
    capfd.readouterr()
    assert main(["tail", topic, "--format", "%x %X %d", *where]) == 0
    stored, born, stored_ms = capfd.readouterr().out.split()
    assert parse_moment_ms(stored, 0) == int(stored_ms) >= parse_moment_ms(born, 0)
