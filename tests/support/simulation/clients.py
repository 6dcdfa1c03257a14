"""The clients of the simulation: producers, readers, members that pop, and an administrator.

Each reacts to answers, and to their absence: it records what it knows, and may try again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rocketmq_wire.errors import BrokerError, CorruptRecordError, RocketMQError
from rocketmq_wire.model import QueueId, StoredMessage, TopicConfig
from rocketmq_wire.records.batch import BatchEntry, encode_batch
from rocketmq_wire.records.handles import ReceiptHandle, RetryKind
from rocketmq_wire.records.properties import encode_properties
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.groups import Heartbeat
from rocketmq_wire.requests.messages import (
    PullMessages,
    PullReply,
    PullStatus,
    SendBatch,
    SendMessage,
    SendReply,
)
from rocketmq_wire.requests.offsets import CommitOffset, GetCommittedOffset, OffsetReply
from rocketmq_wire.requests.pop import (
    AckMessages,
    InvisibleTimeReply,
    PopMessages,
    PopReply,
    ack_of,
    ack_spans,
    change_of,
)
from rocketmq_wire.requests.topics import CreateTopic, DeleteTopic
from rocketmq_wire.requests.transactions import CheckTransaction, EndTransaction, Resolution
from support.engines import BROKER
from support.message_checker import Kind, Message, Queue, Stored, Violation
from support.simulation.network import Link

if TYPE_CHECKING:
    from support.simulation.life import Life

Answer = Reply | RocketMQError | None

PRODUCERS = "producers"
READERS = "readers"
WORKERS = "workers"
QUEUE_COUNT = 2
_LEVELS_MS = {1: 1_000, 2: 5_000}
_HALF_FLAG = 4
# Longer than bytes of a broken connection may still arrive.
AGAIN_MS = 2_500


def id_of(queue: Queue, index: int | None = None) -> QueueId:
    return QueueId(queue.topic, BROKER, queue.index if index is None else index)


def messages_in(parts: Sequence[bytes | bytearray | memoryview]) -> list[StoredMessage]:
    """The messages of an answer."""
    data, at, found = b"".join(map(bytes, parts)), 0, []
    while at < len(data):
        try:
            message, at = decode_record(data, at)
        except CorruptRecordError as error:
            raise Violation(Kind.WRONG_BODY, f"a record cannot be read: {error}") from error
        found.append(message)
    return found


class Client:
    """A client with one connection, made again whenever it broke."""

    def __init__(self, life: Life, name: str = "") -> None:
        self.name = name
        self.life = life
        self.checker = life.checker
        self.chance = life.chance
        self._link: Link | None = None

    def ask(self, request: Request[Reply], done: Callable[[Answer], None]) -> None:
        """Send a request; the caller has asked `can_ask`."""
        assert self._link is not None
        self._link.ask(request, done)

    def can_ask(self) -> bool:
        """True if there is a connection, now at the latest."""
        process = self.life.process
        if process is None:
            return False
        if self._link is None or not self._link.is_open:
            self._link = self.life.network.connect(process.server, self._respond)
            self._connected()
        return True

    def cut(self) -> None:
        if self._link is not None:
            self._link.cut()

    def _connected(self) -> None:
        """Greet the broker."""

    def _respond(self, request: Request[Reply]) -> None:
        """Answer the broker."""

    def later(self, ms: float, act: Callable[[], object]) -> None:
        self.life.loop.call_later(ms / 1_000, act)


def is_refusal(result: Answer) -> bool:
    """True if the broker says that it has done nothing."""
    return isinstance(result, BrokerError) and "may be stored or not" not in result.remark


class Producer(Client):
    """Sends messages, again if it does not know what became of them, and ends transactions."""

    def _connected(self) -> None:
        assert self._link is not None
        self._link.ask(Heartbeat(self.name, (PRODUCERS,), ()), lambda _: None)

    def send(self, queue: Queue) -> None:
        """Send one message."""
        if self.can_ask():
            self._send(queue, self.life.body(), {"UNIQ_KEY": self.life.key()}, 0)

    def send_later(self, queue: Queue) -> None:
        """Send one message with a delay level or a delivery time."""
        if not self.can_ask():
            return
        named = {"UNIQ_KEY": self.life.key()}
        if self.chance.random() < 0.5:
            level = self.chance.choice((1, 1, 2))
            named["DELAY"], delay_ms = str(level), _LEVELS_MS[level]
        else:
            delay_ms = self.chance.choice((1, 300, 2_000, 6_000))
            named["TIMER_DELAY_MS"] = str(delay_ms)
        self._send(queue, self.life.body(), named, delay_ms)

    def _send(self, queue: Queue, body: bytes, named: dict[str, str], delay_ms: int) -> None:
        message = self.checker.send(body, queue, self.life.now_ms(), delay_ms=delay_ms)
        request = SendMessage(PRODUCERS, id_of(queue), 0, body, encode_properties(named))

        def done(result: Answer) -> None:
            if isinstance(result, SendReply):
                self.checker.acknowledge(message, None if delay_ms else result.start)
            elif is_refusal(result):
                self.checker.refuse(message)
            elif self.chance.random() < 0.4:
                again = partial(self._send, queue, body, named, delay_ms)
                self.later(self.chance.choice((1, 500)), self._if_connected(again, queue))

        self.ask(request, done)

    def send_batch(self, queue: Queue) -> None:
        if self.can_ask():
            self._send_batch(queue, [self.life.body() for _ in range(self.chance.randint(2, 6))])

    def _send_batch(self, queue: Queue, bodies: list[bytes]) -> None:
        now_ms = self.life.now_ms()
        messages = [self.checker.send(body, queue, now_ms) for body in bodies]
        data = encode_batch([BatchEntry(0, body) for body in bodies])

        def done(result: Answer) -> None:
            if isinstance(result, SendReply):
                for offset, message in enumerate(messages, result.start):
                    self.checker.acknowledge(message, offset)
            elif is_refusal(result):
                for message in messages:
                    self.checker.refuse(message)
            elif self.chance.random() < 0.4:
                again = partial(self._send_batch, queue, bodies)
                self.later(self.chance.choice((1, 500)), self._if_connected(again, queue))

        self.ask(SendBatch(PRODUCERS, id_of(queue), 0, data), done)

    def _if_connected(self, act: Callable[[], None], queue: Queue) -> Callable[[], None]:
        def act_if() -> None:
            if self.checker.is_current(queue) and self.can_ask():
                act()

        return act_if

    # --- transactions ---------------------------------------------------------------------------

    def send_half(self, queue: Queue) -> None:
        """Begin a transaction; its end is decided now, and asked for at once or by a check."""
        if not self.can_ask():
            return
        body, key = self.life.body(), self.life.key()
        message = self.checker.send(body, queue, self.life.now_ms(), is_half=True)
        message.is_withdrawn = self.chance.random() < 0.3
        named = encode_properties({"TRAN_MSG": "true", "PGROUP": PRODUCERS, "UNIQ_KEY": key})
        request = SendMessage(PRODUCERS, id_of(queue), 0, body, named, sys_flag=_HALF_FLAG)

        def done(result: Answer) -> None:
            if isinstance(result, SendReply):
                self.checker.acknowledge(message)
                position = int(result.message_id[-16:], 16)
                if self.chance.random() < 0.8:
                    end = partial(self._end, message, result.start, position, is_from_check=False)
                    self.later(self.chance.choice((0, 100, 700)), end)
            elif is_refusal(result):
                self.checker.refuse(message)

        self.ask(request, done)

    def _end(
        self, message: Message, half_offset: int, position: int, *, is_from_check: bool
    ) -> None:
        if not self.can_ask():
            return
        wanted = Resolution.ROLLBACK if message.is_withdrawn else Resolution.COMMIT
        message.is_commit_asked = not message.is_withdrawn
        request = EndTransaction(
            PRODUCERS, half_offset, position, wanted, is_from_check=is_from_check
        )

        def done(result: Answer) -> None:
            if not isinstance(result, Done) and self.chance.random() < 0.3:
                again = partial(
                    self._end, message, half_offset, position, is_from_check=is_from_check
                )
                self.later(self.chance.choice((1, 500)), again)

        self.ask(request, done)

    def _respond(self, request: Request[Reply]) -> None:
        if isinstance(request, CheckTransaction):
            message = self.checker.known(decode_record(request.record)[0].body)
            if self.life.is_ending or self.chance.random() < 0.8:
                end = partial(
                    self._end, message, request.half_offset, request.position, is_from_check=True
                )
                self.later(1, end)


class Reader(Client):
    """Reads queues by offset, and commits how far."""

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self.following: dict[Queue, int] = {}
        """The offset of the next pull."""
        self.ended: dict[Queue, tuple[int, int]] = {}
        """The bounds of queues whose end was reached by the last pull."""

    def pull(self, queue: Queue, *, waits: bool = False) -> None:
        """Pull from where the last pull ended; with `waits` the broker may hold the request."""
        if not self.can_ask():
            return
        start = self.following.get(queue, 0)
        known = self.checker.end_of(queue)
        request = PullMessages(
            READERS,
            id_of(queue),
            start,
            self.chance.choice((1, 3, 32)),
            suspend_ms=self.chance.choice((200, 3_000)) if waits else None,
        )

        def done(result: Answer) -> None:
            if isinstance(result, PullReply) and self.checker.is_current(queue):
                self._take(queue, start, known, result)

        self.ask(request, done)

    def _take(self, queue: Queue, start: int, known: int, reply: PullReply) -> None:
        checker = self.checker
        checker.read_bounds(queue, start, known, reply.start, reply.end)
        found = messages_in(reply.records)
        checker.read(queue, start, [Stored(m.queue_offset, m.body, m.store_ms) for m in found])
        self.ended.pop(queue, None)
        if reply.status is PullStatus.FOUND:
            following = start + len(found)
            assert reply.next_begin == following, (reply.next_begin, following)
        elif reply.status is PullStatus.OFFSET_ILLEGAL:
            # `read_bounds` has refused an end that is lower than it was.
            following = max(start, reply.start)
        else:
            following = start
            if start == reply.end:
                self.ended[queue] = reply.start, reply.end
        if self.following.get(queue, 0) == start:
            self.following[queue] = following

    def commit(self, queue: Queue) -> None:
        if queue not in self.following or not self.can_ask():
            return
        offset = self.following[queue]
        self.checker.commit(READERS, queue, offset)

        def done(result: Answer) -> None:
            if result is not None:
                self.checker.commit_answered(READERS, queue, offset)

        self.ask(CommitOffset(READERS, id_of(queue), offset), done)

    def look_up(self, queue: Queue) -> None:
        """Read the committed offset."""
        if not self.can_ask():
            return

        def done(result: Answer) -> None:
            if isinstance(result, OffsetReply) and self.checker.is_current(queue):
                self.checker.committed(READERS, queue, result.value)

        self.ask(GetCommittedOffset(READERS, id_of(queue)), done)


@dataclass
class _Held:
    """One delivery to a member."""

    message: Message
    queue: Queue
    handle: ReceiptHandle
    visible_ms: int


class Worker(Client):
    """Pops messages, and acknowledges, renews or forgets them."""

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self.held: list[_Held] = []
        self.drained: set[bytes] | None = None
        """What came since the drain began; everything is acknowledged then."""
        self.count = 0

    def pop(self, queue: Queue, *, poll_ms: int = 0) -> None:
        """Pop messages of all queues of a topic."""
        if not self.can_ask():
            return
        invisible_ms = self.chance.choice((300, 1_000, 4_000))
        count_max = 32 if self.drained is not None else self.chance.choice((1, 4, 32))
        request = PopMessages(WORKERS, id_of(queue, -1), count_max, invisible_ms, poll_ms=poll_ms)

        def done(result: Answer) -> None:
            if isinstance(result, PopReply) and self.checker.is_current(queue):
                self._take(queue, result)

        self.ask(request, done)

    def _take(self, queue: Queue, reply: PopReply) -> None:
        for stored, handle in zip(messages_in(reply.records), reply.handles(BROKER), strict=True):
            source = queue._replace(index=handle.queue_index)
            is_first = handle.retry is RetryKind.NONE
            message = self.checker.pop(
                WORKERS,
                source,
                stored.body,
                offset=handle.offset if is_first else None,
                pop_ms=handle.pop_ms,
                invisible_ms=handle.invisible_ms,
            )
            self.held.append(_Held(message, queue, handle, handle.visible_ms))
            self.count += 1
            if self.drained is not None:
                self.drained.add(stored.body)
        if self.drained is not None:
            self.acknowledge(len(self.held))

    def acknowledge(self, count: int) -> None:
        """Acknowledge some deliveries of one topic."""
        self.held = [held for held in self.held if self.checker.is_current(held.queue)]
        if not self.held or not self.can_ask():
            return
        first = self.held[self.chance.randrange(len(self.held))]
        chosen = [held for held in self.held if held.queue.topic == first.queue.topic][:count]
        self.held = [held for held in self.held if held not in chosen]
        crashes = self.checker.crashes
        for held in chosen:
            self.checker.acknowledging_pop(WORKERS, held.message)

        def done(result: Answer) -> None:
            now_ms = self.life.now_ms()
            for held in chosen:
                # The broker accepts, and ignores, what is too late.
                if isinstance(result, Done) and now_ms < held.visible_ms:
                    self.checker.acknowledged_pop(WORKERS, held.message, now_ms, crashes)

        topic = first.queue.topic
        if len(chosen) == 1:
            self.ask(ack_of(WORKERS, topic, chosen[0].handle.text()), done)
        else:
            spans = ack_spans(WORKERS, [(topic, held.handle) for held in chosen])
            self.ask(AckMessages(BROKER, spans), done)

    def renew(self) -> None:
        """Change the invisible time of a delivery."""
        if not self.held or not self.can_ask():
            return
        held = self.held.pop(self.chance.randrange(len(self.held)))
        invisible_ms, crashes = self.chance.choice((200, 2_000)), self.checker.crashes
        self.checker.changing_pop(WORKERS, held.message, self.life.now_ms() + invisible_ms)

        def done(result: Answer) -> None:
            if isinstance(result, InvisibleTimeReply):
                held.handle = result.handle_after(held.handle)
                held.visible_ms = held.handle.visible_ms
                self.held.append(held)
                if crashes == self.checker.crashes:
                    self.checker.changed_pop(
                        WORKERS, held.message, held.handle.pop_ms, invisible_ms
                    )

        topic = held.queue.topic
        self.ask(change_of(WORKERS, topic, held.handle.text(), invisible_ms), done)

    def forget(self) -> None:
        """Stop to work on all deliveries, as a member that ends."""
        self.held.clear()


class Administrator(Client):
    """Creates topics, and deletes and creates them again; it tries until it is done."""

    def create(self, topic: str) -> None:
        config = TopicConfig(topic, QUEUE_COUNT, QUEUE_COUNT)
        self._insist(CreateTopic(config), partial(self.checker.created_topic, topic))

    def recreate(self, topic: str) -> None:
        def deleted() -> None:
            self.checker.deleted_topic(topic)
            self.later(self.chance.choice((0, 100, 1_000)), partial(self.create, topic))

        self.checker.deleting_topic(topic)
        self._insist(DeleteTopic(topic), deleted)

    def _insist(self, request: Request[Reply], succeeded: Callable[[], None]) -> None:
        def done(result: Answer) -> None:
            if isinstance(result, Done):
                succeeded()
            else:
                self.later(AGAIN_MS, partial(self._insist, request, succeeded))

        if self.can_ask():
            self.ask(request, done)
        else:
            done(None)
