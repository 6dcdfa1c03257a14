"""The messages page: newest first, page by page, while new messages arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_cli.status_page.browsing import Browsed, Cursor, browse
from rocketmq_cli.usage import UsageError
from rocketmq_client import (
    Cluster,
    ConnectionSettings,
    Message,
    Producer,
    TopicConfig,
    open_cluster,
)

PAGES_MAX = 50


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with open_cluster(ConnectionSettings(name_servers=(broker.name_server,))) as cluster:
        yield cluster


def fill(cluster: Cluster, topic: str, counts: list[int]) -> None:
    """Store messages batch by batch; a batch shares a millisecond, batches take turns in queues."""
    queues = cluster.queues(topic)
    with Producer(cluster) as producer:
        for turn, count in enumerate(counts):
            batch = [Message(topic, b"%d" % turn)] * count
            producer.send_batch(queues[turn % len(queues)], batch)


def walk(cluster: Cluster, wanted: dict[str, str]) -> Iterator[Browsed]:
    """A page and all older ones."""
    for _ in range(PAGES_MAX):
        page = browse(cluster, wanted)
        yield page
        if page.older is None:
            return
        wanted = {**wanted, "older": str(page.older)}
    raise AssertionError("the pages do not end")


@pytest.mark.parametrize("queue_count", [1, 3, 64])
def test_pages_show_every_message_once_newest_first(cluster: Cluster, queue_count: int) -> None:
    topic = f"walked-{queue_count}"
    cluster.create_topic(TopicConfig(topic, queue_count, queue_count))
    fill(cluster, topic, [1, 60, 2, 3, 1, 1, 25, 1, 40, 1, 1, 5, 70, 1, 1, 1])
    shown = []
    for page in walk(cluster, {"topic": topic}):
        assert 0 < len(page.records) <= 50
        assert len(page.records) == 50 or page.older is None
        shown += [(r["stored"], r["queue"], r["offset"]) for r in page.records]
        # Messages that arrive meanwhile do not move the later pages.
        fill(cluster, topic, [3, 3, 3])

    def order(at: tuple[Any, Any, Any]) -> tuple[float, int, int]:
        stored, queue, offset = at
        return -stored.timestamp(), queue, -offset

    assert shown == sorted(shown, key=order)
    assert len(shown) == len(set(shown)) == 214


def test_older_messages_of_a_queue_end_at_its_start(cluster: Cluster) -> None:
    cluster.create_topic(TopicConfig("one-of-two", 2, 2))
    fill(cluster, "one-of-two", [70, 70])
    pages = list(walk(cluster, {"topic": "one-of-two", "queue": "1"}))
    offsets = [record["offset"] for page in pages for record in page.records]
    assert offsets == list(range(69, -1, -1))
    assert {record["queue"] for page in pages for record in page.records} == {1}


def test_older_messages_lead_on_from_an_offset(cluster: Cluster) -> None:
    cluster.create_topic(TopicConfig("from-an-offset", 1, 1))
    fill(cluster, "from-an-offset", [30])
    first, second = walk(cluster, {"topic": "from-an-offset", "offset": "20"})
    assert [record["offset"] for record in first.records] == list(range(29, 19, -1))
    assert [record["offset"] for record in second.records] == list(range(19, -1, -1))


def test_a_cursor_is_read_back_and_another_text_refused() -> None:
    cursor = Cursor(-1_700_000_000_000, "broker-a", 3, -17)
    assert Cursor.parse(str(cursor)) == cursor
    for text in ("", "1/broker-a/0", "x/broker-a/0/1", "1/broker-a/-1/1", f"1/b/0/{'1' * 5_000}"):
        with pytest.raises(UsageError, match="older must be"):
            Cursor.parse(text)
