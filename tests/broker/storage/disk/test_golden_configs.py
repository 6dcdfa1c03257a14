"""Tables that real brokers wrote are read."""

from __future__ import annotations

import pytest

from rocketmq_broker.engine.core.topics import Topics
from rocketmq_broker.engine.groups.committed_offsets import CommittedOffsets
from rocketmq_broker.engine.groups.consumer_groups import Groups
from rocketmq_wire import fastjson
from rocketmq_wire.model import QueueId, TopicConfig
from support.golden_frames import QUEUE, VERSIONS, golden_configs

pytestmark = pytest.mark.parametrize("version", VERSIONS)


def loaded(version: str, name: str) -> dict[str, object]:
    value = fastjson.loads(golden_configs(version)[name].encode())
    assert isinstance(value, dict)
    return value


def test_topics_are_read(version: str) -> None:
    stored = loaded(version, "topics.json")
    topics = Topics(stored, lambda *_: None, auto_create=False, auto_create_queues=4)
    assert topics.get("Golden") == TopicConfig("Golden", 1, 1)
    assert topics.get("GoldenSent") == TopicConfig("GoldenSent", 8, 8)
    assert topics.version > 0


def test_committed_offsets_are_read(version: str) -> None:
    committed = CommittedOffsets(loaded(version, "consumerOffset.json"))
    assert committed.get("GoldenGroup", QUEUE) == 3
    assert committed.get("GoldenGroup", QueueId("Golden", "broker-a", 1)) is None
    assert committed.topics("GoldenGroup") == ("Golden",)


def test_groups_are_read(version: str) -> None:
    groups = Groups(loaded(version, "subscriptionGroup.json"), lambda *_: None, auto_create=False)
    assert "GoldenGroup" in groups
    assert groups.retry_limits("GoldenGroup") == (1, 16)
