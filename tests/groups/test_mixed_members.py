"""Members of all kinds in one group, in one process: they come, go and die, and nothing is lost."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Protocol

import pytest

from rocketmq_broker_sim.broker import Broker
from rocketmq_broker_sim.config import config_from
from rocketmq_client.cluster import open_cluster
from rocketmq_client.groups.consumer_settings import ConsumerSettings
from rocketmq_client.groups.group_consumer import GroupConsumer
from rocketmq_client.groups.group_seat import GroupSeat
from rocketmq_client.groups.listening import ConsumeContext, ConsumeStatus
from rocketmq_client.groups.lite_pull_consumer import LitePullConsumer
from rocketmq_client.groups.messages import ReceivedMessage
from rocketmq_client.groups.push_consumer import PushConsumer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Bounds
from support.consuming import Topic, settings_of, until

Place = tuple[int, int]
MEMBERS = 5
ROUNDS = 30


class Ledger:
    """Who was given which message: counted before anybody says that it is consumed."""

    def __init__(self) -> None:
        self.counts: Counter[Place] = Counter()
        self._lock = threading.Lock()

    def note(self, places: list[Place]) -> None:
        with self._lock:
            self.counts.update(places)


class Member(Protocol):
    """One member, whatever its kind."""

    def stop(self) -> None: ...

    def kill(self) -> None:
        """Its connections break: nothing is stored any more."""
        ...


def cut(consumer: GroupConsumer) -> None:
    instance = consumer._instance
    if instance is not None:
        instance.wire.stop()


class Pushed:
    def __init__(
        self, connection: ConnectionSettings, settings: ConsumerSettings, ledger: Ledger
    ) -> None:
        def listen(messages: list[ReceivedMessage], _: ConsumeContext) -> ConsumeStatus:
            ledger.note([(m.queue_index, m.queue_offset) for m in messages])
            return ConsumeStatus.SUCCESS

        self.consumer = PushConsumer(connection, settings, listen).start()

    def stop(self) -> None:
        self.consumer.shut_down()

    def kill(self) -> None:
        cut(self.consumer)
        self.consumer.shut_down()


class Looping:
    """A member with a thread that asks it again and again."""

    def __init__(self, consumer: LitePullConsumer | GroupSeat) -> None:
        self.consumer = consumer
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                self.turn()
        except RocketMQError:
            assert self._ended.is_set(), "only an end breaks connections"

    def turn(self) -> None: ...

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self.consumer.close()

    def kill(self) -> None:
        self._ended.set()
        cut(self.consumer)
        self._thread.join()
        self.consumer.close()


class Polled(Looping):
    def __init__(
        self, connection: ConnectionSettings, settings: ConsumerSettings, ledger: Ledger
    ) -> None:
        self.ledger = ledger
        self.polls = LitePullConsumer(connection, settings).start()
        super().__init__(self.polls)

    def turn(self) -> None:
        messages = self.polls.poll(20)
        self.ledger.note([(m.queue_index, m.queue_offset) for m in messages])


class Seated(Looping):
    """Reads as a query does: what is there when a batch begins, to its end."""

    def __init__(
        self, connection: ConnectionSettings, settings: ConsumerSettings, ledger: Ledger
    ) -> None:
        self.ledger, self.cluster = ledger, open_cluster(connection)
        self.seat = GroupSeat(connection, settings).start({})
        super().__init__(self.seat)

    def turn(self) -> None:
        places = self.seat.take()
        held = self.cluster.bounds(tuple(places)) if places else {}
        ends = {q: max(at.end, places[q]) for q, at in held.items() if isinstance(at, Bounds)}
        self.ledger.note([(q.index, n) for q, end in ends.items() for n in range(places[q], end)])
        self.seat.settle(ends)
        self.seat.release(tuple(self.seat.held))
        self._ended.wait(0.02)

    def stop(self) -> None:
        super().stop()
        self.cluster.close()

    def kill(self) -> None:
        super().kill()
        self.cluster.close()


KINDS = (Pushed, Polled, Seated)


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConnectionSettings]:
    # A dead seat's locks lapse in a second here, instead of a minute.
    monkeypatch.setattr("rocketmq_broker_sim.engine.locks.LEASE_MS", 1_000)
    with Broker(config_from({"flush": "memory", "grpc": False})) as broker:
        yield ConnectionSettings(name_servers=(broker.name_server,))


@pytest.mark.parametrize("seed", range(2))
def test_members_of_all_kinds_come_go_and_die_and_no_message_is_lost(
    connection: ConnectionSettings, seed: int
) -> None:
    chance, topic, ledger = random.Random(seed), Topic(connection, "mixed", 7), Ledger()
    settings = settings_of(topic, persist_ms=100, lock_ms=200, threads=2, suspend_ms=500)

    def joined() -> Member:
        return chance.choice(KINDS)(connection, settings, ledger)

    members: list[Member] = [kind(connection, settings, ledger) for kind in KINDS]
    ends = 0
    try:
        for round_number in range(ROUNDS):
            ends += len(topic.send(40, prefix=f"{round_number}-"))
            if len(members) < MEMBERS:
                members.append(joined())
            elif chance.random() < 0.4:
                leaving = members.pop(chance.randrange(len(members)))
                (leaving.kill if chance.random() < 0.5 else leaving.stop)()
        until(lambda: len(ledger.counts) == ends)
        until(lambda: topic.progress(settings.group) == topic.ends())
    finally:
        for member in members:
            member.stop()
    assert sum(topic.ends().values()) == len(ledger.counts) == ends
    repeated = sum(ledger.counts.values()) - ends
    # Of what was at work when somebody joined, left or died; a broken rule repeats far more.
    assert repeated < ends, f"{repeated} of {ends} came again"
