"""What `--json` prints has the fields that docs/command-line.md lists, and no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_cli.main import main
from rocketmq_client.cluster import open_cluster
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import Message, TopicConfig
from support.documented_fields import documented

Produce = Callable[..., int]


def test_every_verb_prints_the_fields_that_are_documented(
    broker: Broker, produce: Produce, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    settings = ConnectionSettings(name_servers=(broker.name_server,))
    where = ("--name-server", broker.name_server)
    with open_cluster(settings) as cluster:
        cluster.create_topic(TopicConfig("shapes", 1, 1))
        cluster.create_topic(TopicConfig("%DLQ%shaped", 1, 1))
        cluster.commit("shaped", dict.fromkeys(cluster.queues("shapes"), 0))
        with Producer(settings) as producer:
            producer.send(Message("%DLQ%shaped", b"x", None, None, {"RETRY_TOPIC": "shapes"}))
    assert produce(b"one\n", "shapes", "-q", *where) == 0
    (tmp_path / "offsets").mkdir()
    offsets = {"shapes": {"broker-a": {"0": 1}}}
    offset = {"version": 1, "births": {}, "offsets": offsets, "starts": offsets}
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(offset)}")
    commands = {
        "cluster": (),
        "topic list": (),
        "topic list --long": (),
        "topic describe": ("shapes",),
        "topic create": ("shapes",),
        "topic alter": ("shapes", "--permission", "rw"),
        "group create": ("shaped-too",),
        "group set-consume-mode": ("shaped-too", "shapes", "pop"),
        "group list": (),
        "group describe": ("shaped",),
        "group reset-offsets": ("shaped", "--topic", "shapes", "--to", "earliest"),
        "lag": ("shaped",),
        "tail": ("shapes",),
        "message get": ("shapes", "--queue", "0", "--offset", "0"),
        "dlq list": ("shaped",),
        "dlq replay": ("shaped",),
        "checkpoint show": (str(tmp_path),),
        "check": ("--no-spark",),
        "bench": ("--messages", "10", "--yes"),
        "group delete": ("shaped", "--yes"),
        "topic delete": ("shapes", "--yes"),
    }
    pages = documented()
    # A directory is verified in test_fsck.
    assert set(pages) == {*commands, "fsck"}
    capfd.readouterr()
    for verb, words in commands.items():
        there = () if verb == "checkpoint show" else where
        assert main([*verb.split(), *words, "--json", *there]) == 0, capfd.readouterr().err
        rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        assert rows, verb
        assert [list(row) for row in rows] == [pages[verb]] * len(rows), verb
