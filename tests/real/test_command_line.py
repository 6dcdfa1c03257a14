"""`rmq` against a real cluster of each version: verbs that operators use, by what they print."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest

from rocketmq_cli.main import main
from support.loader import Loader
from support.real_cluster import RealCluster

pytestmark = pytest.mark.short
Rmq = Callable[..., list[dict[str, object]]]
WAIT_S = 60.0


class Input:
    """Standard input with the given bytes."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)

    def isatty(self) -> bool:
        return False


@pytest.fixture
def rmq(broker: RealCluster, capfd: pytest.CaptureFixture[str]) -> Iterator[Rmq]:
    """Runs a command that must succeed; the JSON it printed, line by line."""

    def run(*words: str) -> list[dict[str, object]]:
        capfd.readouterr()
        assert main([*words, "--name-server", broker.name_server]) == 0, capfd.readouterr().err
        out = capfd.readouterr().out
        return [json.loads(line) for line in out.splitlines()] if "--json" in words else []

    yield run
    capfd.readouterr()


def until(found: Callable[[], bool]) -> None:
    """Brokers list and index what they acknowledged a little later."""
    give_up_at = time.monotonic() + WAIT_S
    while not found():
        assert time.monotonic() < give_up_at, "it did not come about"
        time.sleep(0.1)


def test_topics_are_made_changed_described_and_deleted(rmq: Rmq, topic: str) -> None:
    rmq("topic", "create", topic, "--queues", "2")
    assert {"topic": topic} in rmq("topic", "list", "--json")
    assert len(rmq("topic", "describe", topic, "--json")) == 2
    rmq("topic", "alter", topic, "--queues", "3")
    until(lambda: len(rmq("topic", "describe", topic, "--json")) == 3)
    rmq("topic", "delete", topic, "--yes")
    assert {"topic": topic} not in rmq("topic", "list", "--json")


def test_brokers_and_topics_are_shown_with_versions_and_rates(
    rmq: Rmq, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In its first second a broker has no rates and answers with an error.
    until(lambda: bool(_rows(rmq, "cluster")))
    masters = [row for row in rmq("cluster", "--json") if row["role"] == "master"]
    assert masters
    for row in masters:
        assert str(row["version"])[:2] in ("4.", "5.")
    until(lambda: all(isinstance(row["writeRate"], float) for row in rmq("cluster", "--json")))
    rmq("topic", "create", topic, "--queues", "4")
    monkeypatch.setattr(sys, "stdin", Input(b"a:1\nb:2\na:3\n"))
    rmq("produce", topic, "--key-separator", ":", "--group-key", "%k", "-q")
    until(lambda: len(rmq("tail", topic, "--json")) == 3)
    rows = rmq("tail", topic, "--json")
    assert len({row["queue"] for row in rows if row["keys"] == "a"}) == 1
    (long,) = [row for row in rmq("topic", "list", "--long", "--json") if row["topic"] == topic]
    assert long["messages"] == 3


def test_what_is_produced_is_tailed_and_found(
    rmq: Rmq, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rmq("topic", "create", topic, "--queues", "1")
    lines = [{"body": f"body {n}", "keys": f"k{n} all", "tags": "t"} for n in range(50)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    monkeypatch.setattr(sys, "stdin", Input(text.encode()))
    rmq("produce", topic, "--json", "--property", "colour=röd", "-q")
    until(lambda: len(rmq("tail", topic, "--json")) == 50)
    rows = rmq("tail", topic, "--json")
    assert [(row["body"], row["keys"]) for row in rows] == [(r["body"], r["keys"]) for r in lines]
    assert rows[7]["properties"]["colour"] == "röd"  # type: ignore[index]
    get = ("message", "get", topic)
    until(lambda: len(_rows(rmq, *get, "--key", "k7")) == 1)
    (by_key,) = _rows(rmq, *get, "--key", "k7")
    (by_id,) = _rows(rmq, *get, "--id", str(by_key["id"]))
    (by_offset,) = _rows(rmq, *get, "--queue", "0", "--offset", "7")
    (by_offset_id,) = _rows(rmq, *get, "--id", str(by_key["offsetId"]))
    assert by_key == by_id == by_offset == by_offset_id
    assert (by_key["body"], by_key["offset"]) == ("body 7", 7)


def _rows(rmq: Rmq, *words: str) -> list[dict[str, object]]:
    """What a command lists; nothing if it fails."""
    try:
        return rmq(*words, "--json")
    except AssertionError:
        return []


@pytest.fixture
def put(rmq: Rmq, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sends rows as `rmq produce --json` reads them."""

    def run(topic: str, *rows: dict[str, object]) -> None:
        text = "".join(json.dumps(row) + "\n" for row in rows)
        monkeypatch.setattr(sys, "stdin", Input(text.encode()))
        rmq("produce", topic, "--json", "-q")

    return run


def bodies(rows: list[dict[str, object]]) -> list[object]:
    return [row["body"] for row in rows]


def test_tail_selects_by_tags_and_by_time_and_a_group_is_moved_to_a_time(
    rmq: Rmq, loader: Loader, topic: str, group: str, put: Callable[..., None]
) -> None:
    (queue,) = loader.create(topic, 1)
    put(topic, {"body": "early", "tags": "a"})
    until(lambda: len(rmq("tail", topic, "--json")) == 1)
    began_ms = time.time_ns() // 1_000_000
    until(lambda: time.time_ns() // 1_000_000 > began_ms)
    put(topic, {"body": "late", "tags": "b"}, {"body": "later", "tags": "c"})
    until(lambda: len(rmq("tail", topic, "--json")) == 3)
    stored = str(rmq("tail", topic, "--json")[1]["stored"])
    moment = datetime.fromisoformat(stored.replace("Z", "+00:00"))
    milliseconds = str(round(moment.timestamp() * 1_000))
    assert bodies(rmq("tail", topic, "--tags", "a || c", "--json")) == ["early", "later"]
    for text in (stored, milliseconds):
        assert bodies(rmq("tail", topic, "--from", text, "--json")) == ["late", "later"]
        assert bodies(rmq("tail", topic, "--to", text, "--json")) == ["early"]
    assert bodies(rmq("tail", topic, "--from", "1h", "--to", "latest", "--json"))[0] == "early"
    assert bodies(rmq("tail", topic, "--from", "-1", "--json")) == ["later"]
    loader.cluster.commit(group, {queue: 3})
    words = ("group", "reset-offsets", group, "--topic", topic, "--to", stored)
    assert [row["wanted"] for row in rmq(*words, "--json")] == [1]
    rmq(*words, "--execute")
    assert [row["committed"] for row in rmq("group", "describe", group, "--json")] == [1]


def test_delayed_rows_come_later(
    rmq: Rmq, loader: Loader, topic: str, put: Callable[..., None]
) -> None:
    loader.create(topic, 1)
    put(topic, {"body": "delayed", "properties": {"DELAY": "2"}}, {"body": "now"})
    until(lambda: bodies(rmq("tail", topic, "--json")) == ["now"])
    until(lambda: bodies(rmq("tail", topic, "--json")) == ["now", "delayed"])


def test_follow_goes_on_through_new_queues_and_a_new_topic(
    rmq: Rmq, broker: RealCluster, topic: str, put: Callable[..., None]
) -> None:
    rmq("topic", "create", topic, "--queues", "1")
    put(topic, {"body": "first"})
    until(lambda: len(rmq("tail", topic, "--json")) == 1)
    words = ("tail", topic, "--follow", "--from", "earliest", "--count", "5")
    follower = subprocess.Popen(
        [sys.executable, "-m", "rocketmq_cli", *words, "--name-server", broker.name_server],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    assert follower.stderr is not None
    try:
        assert follower.stdout.readline() == "first\n"
        put(topic, {"body": "second"})
        assert follower.stdout.readline() == "second\n"
        rmq("topic", "alter", topic, "--queues", "2")
        put(topic, {"body": "third", "queue": 1})
        assert follower.stdout.readline() == "third\n"
        rmq("topic", "delete", topic, "--yes")
        while "is gone" not in follower.stderr.readline():
            pass
        rmq("topic", "create", topic, "--queues", "1")
        put(topic, {"body": "fourth"}, {"body": "fifth"})
        assert [follower.stdout.readline() for _ in range(2)] == ["fourth\n", "fifth\n"]
        assert follower.wait(WAIT_S) == 0
    finally:
        follower.kill()
        follower.communicate()


def test_a_group_is_described_moved_and_deleted(
    rmq: Rmq, broker: RealCluster, loader: Loader, topic: str, group: str
) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, 20)
    loader.cluster.commit(group, dict.fromkeys(queues, 5))
    # Brokers of 4.9 list groups with settings, and a commit makes none there.
    assert ({"group": group} in rmq("group", "list", "--json")) is not broker.is_4
    assert [row["lag"] for row in rmq("group", "describe", group, "--json")] == [15, 15]
    (lag,) = rmq("lag", group, "--json")
    assert (lag["topic"], lag["lag"]) == (topic, 30)
    assert main(["lag", group, "--max", "29", "--name-server", broker.name_server]) == 3
    rmq("group", "reset-offsets", group, "--topic", topic, "--to-offset", "12", "--execute")
    assert [row["committed"] for row in rmq("group", "describe", group, "--json")] == [12, 12]
    rmq("group", "delete", group, "--yes")
    assert {"group": group} not in rmq("group", "list", "--json")


def test_dead_letters_go_back_to_their_topic(
    rmq: Rmq, loader: Loader, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader.create(topic, 1)
    loader.create(f"%DLQ%{group}", 1)
    dead_letter = {"body": "late", "properties": {"RETRY_TOPIC": topic, "RECONSUME_TIME": "16"}}
    monkeypatch.setattr(sys, "stdin", Input(json.dumps(dead_letter).encode()))
    rmq("produce", f"%DLQ%{group}", "--json", "-q")
    until(lambda: [row["notReplayed"] for row in rmq("dlq", "list", group, "--json")] == [1])
    rmq("dlq", "replay", group, "--execute")
    until(lambda: [row["body"] for row in rmq("tail", topic, "--json")] == ["late"])
    assert rmq("dlq", "list", group, "--json")[0]["notReplayed"] == 0


def test_check_and_bench_work(rmq: Rmq, loader: Loader, topic: str) -> None:
    loader.create(topic, 1)
    checked = rmq("check", "--no-spark", "--topic", topic, "--json")
    states = {row["check"]: row["state"] for row in checked}
    assert states["cluster"] == states["topic"] == "ok"
    sent, read = rmq("bench", "--messages", "5000", "--yes", "--json")
    assert sent["messages"] == read["messages"] == 5_000
