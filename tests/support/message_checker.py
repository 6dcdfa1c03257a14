"""What was sent, against what readers get: records both, and raises at the first broken promise.

A message may be visible as often as it may have been stored:

    acknowledged send               once; each repetition with an unknown outcome may add a copy
    send with an unknown outcome    at most once
    refused, rolled back, recalled  never
    half message                    never before its commit was requested; then once
    delayed message                 never before its time; again once after each crash

A reader gets the messages of a queue in order and without gaps, and at one offset always the same
message. A message that was popped comes to no other pop of its group before its invisible time is
over, and not again once it is acknowledged; a crash suspends both, but loses no message.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

_NEVER_MS = 1 << 62


class Kind(enum.Enum):
    """The ways in which a promise can be broken."""

    LOST = "lost"
    DUPLICATE = "duplicate"
    REORDERED = "reordered"
    GAP = "gap"
    EARLY = "early"
    WRONG_BODY = "wrong body"
    UNEXPECTED = "unacknowledged served"


class Violation(AssertionError):
    """A broken promise."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(kind, text)
        self.kind = kind

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.args[1]}"


class Queue(NamedTuple):
    """A queue of a topic, which may be deleted and created again."""

    topic: str
    generation: int
    """How often the topic was created before."""
    index: int  # type: ignore[assignment]  # Hides the method of tuple.


@dataclass(eq=False)
class Message:
    """One message and what became of its sends."""

    body: bytes
    queue: Queue
    """The queue that it was sent to first."""
    delay_ms: int = 0
    is_half: bool = False
    sent_ms: int = 0
    """The time of the broker when it was sent."""
    attempts: int = 0
    refused: int = 0
    acknowledged: int = 0
    crashes: int = 0
    """The number of crashes before it was sent."""
    after: dict[Queue, int] = field(default_factory=dict)
    """The last offset that was acknowledged when it was sent."""
    is_commit_asked: bool = False
    is_withdrawn: bool = False
    """True if it is never committed, or recalled."""
    may_be_gone: bool = False
    """True if its topic was deleted, or if it may have expired."""
    may_return: bool = False
    """True if a topic that is created again may get it."""
    pops: dict[str, _Popped] = field(default_factory=dict)
    """By group."""

    @property
    def unresolved(self) -> int:
        """The sends without an answer so far, and those whose outcome stays unknown."""
        return self.attempts - self.refused - self.acknowledged

    @property
    def is_single(self) -> bool:
        """True if it is stored at most once."""
        return self.attempts == 1 and not self.delay_ms

    def __str__(self) -> str:
        return f"{self.body[:24]!r} of {self.queue}"


@dataclass
class _Popped:
    """The last pop of a message by a group."""

    pop_ms: int = -1
    invisible_until_ms: int = 0
    crashes: int = -1
    """The number of crashes before it was popped."""
    is_ack_sent: bool = False
    acked_ms: int = 0
    acked_crashes: int = -1
    """The number of crashes before it was acknowledged; -1: it is not."""


class Stored(NamedTuple):
    """A message as a reader gets it."""

    offset: int
    body: bytes
    store_ms: int


@dataclass
class Checker:
    """The recorder of a run, and its checks."""

    messages: dict[bytes, Message] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    deleting: set[str] = field(default_factory=set)
    """Topics of which the deletion, or the creation, is not acknowledged."""
    crashes: int = 0
    content: dict[Queue, dict[int, bytes]] = field(
        default_factory=lambda: defaultdict(dict[int, bytes])
    )
    _offsets: dict[tuple[Queue, bytes], set[int]] = field(
        default_factory=lambda: defaultdict(set[int])
    )
    _acknowledged_end: dict[Queue, int] = field(default_factory=dict)
    _commits: dict[tuple[str, Queue], dict[int, int]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(int))
    )
    """The number of unanswered commits of each offset."""
    _all_may_expire: bool = False

    # --- topics ---------------------------------------------------------------------------------

    def queue(self, topic: str, index: int) -> Queue:
        return Queue(topic, self.generations.get(topic, 0), index)

    def is_current(self, queue: Queue) -> bool:
        """True if nobody has begun to delete the queue's topic."""
        return (
            queue.topic not in self.deleting
            and self.generations.get(queue.topic, 0) == queue.generation
        )

    def deleting_topic(self, topic: str) -> None:
        """An administrator asks to delete a topic."""
        self.deleting.add(topic)
        for message in self._of_topic(topic):
            message.may_be_gone = True

    def deleted_topic(self, topic: str) -> None:
        """The deletion is acknowledged."""
        self.generations[topic] = self.generations.get(topic, 0) + 1
        for (group, queue), offsets in list(self._commits.items()):
            if queue.topic == topic:
                for offset, unanswered in offsets.items():
                    if unanswered:
                        new = self.queue(topic, queue.index)
                        self._commits[group, new][offset] += unanswered
        for message in self._of_topic(topic):
            may_be_on_the_way = message.unresolved > 0 or message.is_half or message.delay_ms > 0
            message.may_return = message.may_return or may_be_on_the_way

    def created_topic(self, topic: str) -> None:
        """The creation is acknowledged."""
        self.deleting.discard(topic)

    def _of_topic(self, topic: str) -> list[Message]:
        return [message for message in self.messages.values() if message.queue.topic == topic]

    def may_expire(self, stored_before_ms: int) -> None:
        """Retention may delete messages that were stored before a time."""
        for message in self.messages.values():
            if message.sent_ms < stored_before_ms:
                message.may_be_gone = True

    def disk_is_too_full(self, is_so: bool) -> None:
        """While a disk is too full, all messages may be deleted."""
        if is_so:
            for message in self.messages.values():
                message.may_be_gone = True
        self._all_may_expire = is_so

    # --- sends ----------------------------------------------------------------------------------

    def send(
        self, body: bytes, queue: Queue, now_ms: int, *, delay_ms: int = 0, is_half: bool = False
    ) -> Message:
        """A message is about to be sent, for the first time or again."""
        message = self.messages.get(body)
        if message is None:
            message = Message(body, queue, delay_ms, is_half, now_ms, crashes=self.crashes)
            self.messages[body] = message
            message.may_be_gone = queue.topic in self.deleting or self._all_may_expire
            message.may_return = queue.topic in self.deleting
            if queue in self._acknowledged_end:
                message.after[queue] = self._acknowledged_end[queue]
        message.attempts += 1
        # The clock of a broker that starts again begins with the last time in its store.
        message.sent_ms = min(message.sent_ms, now_ms)
        return message

    def acknowledge(self, message: Message, offset: int | None = None) -> None:
        """A send succeeded; `offset` is the message's place in its queue, if it is there now."""
        message.acknowledged += 1
        queue = message.queue
        if offset is None or not self.is_current(queue):
            return
        self._note(queue, offset, message.body)
        if message.attempts == 1 and offset <= message.after.get(queue, -1):
            _fail(
                Kind.REORDERED,
                f"{message} is at offset {offset}, though offset {message.after[queue]} was "
                "acknowledged before it was sent",
            )
        self._acknowledged_end[queue] = max(self._acknowledged_end.get(queue, -1), offset)

    def refuse(self, message: Message) -> None:
        """A send failed, and the broker says that nothing was stored."""
        message.refused += 1

    def crash(self) -> None:
        """The broker's process ended without a stop."""
        self.crashes += 1

    # --- reads ----------------------------------------------------------------------------------

    def read(self, queue: Queue, start: int, found: Iterable[Stored]) -> None:
        """A reader asked for the messages of a queue from an offset on."""
        following = start
        for stored in found:
            if stored.offset != following:
                _fail(Kind.GAP, f"{queue}: offset {stored.offset} came instead of {following}")
            following += 1
            self._note(queue, stored.offset, stored.body)
            self._check_visible(queue, stored)

    def end_of(self, queue: Queue) -> int:
        """The offset behind the last acknowledged message."""
        return self._acknowledged_end.get(queue, -1) + 1

    def read_bounds(self, queue: Queue, start: int, known: int, begin: int, end: int) -> None:
        """A reader got the bounds of a queue in answer to a request for offset `start`.

        `known` was the offset behind the last acknowledged message then.
        """
        if end < known:
            _fail(Kind.LOST, f"{queue} ends at {end}, and offset {known - 1} was acknowledged")
        if end < start:
            _fail(Kind.LOST, f"{queue} ends at {end}, and was read up to {start}")
        content = self.content[queue]
        for offset in range(begin):
            message = self.messages.get(content.get(offset, b""))
            if message is not None and not message.may_be_gone:
                _fail(Kind.LOST, f"{queue} begins at {begin}: {message} at {offset} is gone")

    def _note(self, queue: Queue, offset: int, body: bytes) -> None:
        known = self.content[queue].setdefault(offset, body)
        if known != body:
            _fail(Kind.WRONG_BODY, f"{queue} offset {offset} was {known[:24]!r}, is {body[:24]!r}")
        self._offsets[queue, body].add(offset)

    def _check_visible(self, queue: Queue, stored: Stored) -> None:
        message = self.known(stored.body)
        if (message.queue.topic, message.queue.index) != (queue.topic, queue.index):
            _fail(Kind.WRONG_BODY, f"{message} is in {queue}")
        self._check_expected(message, queue)
        if stored.store_ms < message.sent_ms + message.delay_ms:
            early_ms = message.sent_ms + message.delay_ms - stored.store_ms
            _fail(Kind.EARLY, f"{message} is visible {early_ms} ms before its time")
        copies = len(self._offsets[queue, stored.body])
        if copies > self._copies_max(message):
            offsets = sorted(self._offsets[queue, stored.body])
            _fail(Kind.DUPLICATE, f"{message} is at the offsets {offsets} of {queue}")

    def known(self, body: bytes) -> Message:
        """The message with a body that a reader got."""
        message = self.messages.get(body)
        if message is None:
            _fail(Kind.WRONG_BODY, f"nobody has sent {body[:24]!r} ({len(body)} bytes)")
        return message

    def _check_expected(self, message: Message, queue: Queue) -> None:
        """The message may be visible in a queue."""
        if message.refused == message.attempts:
            _fail(Kind.UNEXPECTED, f"{message} was refused, and is visible")
        if message.is_withdrawn:
            _fail(Kind.UNEXPECTED, f"{message} was withdrawn, and is visible")
        if message.is_half and not message.is_commit_asked:
            _fail(Kind.EARLY, f"{message} is not committed, and visible")
        if message.queue.generation != queue.generation and not message.may_return:
            _fail(Kind.UNEXPECTED, f"{message} of a deleted topic is in {queue}")

    def _copies_max(self, message: Message) -> int:
        stored = message.attempts - message.refused
        return stored * (1 + self.crashes - message.crashes) if message.delay_ms else stored

    # --- committed offsets -----------------------------------------------------------------------

    def commit(self, group: str, queue: Queue, offset: int) -> None:
        """A reader is about to commit an offset."""
        self._commits[group, queue][offset] += 1

    def commit_answered(self, group: str, queue: Queue, offset: int) -> None:
        """The broker has done or refused a commit."""
        self._commits[group, queue][offset] -= 1

    def committed(self, group: str, queue: Queue, offset: int) -> None:
        """The broker says that a group has committed an offset."""
        if offset not in self._commits[group, queue]:
            _fail(Kind.GAP, f"{group} never committed {offset} of {queue}")

    # --- pops -----------------------------------------------------------------------------------

    def pop(
        self,
        group: str,
        queue: Queue,
        body: bytes,
        *,
        offset: int | None,
        pop_ms: int,
        invisible_ms: int,
    ) -> Message:
        """A pop returned a message; without `offset` it comes from the group's retry topic."""
        message = self.known(body)
        if offset is not None:
            self._note(queue, offset, body)
        self._check_expected(message, queue)
        popped = message.pops.setdefault(group, _Popped())
        # After a crash what was popped before may come twice.
        if message.is_single and message.crashes == self.crashes:
            if popped.acked_crashes == self.crashes and pop_ms > popped.acked_ms:
                _fail(Kind.DUPLICATE, f"{message} was acknowledged by {group}, and popped again")
            # The answers of two pops may arrive in the other order.
            is_overlapping = popped.pop_ms <= pop_ms < popped.invisible_until_ms
            if is_overlapping:
                early_ms = popped.invisible_until_ms - pop_ms
                _fail(Kind.EARLY, f"{message} was popped again {early_ms} ms before its time")
        if pop_ms >= popped.pop_ms or popped.crashes < self.crashes:
            popped.pop_ms = pop_ms
            popped.invisible_until_ms = pop_ms + invisible_ms
            popped.crashes = self.crashes
        return message

    def acknowledging_pop(self, group: str, message: Message) -> None:
        """A member is about to acknowledge a message."""
        message.pops[group].is_ack_sent = True

    def acknowledged_pop(self, group: str, message: Message, now_ms: int, crashes: int) -> None:
        """The acknowledgement succeeded in time; `crashes` were there when it was sent."""
        message.pops[group].acked_ms = now_ms
        message.pops[group].acked_crashes = crashes

    def changing_pop(self, group: str, message: Message, visible_ms: int) -> None:
        """A member is about to change a message's invisible time; nobody knows whether it does."""
        popped = message.pops[group]
        popped.invisible_until_ms = min(popped.invisible_until_ms, visible_ms)

    def changed_pop(self, group: str, message: Message, pop_ms: int, invisible_ms: int) -> None:
        """A member has changed a message's invisible time, and no crash came since it asked."""
        popped = message.pops[group]
        if pop_ms >= popped.pop_ms:
            popped.pop_ms = pop_ms
            popped.invisible_until_ms = pop_ms + invisible_ms

    # --- the end --------------------------------------------------------------------------------

    def finish(self, bounds: dict[Queue, tuple[int, int]], now_ms: int = _NEVER_MS) -> None:
        """Every queue was read from its start to its end, and all due by a time is delivered."""
        for queue, (_, end) in bounds.items():
            if max(self.content[queue], default=-1) >= end:
                _fail(Kind.LOST, f"{queue} ends at {end}, and was read further")
        for message in self.messages.values():
            if not message.acknowledged or message.may_be_gone or message.is_withdrawn:
                continue
            if message.sent_ms + message.delay_ms > now_ms:
                continue
            begin, end = bounds[message.queue]
            offsets = self._offsets[message.queue, message.body]
            if not any(begin <= offset < end for offset in offsets):
                _fail(Kind.LOST, f"{message} was acknowledged, and is not in [{begin}, {end})")

    def finish_group(
        self, group: str, bounds: dict[Queue, tuple[int, int]], drained: set[bytes]
    ) -> None:
        """A group was popped until nothing came, longer than any invisible time."""
        for queue, (begin, end) in bounds.items():
            for offset in range(begin, end):
                message = self.messages[self.content[queue][offset]]
                popped = message.pops.get(group)
                is_ack_sent = popped is not None and popped.is_ack_sent
                if not is_ack_sent and message.body not in drained:
                    _fail(Kind.LOST, f"{message} at offset {offset} never came to {group}")


def _fail(kind: Kind, text: str) -> NoReturn:
    raise Violation(kind, text)
