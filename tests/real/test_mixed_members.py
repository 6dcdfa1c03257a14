"""Five members of all kinds, a Java one among them, over two masters of unmodified RocketMQ."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_client.producer.producer import Producer
from rocketmq_wire.model import Message
from support.consuming import Topic, settings_of, until
from support.group_members import (
    Batched,
    Kind,
    Ledger,
    Member,
    MessageId,
    Polled,
    Pushed,
    are_at_rest,
)
from support.real_cluster import RealCluster

_JAVA_MEMBER = Path(__file__).parent / "java" / "Member.java"
_SECONDS = 20.0
_JAVA_SECONDS = 45


@pytest.fixture
def topic(
    broker: RealCluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Topic]:
    """Of eight queues, half of them at a second master."""
    # A Java member is compiled and started beside all the others.
    monkeypatch.setattr("support.consuming.SECONDS_MAX", 120)
    node = broker.add_broker("broker-b")
    try:
        yield Topic(broker.settings, f"t{abs(hash(request.node.name))}")
    finally:
        broker.remove(node)


class Sent:
    """Each message says by its body where it is."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self.ids: dict[bytes, MessageId] = {}
        self._ends = Counter(dict.fromkeys(topic.queues, 0))

    def send(self, count: int) -> list[MessageId]:
        """Send a number of messages to each queue."""
        ids: list[MessageId] = []
        with Producer(self._topic.connection) as producer:
            for queue in self._topic.queues:
                some = [(queue, self._ends[queue] + number) for number in range(count)]
                bodies = [f"{q.broker}/{q.index}/{offset}".encode() for q, offset in some]
                producer.send_batch(queue, [Message(self._topic.name, body) for body in bodies])
                self._ends[queue] += count
                self.ids.update(zip(bodies, some, strict=True))
                ids += some
        return ids


def test_five_members_over_two_masters_lose_nothing_when_one_is_killed(
    broker: RealCluster, topic: Topic
) -> None:
    assert {queue.broker for queue in topic.queues} == {"broker-a", "broker-b"}
    settings = settings_of(topic, persist_ms=500)
    printed: list[str] = []

    def run_java() -> None:
        arguments = (topic.name, settings.group, str(_JAVA_SECONDS))
        printed.append(broker.java(_JAVA_MEMBER, *arguments, seconds=240))

    kinds: tuple[Kind, ...] = (Pushed, Polled, Batched, Pushed)
    sent, ledgers = Sent(topic), [Ledger() for _ in kinds]
    members: list[Member] = []
    java = threading.Thread(target=run_java, name="java-member")
    try:
        for kind, ledger in zip(kinds, ledgers, strict=True):
            members.append(kind(topic.connection, settings, ledger))
        java.start()
        until(lambda: are_at_rest(members, topic, settings.group, 5))
        began = time.monotonic()
        while (left := began + _SECONDS - time.monotonic()) > 0:
            sent.send(5)
            if left < _SECONDS / 2 and len(members) == len(kinds):
                members.pop(0).kill()
            threading.Event().wait(0.2)
        java.join(300)
        until(lambda: are_at_rest(members, topic, settings.group, 3))
        until(lambda: topic.committed(settings.group) == topic.ends())
        last = sent.send(5)
        until(lambda: topic.committed(settings.group) == topic.ends())
    finally:
        for member in members:
            member.stop()
    theirs = [line.split()[1].encode() for line in printed[0].splitlines() if "GOT " in line]
    counts = [ledger.counts for ledger in ledgers]
    counts.append(Counter(sent.ids[body] for body in theirs))
    assert all(counts), "every member had something"
    found = sum(counts, Counter())
    assert set(found) == set(sent.ids.values())
    assert [found[message_id] for message_id in last] == [1] * len(last), "at rest each comes once"
    # What was not stored when a member was killed and when one left, of some hundred a second.
    assert sum(found.values()) - len(found) < len(found) / 4
