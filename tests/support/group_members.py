"""Members of all kinds of one group in one process, and the messages that each received."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
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

MessageId = tuple[QueueId, int]


class Ledger:
    """Counts deliveries of each message, before it is consumed."""

    def __init__(self) -> None:
        self.counts: Counter[MessageId] = Counter()
        self._lock = threading.Lock()

    def note(self, offsets: list[MessageId]) -> None:
        with self._lock:
            self.counts.update(offsets)

    @property
    def repeats(self) -> int:
        """Deliveries beyond the first."""
        with self._lock:
            return sum(self.counts.values()) - len(self.counts)


class Member(Protocol):
    """One member of any kind."""

    @property
    def consumer(self) -> GroupConsumer: ...

    def stop(self) -> None: ...

    def kill(self) -> None:
        """Break its connections: it stores no more offsets."""
        ...


def cut(consumer: GroupConsumer) -> None:
    instance = consumer._instance
    if instance is not None:
        instance.io.stop()


def id_of(message: ReceivedMessage) -> MessageId:
    return QueueId(message.topic, message.broker, message.queue_index), message.queue_offset


class Pushed:
    """A member with a listener."""

    def __init__(
        self, connection: ConnectionSettings, settings: ConsumerSettings, ledger: Ledger
    ) -> None:
        def listen(messages: list[ReceivedMessage], _: ConsumeContext) -> ConsumeStatus:
            ledger.note([id_of(message) for message in messages])
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
    """A member with a thread that calls it in a loop."""

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
    """A member that polls."""

    def __init__(
        self, connection: ConnectionSettings, settings: ConsumerSettings, ledger: Ledger
    ) -> None:
        self.ledger = ledger
        self.polls = LitePullConsumer(connection, settings).start()
        super().__init__(self.polls)

    def turn(self) -> None:
        messages = self.polls.poll(20)
        self.ledger.note([id_of(message) for message in messages])


class Batched(Looping):
    """A member that reads batches as a query does: to the ends at the batch's start."""

    def __init__(
        self, connection: ConnectionSettings, settings: ConsumerSettings, ledger: Ledger
    ) -> None:
        self.ledger, self.cluster = ledger, open_cluster(connection)
        self.member = BatchMember(connection, settings, {}).start()
        super().__init__(self.member)

    def turn(self) -> None:
        offsets = self.member.take()
        bounds = self.cluster.bounds(tuple(offsets)) if offsets else {}
        ends = {q: max(at.end, offsets[q]) for q, at in bounds.items() if isinstance(at, Bounds)}
        self.ledger.note([(q, n) for q, end in ends.items() for n in range(offsets[q], end)])
        self.member.commit(ends)
        self.member.release(tuple(self.member.taken))
        self._ended.wait(0.02)

    def stop(self) -> None:
        super().stop()
        self.cluster.close()

    def kill(self) -> None:
        super().kill()
        self.cluster.close()


Kind = Callable[[ConnectionSettings, ConsumerSettings, Ledger], Member]
KINDS: tuple[Kind, ...] = (Pushed, Polled, Batched)


def are_at_rest(members: Iterable[Member], topic: Topic, group: str, count: int) -> bool:
    """Brokers list `count` members, and each of `members` owns exactly its share."""
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
