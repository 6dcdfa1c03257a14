"""`rmq group`, `lag` and `dlq` against a running broker, over both of its protocols."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from rocketmq_arrow.encode.deflate import compress_bodies, compressed_flag
from rocketmq_broker.broker import Broker
from rocketmq_cli.commands.dlq import revived
from rocketmq_cli.main import main
from rocketmq_cli.messages.records import message_record
from rocketmq_cli.usage import EXIT_EXCEEDED, EXIT_FAILED, EXIT_USAGE, UsageError
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import CorruptRecordError
from rocketmq_wire.model import ConsumerInfo, Host, Message, StoredMessage, TopicConfig
from rocketmq_wire.requests.groups import (
    AssignmentReply,
    ConsumeMode,
    Heartbeat,
    QueryAssignment,
)

Produce = Callable[..., int]
Printed = Callable[[], list[dict[str, object]]]


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with open_cluster(ConnectionSettings(name_servers=(broker.name_server,))) as cluster:
        yield cluster


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str]) -> Printed:
    """The JSON lines printed since the last call."""
    return lambda: [json.loads(line) for line in capfd.readouterr().out.splitlines()]


@pytest.fixture
def group(cluster: Cluster, topic: str, produce: Produce, where: tuple[str, str]) -> str:
    """A group that has read three of its topic's ten messages."""
    produce(b"".join(b"%d\n" % number for number in range(10)), topic, "-q", *where)
    (queue,) = cluster.queues(topic)
    name = f"group-{topic}"[:100]
    assert cluster.commit(name, {queue: 3}) == {queue: None}
    return name


def test_topics_and_groups_are_made_with_attributes(
    broker: Broker,
    cluster: Cluster,
    topic: str,
    where: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    orders, readers = f"{topic}-c"[-100:], f"{topic}-r"[-100:]
    fifo = ("--attribute", "message.type=FIFO")
    assert main(["topic", "create", orders, *fifo, *where]) == 0
    assert main(["topic", "alter", orders, "--attribute", "reserve.time=9", *where]) == 0
    (config,) = cluster.topic_configs(orders).values()
    assert dict(config.attributes) == {"message.type": "FIFO", "reserve.time": "9"}
    # Groups are made by their brokers' own protocol.
    where = ("--name-server", broker.name_server)
    named = ("--attribute", "purpose=billing")
    assert main(["group", "create", readers, *named, *where]) == 0
    assert capsys.readouterr().out.endswith(f"group {readers} is created\n")
    assert main(["group", "create", readers, *named, *where]) == EXIT_USAGE
    assert "exists already" in capsys.readouterr().err


def test_a_group_s_members_pop_or_pull_a_topic_as_the_mode_says(
    broker: Broker, cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--name-server", broker.name_server)
    name = f"modes-{topic}"[:100]
    cluster.create_topic(TopicConfig(topic, 4, 4))
    set_mode = ("group", "set-consume-mode", name, topic)
    assert main([*set_mode, "pop", *where]) == EXIT_FAILED
    assert "ROCKETMQ_GROUP.NOT_FOUND" in capsys.readouterr().err
    assert main(["group", "create", name, *where]) == 0
    info = ConsumerInfo(name, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST")
    for number in range(3):
        cluster.ask_masters(Heartbeat(f"c@{number}", (), (info,)))

    def assigned() -> tuple[set[ConsumeMode], list[int]]:
        (reply,) = cluster.ask_masters(QueryAssignment(name, topic, "c@0")).values()
        assert isinstance(reply, AssignmentReply)
        assert reply.assignments is not None
        return {one.mode for one in reply.assignments}, [
            one.queue.index for one in reply.assignments
        ]

    for words, expected in (
        (("pop",), ({ConsumeMode.POP}, [-1])),
        (("pop", "--queues", "1"), ({ConsumeMode.POP}, [0, 1, 2])),
        (("pull",), ({ConsumeMode.PULL}, [0, 1])),
    ):
        assert main([*set_mode, *words, *where]) == 0
        assert assigned() == expected
    assert capsys.readouterr().out.endswith(f"members of group {name} pull topic {topic}\n")
    assert main([*set_mode, "pop", "--queues", "-1", *where]) == EXIT_USAGE
    assert main([*set_mode[:-1], "absent", "pop", *where]) == EXIT_FAILED


def test_nothing_is_made_for_lite_topics(
    broker: Broker, topic: str, where: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    chats = f"{topic}-l"[-100:]
    assert main(["topic", "create", chats, "--attribute", "message.type=LITE", *where]) != 0
    assert "message.type=LITE: lite topics are not supported" in capsys.readouterr().err
    bound = ("--attribute", f"lite.bind.topic={chats}", "--name-server", broker.name_server)
    assert main(["group", "create", f"{topic}-g"[-100:], *bound]) != 0
    assert "lite.bind.topic" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["x", "=y", "x=", "x=y,z=w"])
def test_an_attribute_has_a_name_and_a_value(text: str, where: tuple[str, str]) -> None:
    assert main(["topic", "create", "unmade", "--attribute", text, *where]) == EXIT_USAGE
    assert main(["group", "create", "unmade", "--attribute", text, *where]) == EXIT_USAGE


def test_a_group_is_listed_and_described_with_its_lag(
    group: str, topic: str, where: tuple[str, str], printed: Printed
) -> None:
    assert main(["group", "list", "--json", *where]) == 0
    assert {"group": group} in printed()
    assert main(["group", "describe", group, "--json", *where]) == 0
    (record,) = printed()
    assert (record["topic"], record["committed"], record["end"], record["lag"]) == (topic, 3, 10, 7)


def test_an_unknown_group_is_met_with_the_nearest_one(
    group: str, topic: str, where: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    wrong = group[:-1] + "#"
    for words, code in (
        (("group", "describe", wrong), EXIT_FAILED),
        (("dlq", "list", wrong), EXIT_FAILED),
        # A new group may be given its start.
        (("group", "reset-offsets", wrong, "--topic", topic, "--to", "earliest"), 0),
    ):
        assert main([*words, *where]) == code
        assert f"Did you mean '{group}'?" in capfd.readouterr().err
    assert main(["dlq", "list", group, *where]) == 0
    assert f"no dead letters of {group}" in capfd.readouterr().out


@pytest.mark.parametrize("name", ["bad g", "g" * 121, "", "g.h"])
def test_a_name_that_no_group_can_have_is_a_usage_error(
    name: str, where: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["group", "create", name, *where]) == EXIT_USAGE
    shown = capfd.readouterr().err
    assert f"{name!r} is not a valid name of a group: it has 1 to 120 letters, digits," in shown


def test_lag_has_an_exit_code_of_its_own_above_the_maximum(
    group: str, where: tuple[str, str], printed: Printed
) -> None:
    assert main(["lag", group, "--max", "7", "--json", *where]) == 0
    assert main(["lag", group, "--max", "6", "--json", *where]) == EXIT_EXCEEDED
    first, second = printed()
    assert first["lag"] == second["lag"] == 7
    assert first["oldest"] is not None
    assert main(["lag", group, "--watch", "1ms", *where]) == EXIT_USAGE


@pytest.mark.parametrize(
    ("words", "committed"),
    [
        (("--to", "earliest"), 0),
        (("--to", "latest"), 10),
        (("--to", "1d"), 0),
        (("--to-offset", "99"), 10),
        (("--to-offset", "5"), 5),
        (("--shift", "-2"), 1),
        (("--shift", "4"), 7),
    ],
)
def test_a_group_is_moved_only_by_who_says_execute(
    words: tuple[str, ...],
    committed: int,
    group: str,
    topic: str,
    where: tuple[str, str],
    cluster: Cluster,
    printed: Printed,
) -> None:
    (queue,) = cluster.queues(topic)
    move = ["group", "reset-offsets", group, "--topic", topic, *words, "--json", *where]
    assert main(move) == 0
    (planned,) = printed()
    assert (planned["committed"], planned["wanted"]) == (3, committed)
    assert planned["again"] == max(0, 3 - committed)
    assert planned["skipped"] == max(0, committed - 3)
    assert cluster.committed_offsets(group, [queue]) == {queue: 3}
    assert main([*move, "--execute"]) == 0
    assert cluster.committed_offsets(group, [queue]) == {queue: committed}


def test_a_group_is_deleted_only_by_who_says_yes(
    group: str, cluster: Cluster, broker: Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    where = ("--name-server", broker.name_server)
    assert main(["group", "delete", group, *where]) == EXIT_USAGE
    assert "Give --yes" in capfd.readouterr().err
    assert group in cluster.groups()
    assert main(["group", "delete", group, "--yes", *where]) == 0
    assert group not in cluster.groups()


def test_dead_letters_are_sent_again_once(
    topic: str,
    where: tuple[str, str],
    cluster: Cluster,
    printed: Printed,
    capfd: pytest.CaptureFixture[str],
) -> None:
    group = f"g-{topic}"[:80]
    dead_letters = f"%DLQ%{group}"
    cluster.create_topic(TopicConfig(dead_letters, 1, 1))
    with Producer(cluster.settings) as producer:
        for number in range(3):
            body = b"message %d" % number
            properties = {"RETRY_TOPIC": topic, "colour": "red", "RECONSUME_TIME": "16"}
            producer.send(Message(dead_letters, body, "tag", "key", properties))
    assert main(["dlq", "list", group, "--json", *where]) == 0
    assert printed()[0]["notReplayed"] == 3
    replay = ["dlq", "replay", group, *where]
    assert main(replay) == 0
    assert main([*replay, "--execute", "--to", f"{topic}x"]) == EXIT_FAILED
    assert f"Did you mean '{topic}'?" in capfd.readouterr().err
    assert main([*replay, "--execute", "--limit", "2"]) == 0
    assert main([*replay, "--execute"]) == 0
    assert main([*replay, "--execute"]) == 0
    capfd.readouterr()
    assert main(["tail", topic, "--format", r"%s %k %T\n", *where]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines == [f"message {number} key tag" for number in range(3)]


def test_a_replay_of_old_dead_letters_keeps_the_committed_offset(
    topic: str, where: tuple[str, str], cluster: Cluster, printed: Printed
) -> None:
    group = f"a-{topic}"[:80]
    dead_letters = f"%DLQ%{group}"
    cluster.create_topic(TopicConfig(dead_letters, 1, 1))
    with Producer(cluster.settings) as producer:
        for number in range(4):
            producer.send(Message(dead_letters, b"%d" % number, None, None, {"RETRY_TOPIC": topic}))
    replay = ["dlq", "replay", group, "--json", *where]
    assert main(replay) == 0
    assert main([*replay, "--execute", "--limit", "3"]) == 0
    assert main([*replay, "--execute", "--again", "--limit", "1"]) == 0
    assert main([*replay, "--execute"]) == 0
    assert printed() == [
        {"group": group, "messages": 4, "executed": False, "sent": {}},
        {"group": group, "messages": 3, "executed": True, "sent": {topic: 3}},
        {"group": group, "messages": 1, "executed": True, "sent": {topic: 1}},
        {"group": group, "messages": 1, "executed": True, "sent": {topic: 1}},
    ]
    assert main(["tail", topic, "--json", *where]) == 0
    assert [row["body"] for row in printed()] == ["0", "1", "2", "0", "3"]


def test_dead_letters_of_a_recreated_topic_do_not_count_as_sent(
    topic: str, where: tuple[str, str], cluster: Cluster, printed: Printed
) -> None:
    group = f"n-{topic}"[:80]
    dead_letters = f"%DLQ%{group}"
    cluster.create_topic(TopicConfig(dead_letters, 1, 1))
    (queue,) = cluster.queues(dead_letters)
    cluster.commit("rmq-dlq-replay", {queue: 7})
    with Producer(cluster.settings) as producer:
        producer.send(Message(dead_letters, b"new", None, None, {"RETRY_TOPIC": topic}))
    assert main(["dlq", "list", group, "--json", *where]) == 0
    assert printed()[0]["notReplayed"] == 1
    assert main(["dlq", "replay", group, "--json", "--execute", *where]) == 0
    assert main(["dlq", "list", group, "--json", *where]) == 0
    replayed, listed = printed()
    assert (replayed["messages"], listed["notReplayed"]) == (1, 0)


def test_what_was_replayed_has_its_own_properties_and_no_travel_marks() -> None:
    row_ids = {"PYSPARK_WRITE": "q/7/0", "PYSPARK_ROW": "0" * 32}
    row_ids |= {"INNER_MULTI_DISPATCH": "%LMQ%$t$a", "INNER_MULTI_QUEUE_OFFSET": "7"}
    own = {"TAGS": "t", "KEYS": "k", "colour": "red"}
    dead_letter = stored({"RETRY_TOPIC": "orders", **own, **row_ids})
    assert revived(dead_letter, None) == Message("orders", b"body", "t", "k", {"colour": "red"})
    assert revived(dead_letter, "elsewhere").topic == "elsewhere"
    with pytest.raises(UsageError, match="give --to"):
        revived(stored({}), None)


def test_a_dead_letter_of_a_lite_topic_is_replayed_as_an_ordinary_message_only() -> None:
    dead_letter = stored({"RETRY_TOPIC": "chats", "__LITE_TOPIC": "a"})
    with pytest.raises(UsageError, match="lite topics are not supported: give --to"):
        revived(dead_letter, None)
    assert revived(dead_letter, "elsewhere") == Message("elsewhere", b"body", None, None, {})


@pytest.mark.parametrize("codec", ["lz4", "zlib", "zstd"])
def test_compressed_dead_letters_are_shown_and_replayed_inflated(codec: str) -> None:
    packed = compress_bodies(pa.array([b"body" * 100]), codec, 1)[0][0].as_py()
    sys_flag = compressed_flag(codec)
    dead_letter = replace(stored({"RETRY_TOPIC": "orders"}), body=packed, sys_flag=sys_flag)
    assert revived(dead_letter, None).body == b"body" * 100
    assert message_record("broker-a", dead_letter)["body"] == "body" * 100
    torn = replace(dead_letter, body=packed[:-5])
    with pytest.raises(CorruptRecordError, match=r"torn|does not decompress"):
        revived(torn, None)
    assert "ROCKETMQ_CORRUPT_MESSAGE" in str(message_record("broker-a", torn)["body"])


def stored(properties: dict[str, str]) -> StoredMessage:
    host = Host(bytes(4), 1)
    return StoredMessage("%DLQ%g", b"body", properties, 0, 0, 0, 0, 0, 0, host, 0, host, 0, 0, 0, 0)


def test_a_group_without_dead_letters_is_reported(
    where: tuple[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["dlq", "replay", "nobody", *where]) == EXIT_FAILED
    assert "has no dead letters" in capfd.readouterr().err
