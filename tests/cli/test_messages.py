"""`rmq message`, `tail --json|--format` and `produce --json` against a running broker."""

from __future__ import annotations

import json
import time
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_broker.broker import Broker
from rocketmq_cli.main import main
from rocketmq_cli.messages.lines import body_of, parse_line
from rocketmq_cli.messages.rendering import Format, json_lines
from rocketmq_cli.usage import EXIT_FAILED, EXIT_USAGE, UsageError
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import PERMISSION_READ, BrokerAddresses, QueueId, TopicConfig
from rocketmq_wire.requests.topics import CreateTopic, ListTopicConfigs, TopicConfigsReply
from support.scripted_broker import ScriptedBroker
from support.simulated_queue import SimulatedQueue

WAIT_S = 20.0
_MS = timedelta(milliseconds=1)
_TIME = pa.timestamp("us", tz="UTC")
_PROPERTIES = pa.map_(pa.string(), pa.string())
Produce = Callable[..., int]


@pytest.fixture
def here(broker: Broker) -> tuple[str, str]:
    return "--name-server", broker.name_server


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """The lines printed since the last call."""
    return lambda: capfd.readouterr().out.splitlines()


def test_json_that_is_tailed_can_be_produced_again(
    topic: str, where: tuple[str, str], produce: Produce, printed: Callable[[], list[str]]
) -> None:
    rows: list[dict[str, Any]] = [
        {"body": "first", "keys": "a b", "tags": "t", "properties": {"colour": "röd"}},
        {"bodyBase64": "/wA="},
        {"body": {"nested": [1, 2]}},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    assert produce(lines.encode(), topic, "--json", "-q", *where) == 0
    assert main(["tail", topic, "--json", *where]) == 0
    tailed = printed()
    assert produce("\n".join(tailed).encode(), topic, "--json", "-q", *where) == 0
    assert main(["tail", topic, "--json", "--from", "-3", *where]) == 0
    again = [json.loads(line) for line in printed()]
    for row, first, second in zip(rows, map(json.loads, tailed), again, strict=True):
        assert first["offset"] + 3 == second["offset"]
        assert first["id"] != second["id"]
        for name in ("body", "bodyBase64", "keys", "tags"):
            assert first.get(name) == second.get(name)
        assert first["properties"].get("colour") == row.get("properties", {}).get("colour")
    assert again[1]["bodyBase64"] == "/wA="
    assert again[2]["body"] == '{"nested":[1,2]}'


def test_a_misspelt_field_is_reported_once_and_one_message_is_one(
    topic: str,
    where: tuple[str, str],
    produce: Produce,
    capfd: pytest.CaptureFixture[str],
) -> None:
    row = b'{"body": "x", "tag": "y", "customer": 1}\n'
    assert produce(row, topic, "--json", *where) == 0
    first, last = capfd.readouterr().err.splitlines()
    assert first == "rmq: line 1: the field 'tag' is ignored: did you mean 'tags'?"
    assert last.startswith("sent 1 message, ")
    assert produce(row * 3, topic, "--json", *where) == 0
    first, last = capfd.readouterr().err.splitlines()
    assert "'tag'" in first
    assert last.startswith("sent 3 messages, ")


def test_files_are_sent_one_after_the_other_with_the_given_properties(
    topic: str, where: tuple[str, str], tmp_path: Path, printed: Callable[[], list[str]]
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text(f"{name} a\n{name} b\n")
    files = [str(tmp_path / name) for name in ("one", "two")]
    words = ["produce", topic, *files, "--property", "region=eu", "--rate", "10000", *where]
    assert main(words) == 0
    assert main(["tail", topic, "--format", r"%s|%o\n", *where]) == 0
    assert printed() == ["one a|0", "one b|1", "two a|2", "two b|3"]
    assert main(["produce", topic, files[0], "missing", *where]) == EXIT_USAGE


def test_a_message_is_found_by_key_id_and_offset(
    topic: str,
    here: tuple[str, str],
    produce: Produce,
    printed: Callable[[], list[str]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    for number in range(3):
        produce(b"body %d\n" % number, topic, "--keys", f"k{number} all", "-q", *here)

    # The key index follows the log; nobody promises how closely.
    give_up_at = time.monotonic() + WAIT_S
    while main(["message", "get", topic, "--key", "k2", *here]) and time.monotonic() < give_up_at:
        time.sleep(0.01)
    printed()

    def get(*words: str) -> list[dict[str, object]]:
        assert main(["message", "get", topic, *words, "--json", *here]) == 0
        return [json.loads(line) for line in printed()]

    (found,) = get("--key", "k1")
    assert (found["body"], found["offset"], found["keys"]) == ("body 1", 1, "k1 all")
    assert get("--id", str(found["id"])) == get("--id", str(found["offsetId"])) == [found]
    assert get("--queue", "0", "--offset", "1") == [found]
    assert len(get("--key", "all", "--limit", "2")) == 2
    assert main(["message", "get", topic, "--key", "k", *here]) == EXIT_FAILED
    assert "no message k in" in capfd.readouterr().err


def test_every_token_of_a_format_is_rendered_for_whole_batches() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "body": pa.array([b"x\xff", b"", None], pa.binary()),
            "keys": pa.array(["k", None, "q"], pa.string()),
            "queueId": pa.array([1, 2, 3], pa.int32()),
            "storeTimestamp": pa.array([1_500_000, 0, 7_000], pa.timestamp("us", tz="UTC")),
            "properties": pa.array([[("a", "b")], [], []], pa.map_(pa.string(), pa.string())),
        }
    )
    rendered = b"".join(Format(r"%p:%k %s %S %d %h %%\t\n").render(batch.slice(0, 2)))
    assert rendered == b'1:k x\xff 2 1500 {"a": "b"} %\t\n2:  0 0 {} %\t\n'
    assert b"".join(Format(r"-\n").render(batch.slice(1))) == b"-\n-\n"


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=20), st.integers(0, 19))
def test_bodies_are_rendered_as_one_by_one(bodies: list[bytes], start: int) -> None:
    batch = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())}).slice(start)
    expected = b"".join(body + b"\n" for body in bodies[start:])
    assert b"".join(Format(r"%s\n").render(batch)) == expected


def test_json_of_a_part_of_a_batch_is_that_of_its_rows() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "keys": pa.array(["k", None, "ö"], pa.string()),
            "storeTimestamp": pa.array([1_500_000, None, 1_700_000_000_123_999], _TIME),
            "properties": pa.array([[("a", "b")], [], [("c", "d"), ("e", "f")]], _PROPERTIES),
            "body": pa.array([b"x", b"\xff", b"z"], pa.binary()),
        }
    )
    rows: list[dict[str, object]] = [
        {"keys": "k", "stored": "1970-01-01T00:00:01.500Z", "properties": {"a": "b"}},
        {"keys": None, "stored": None, "properties": {}},
        {
            "keys": "ö",
            "stored": "2023-11-14T22:13:20.123Z",
            "properties": {"c": "d", "e": "f"},
        },
    ]
    bodies: list[dict[str, object]] = [{"body": "x"}, {"bodyBase64": "/w=="}, {"body": "z"}]
    wanted = [{**row, **body} for row, body in zip(rows, bodies, strict=True)]
    for start in range(3):
        assert parsed(batch.slice(start)) == wanted[start:]
        assert parsed(batch.slice(0, start)) == wanted[:start]


def parsed(batch: pa.RecordBatch) -> list[dict[str, object]]:
    return [json.loads(line) for line in b"".join(json_lines(batch)).split(b"\n") if line]


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from(
    ['"', "\\", '\\"', "a\x7fb", "\u2028", "\x00", "\n", "{}", "null", "ö😀"]
)


@given(
    st.lists(
        st.tuples(
            st.none() | _TEXTS,
            st.none() | st.integers(0, 4_000_000_000_000),
            st.dictionaries(_TEXTS, _TEXTS, max_size=3),
            _TEXTS.map(str.encode) | st.binary(max_size=4),
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 4),
)
def test_json_of_any_batch_says_what_is_in_it(
    rows: list[tuple[str | None, int | None, dict[str, str], bytes]], start: int
) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "keys": pa.array([row[0] for row in rows], pa.string()),
            "queueOffset": pa.array([row[1] for row in rows], pa.int64()),
            "storeTimestamp": pa.array(
                [None if row[1] is None else row[1] * 1_000 for row in rows], _TIME
            ),
            "properties": pa.array([list(row[2].items()) for row in rows], _PROPERTIES),
            "body": pa.array([row[3] for row in rows], pa.binary()),
        }
    ).slice(start)
    for row, found in zip(rows[start:], parsed(batch), strict=True):
        assert (found["keys"], found["offset"], found["properties"]) == row[:3]
        moment = found["stored"]
        if row[1] is None:
            assert moment is None
        else:
            assert isinstance(moment, str)
            read = datetime.fromisoformat(moment.replace("Z", "+00:00"))
            assert (read - datetime(1970, 1, 1, tzinfo=timezone.utc)) // _MS == row[1]
        if "body" in found:
            assert str(found["body"]).encode() == row[3]
        else:
            assert b64decode(str(found["bodyBase64"])) == row[3]


@pytest.mark.parametrize("text", ["%q", "\\q", "%", "abc\\"])
def test_a_wrong_format_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Format(text)


@given(st.binary(max_size=30))
def test_a_body_in_json_is_the_very_same_when_read_again(body: bytes) -> None:
    batch = pa.RecordBatch.from_pydict({"body": pa.array([body], pa.binary())})
    (line,) = json_lines(batch)
    if body:
        assert body_of(parse_line(bytes(line), 1), 1) == body


@pytest.mark.parametrize("line", [b"{", b"[]", b"{}", b'{"body":""}', b'{"bodyBase64":"*"}'])
def test_a_line_that_is_no_message_is_refused_with_its_number(line: bytes) -> None:
    with pytest.raises(UsageError, match="line 7"):
        body_of(parse_line(line, 7), 7)


def test_a_topic_is_altered_and_deleted(
    topic: str, here: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "alter", topic, "--queues", "3", "--permission", "r", *here]) == 0
    assert "3 queues, permission r" in capfd.readouterr().out
    assert main(["topic", "alter", topic, *here]) == EXIT_USAGE
    assert main(["topic", "delete", topic, *here]) == EXIT_USAGE
    assert main(["topic", "delete", topic, "--yes", *here]) == 0
    assert main(["topic", "describe", topic, *here]) == EXIT_FAILED


def test_bench_measures_and_leaves_no_topic_behind(
    here: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--messages", "2000", "--yes", "--json", *here]) == 0
    sent, read = map(json.loads, capfd.readouterr().out.splitlines())
    assert (sent["messages"], read["messages"]) == (2_000, 2_000)
    assert main(["topic", "list", *here]) == 0
    assert "rmq-bench" not in capfd.readouterr().out


def test_creating_a_topic_again_changes_only_what_is_given(
    topic: str, broker: Broker, here: tuple[str, str], printed: Callable[[], list[str]]
) -> None:
    with open_cluster(ConnectionSettings(name_servers=(broker.name_server,))) as cluster:
        kept = replace(cluster.topic_config(topic), permission=PERMISSION_READ, is_ordered=True)
        cluster.create_topic(kept)
        printed()
        assert main(["topic", "create", topic, "--json", *here]) == 0
        assert cluster.topic_config(topic) == kept
        assert main(["topic", "create", topic, "--queues", "3", "--json", *here]) == 0
        wider = replace(kept, read_queue_count=3, write_queue_count=3)
        assert cluster.topic_config(topic) == wider
        assert main(["topic", "alter", topic, "--permission", "rw", "--json", *here]) == 0
        assert cluster.topic_config(topic) == replace(wider, permission=kept.permission | 2)
    reported = [json.loads(line) for line in printed()]
    assert [(row["readQueues"], row["permission"]) for row in reported] == [
        (1, "r"),
        (3, "r"),
        (3, "rw"),
    ]
    assert reported[0].keys() == {"topic", "broker", "readQueues", "writeQueues", "permission"}


def test_a_topic_is_not_created_over_one_whose_broker_does_not_tell(
    capfd: pytest.CaptureFixture[str],
) -> None:
    queues = {QueueId("orders", f"broker-{b}", 0): SimulatedQueue(0, 1) for b in "ab"}
    with ScriptedBroker(queues) as broker:
        broker.others = (BrokerAddresses("broker-b", "DefaultCluster", {0: "127.0.0.1:1"}),)
        config = TopicConfig("orders", 1, 1, permission=PERMISSION_READ)
        broker.script = lambda request: (
            TopicConfigsReply((config,)) if isinstance(request, ListTopicConfigs) else None
        )
        where = ("--name-server", broker.address)
        for verb in (("create",), ("alter", "--queues", "2")):
            assert main(["topic", verb[0], "orders", *verb[1:], *where]) == EXIT_FAILED
            assert "broker broker-b has topic orders" in capfd.readouterr().err
        assert not any(isinstance(request, CreateTopic) for request in broker.requests)


def test_deletions_are_reported_as_json(
    topic: str,
    broker: Broker,
    here: tuple[str, str],
    produce: Produce,
    printed: Callable[[], list[str]],
) -> None:
    produce(b"one\ntwo\n", topic, "-q", *here)
    with open_cluster(ConnectionSettings(name_servers=(broker.name_server,))) as cluster:
        cluster.commit(f"g-{topic}", dict.fromkeys(cluster.queues(topic), 1))
    printed()
    assert main(["group", "delete", f"g-{topic}", "--yes", "--json", *here]) == 0
    assert main(["topic", "delete", topic, "--yes", "--json", *here]) == 0
    assert [json.loads(line) for line in printed()] == [
        {"group": f"g-{topic}", "deleted": True},
        {"topic": topic, "deleted": True, "messages": 2},
    ]
