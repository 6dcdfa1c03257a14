"""Damaged files of `config` are named with the remedy; RocketMQ's backups are used."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from rocketmq_broker import Broker, BrokerConfig
from rocketmq_broker.storage.adoption.adopt import adopt_lmq_offsets
from rocketmq_broker.storage.disk.config_files import (
    CONSUMER_OFFSETS,
    GROUPS,
    LMQ_OFFSETS,
    TOPICS,
    Configs,
)
from rocketmq_broker.storage.disk.files import MemoryFiles
from rocketmq_broker.storage.errors import ConfigFileError
from rocketmq_client.cluster import open_cluster
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import raise_first
from rocketmq_wire.model import Message, TopicConfig

DAMAGE = {
    "torn": lambda good: good[: len(good) // 2],
    "empty": lambda _: b"",
    "zeros": lambda good: bytes(len(good)),
    "no text": lambda _: b"\xff\xfe{",
    "a list": lambda _: b"[1]",
    "no table": lambda _: b'{"topicConfigTable":3,"offsetTable":3,"subscriptionGroupTable":3}',
    "no version": lambda _: b'{"dataVersion":"x"}',
    "no counter": lambda _: b'{"dataVersion":{"counter":"x"}}',
}


def broker(directory: Path) -> Broker:
    return Broker(BrokerConfig(data_dir=str(directory), grpc=False))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The directory of a stopped broker with a topic, a message and a group."""
    path = tmp_path / "data"
    with broker(path) as running:
        settings = ConnectionSettings(name_servers=(running.name_server,))
        with open_cluster(settings) as cluster, Producer(cluster) as producer:
            cluster.create_topic(TopicConfig("orders", 1, 1))
            producer.send(Message("orders", b"x"))
            (queue,) = cluster.queues("orders")
            assert cluster.commit("readers", {queue: 1}) == {queue: None}
    return path


@pytest.mark.parametrize("name", [TOPICS, CONSUMER_OFFSETS, GROUPS])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_named_with_the_remedy(directory: Path, name: str, damage: str) -> None:
    file = directory / "config" / name
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    words = rf"ROCKETMQ_STORAGE.CONFIG\] file=config/{name}: .*move it away.*rmq fsck"
    with pytest.raises(ConfigFileError, match=words):
        broker(directory).start()
    file.unlink()
    with broker(directory):
        pass


@pytest.mark.parametrize(
    "table", ['{"t@g":3}', '{"t@g":{"0":"--5"}}', '{"t@g":{"0":"x"}}', '{"t@g":{"x":1}}']
)
def test_a_committed_offset_that_is_no_number_is_named(directory: Path, table: str) -> None:
    (directory / "config" / CONSUMER_OFFSETS).write_text(f'{{"offsetTable":{table}}}')
    with pytest.raises(ConfigFileError, match="t@g"):
        broker(directory).start()


@pytest.mark.parametrize("bad", ['{"0":"x"}', '{"0":"--5"}', '{"x":1}', '{"0":"-"}', '{"0":1.5}'])
def test_a_committed_offset_that_is_no_number_is_not_adopted(bad: str) -> None:
    files = MemoryFiles()
    files.make_directory("config")
    good = {"offsetTable": {"orders@g": {"0": 7}}}
    Configs(files).save(CONSUMER_OFFSETS, good)
    text = f'{{"dataVersion":{{"timestamp":1700000000000}},"offsetTable":{{"t@g":{bad}}}}}'
    files.open(f"config/{LMQ_OFFSETS}", create=True).pwrite(text.encode(), 0)
    configs = Configs(files)
    with pytest.raises(ConfigFileError, match=rf"file=config/{LMQ_OFFSETS}: t@g"):
        adopt_lmq_offsets(configs)
    assert configs.load(CONSUMER_OFFSETS) == good


def test_an_unreadable_file_is_named(directory: Path) -> None:
    file = directory / "config" / CONSUMER_OFFSETS
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigFileError, match="Is a directory"):
        broker(directory).start()


def test_without_topics_json_a_topic_is_created_again_with_its_messages(
    directory: Path,
) -> None:
    (directory / "config" / TOPICS).unlink()
    with broker(directory) as running:
        settings = ConnectionSettings(name_servers=(running.name_server,))
        with open_cluster(settings) as cluster:
            cluster.create_topic(TopicConfig("orders", 1, 1))
            (queue,) = cluster.queues("orders")
            (bounds,) = raise_first(cluster.bounds([queue])).values()
            assert (bounds.start, bounds.end) == (0, 1)


@pytest.mark.parametrize("damage", ["{", "", None])
def test_rocketmqs_backup_is_used_until_the_first_save(
    damage: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    files = MemoryFiles()
    files.make_directory("config")
    before = {"offsetTable": {"orders@g": {"0": 7}}}
    files.open(f"config/{CONSUMER_OFFSETS}.bak", create=True).pwrite(json.dumps(before).encode(), 0)
    if damage is not None:
        files.open(f"config/{CONSUMER_OFFSETS}", create=True).pwrite(damage.encode(), 0)
    configs = Configs(files)
    with caplog.at_level(logging.WARNING):
        assert configs.load(CONSUMER_OFFSETS) == before
    assert f"config/{CONSUMER_OFFSETS}.bak is used" in caplog.text
    configs.save(CONSUMER_OFFSETS, {"offsetTable": {}})
    assert configs.load(CONSUMER_OFFSETS) == {"offsetTable": {}}
    # After the save the backup would be older.
    assert files.names("config") == [CONSUMER_OFFSETS]


def test_a_damaged_backup_is_not_used() -> None:
    files = MemoryFiles()
    files.make_directory("config")
    for ending in ("", ".bak"):
        files.open(f"config/{CONSUMER_OFFSETS}{ending}", create=True).pwrite(b"{", 0)
    with pytest.raises(ConfigFileError, match=rf"file=config/{CONSUMER_OFFSETS}: not JSON"):
        Configs(files).load(CONSUMER_OFFSETS)


def test_torn_addresses_are_forgotten(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    (directory / "config" / "addresses.json").write_text('{"port": 12')
    with broker(directory):
        assert "ports of the last run are not known" in caplog.text
