"""Members of all kinds of one group, in one process, and who was given what."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from rocketmq_client.cluster import open_cluster
from rocketmq_client.consumer.allocation import Average, allocate
from rocketmq_client.consumer.batch_member import BatchMember
from rocketmq_client.consumer.common.listener import ConsumeContext, ConsumeStatus
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.group_consumer import GroupConsumer
from rocketmq_client.consumer.lite_pull import LitePullConsumer
from rocketmq_client.consumer.push import PushConsumer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Bounds, QueueId
from support.consuming import Topic

Place = tuple[QueueId, int]


class Ledger:
    """Who was given which message: counted before anybody says that it is consumed."""

    def __init__(self) -> None:
        self.counts: Counter[Place] = Counter()
        self._lock = threading.Lock()

    def note(self, places: list[Place]) -> None:
        with self._lock:
            self.counts.update(places)

    @property
    def repeats(self) -> int:
        """Deliveries beyond the first."""
        with self._lock:
            return sum(self.counts.values()) - len(self.counts)


class Member(Protocol):
    """One member, whatever its kind."""

    @property
    def consumer(self) -> GroupConsumer: ...

    def stop(self) -> None: ...

    def kill(self) -> None:
        """Its connections break: nothing is stored any more."""
        ...


def cut(consumer: GroupConsumer) -> None:
    instance = consumer._instance
    if instance is not None:
        instance.io.stop()


def place_of(message: ReceivedMessage) -> Place:
    return QueueId(message.topic, message.broker, message.queue_index), message.queue_offset


class Pushed:
    """Has a listener."""

    def __init__(
        self, connection: ConnectionSettings, settings: ConsumerSettings, ledger: Ledger
    ) -> None:
        def listen(messages: list[ReceivedMessage], _: ConsumeContext) -> ConsumeStatus:
            ledger.note([place_of(message) for message in messages])
            return ConsumeStatus.SUCCESS

        self.pushes = PushConsumer(connection, settings, listen).start()

    @property
    def consumer(self) -> GroupConsumer:
        return self.pushes

    def stop(self) -> None:
        self.pushes.shut_down()

    def kill(self) -> None:
        cut(self.pushes)
        self.pushes.shut_down()


class Looping:
    """A member with a thread that asks it again and again."""

    def __init__(self, looping: LitePullConsumer | BatchMember) -> None:
        self.looping = looping
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

    @property
    def consumer(self) -> GroupConsumer:
        return self.looping

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        self.looping.close()

    def kill(self) -> None:
        self._ended.set()
        cut(self.looping)
        self._thread.join()
        self.looping.close()


class Polled(Looping):
    """Polls, and is done with what it got when it polls again."""

    def __init__(
        self, connection: ConnectionSettings, settings: ConsumerSettings, ledger: Ledger
    ) -> None:
        self.ledger = ledger
        self.polls = LitePullConsumer(connection, settings).start()
        super().__init__(self.polls)

    def turn(self) -> None:
        messages = self.polls.poll(20)
        self.ledger.note([place_of(message) for message in messages])


class Seated(Looping):
    """Reads as a query does: what is there when a batch begins, to its end."""

    def __init__(
        self, connection: ConnectionSettings, settings: ConsumerSettings, ledger: Ledger
    ) -> None:
        self.ledger, self.cluster = ledger, open_cluster(connection)
        self.seat = BatchMember(connection, settings).start({})
        super().__init__(self.seat)

    def turn(self) -> None:
        places = self.seat.take()
        held = self.cluster.bounds(tuple(places)) if places else {}
        ends = {q: max(at.end, places[q]) for q, at in held.items() if isinstance(at, Bounds)}
        self.ledger.note([(q, n) for q, end in ends.items() for n in range(places[q], end)])
        self.seat.commit(ends)
        self.seat.release(tuple(self.seat.taken))
        self._ended.wait(0.02)

    def stop(self) -> None:
        super().stop()
        self.cluster.close()

    def kill(self) -> None:
        super().kill()
        self.cluster.close()


KINDS = (Pushed, Polled, Seated)


def are_at_rest(members: Iterable[Member], topic: Topic, group: str, count: int) -> bool:
    """Brokers know so many members, and each of these has the queues that are its share."""
    with open_cluster(topic.connection) as cluster:
        ids = cluster.members(group, topic.name)
    if len(ids) != count:
        return False
    for member in members:
        instance = member.consumer._instance
        assert instance is not None
        share = allocate(Average(), instance.client_id, topic.queues, ids)
        if {*share} != {queue for queue in member.consumer.queues if queue.topic == topic.name}:
            return False
    return True
