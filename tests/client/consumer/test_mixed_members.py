"""Members of all kinds in one group and process join, leave and die, and no message is lost."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.settings import ConnectionSettings
from support.consuming import Topic, settings_of, until
from support.group_members import KINDS, Ledger, Member, are_at_rest

MEMBERS = 5
ROUNDS = 30


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConnectionSettings]:
    # A dead member's locks lapse in a second here, instead of a minute.
    monkeypatch.setattr("rocketmq_broker.engine.groups.clients.LEASE_MS", 1_000)
    with Broker(config_from({"flush": "memory", "grpc": False})) as broker:
        yield ConnectionSettings(name_servers=(broker.name_server,))


class Group:
    """A group's members, the messages sent to it and the messages delivered."""

    def __init__(self, connection: ConnectionSettings, chance: random.Random) -> None:
        self.connection, self.chance = connection, chance
        self.topic, self.ledger = Topic(connection, "mixed", 7), Ledger()
        self.settings: ConsumerSettings = settings_of(
            self.topic, persist_ms=100, lock_ms=200, threads=2, suspend_ms=500
        )
        self.members: list[Member] = []
        self.sent = 0

    def add(self, kind: int | None = None) -> None:
        made = self.chance.choice(KINDS) if kind is None else KINDS[kind]
        self.members.append(made(self.connection, self.settings, self.ledger))

    def leave(self, *, kills: bool) -> None:
        leaving = self.members.pop(self.chance.randrange(len(self.members)))
        (leaving.kill if kills else leaving.stop)()

    def send(self, count: int) -> None:
        self.sent += len(self.topic.send(count, prefix=f"{self.sent}-"))

    def finish(self) -> None:
        """Wait until every message is consumed and committed."""
        until(lambda: len(self.ledger.counts) == self.sent)
        until(lambda: self.topic.committed(self.settings.group) == self.topic.ends())

    def rest(self) -> None:
        """Wait until each member owns exactly its share."""
        group = self.settings.group
        until(lambda: are_at_rest(self.members, self.topic, group, len(self.members)))

    def stop(self) -> None:
        for member in self.members:
            member.stop()


@pytest.mark.parametrize("seed", range(2))
def test_members_of_all_kinds_join_leave_and_die_and_no_message_is_lost(
    connection: ConnectionSettings, seed: int
) -> None:
    chance = random.Random(seed)
    group = Group(connection, chance)
    try:
        for kind in range(len(KINDS)):
            group.add(kind)
        for _ in range(ROUNDS):
            group.send(40)
            if len(group.members) < MEMBERS:
                group.add()
            elif chance.random() < 0.4:
                group.leave(kills=chance.random() < 0.5)
        group.finish()
    finally:
        group.stop()
    assert sum(group.topic.ends().values()) == len(group.ledger.counts) == group.sent
    # Messages in work when a member joined, left or died are repeated; a broken rule repeats more.
    assert group.ledger.repeats < group.sent / 2, f"of {group.sent}"


@pytest.mark.parametrize("seed", range(2))
def test_committed_messages_are_not_repeated_and_each_queue_has_one_owner(
    connection: ConnectionSettings, seed: int
) -> None:
    group = Group(connection, random.Random(seed))
    try:
        for number in range(MEMBERS):
            group.add(number % len(KINDS))
        for change in ("join", "stop", "join", "kill", "join", "stop", "kill"):
            if change == "join":
                group.add()
            else:
                group.leave(kills=change == "kill")
            group.rest()
            group.send(70)
            group.finish()
            assert group.ledger.repeats == 0, f"after {change} of {len(group.members)} members"
    finally:
        group.stop()
    assert group.sent == len(group.ledger.counts) == 490
