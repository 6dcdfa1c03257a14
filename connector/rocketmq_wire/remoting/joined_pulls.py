"""Pulls that are sent as one, and their answers: taken up together, their headers mostly unread.

A real broker answers with 32 messages a pull. Asking for them and taking each answer up by itself
costs 38 us of a core, together 9: the answers of some pulls are gathered where they are received,
and handed on as one. Headers of one server differ in four numbers: what one says is known once
another like it was read the general way.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from rocketmq_wire.errors import BrokerError, ProtocolError, RocketMQError
from rocketmq_wire.model import Buffer
from rocketmq_wire.remoting.codec import decode_reply
from rocketmq_wire.remoting.headers import HeaderCodec, decode_header
from rocketmq_wire.requests.messages import PullMessages, PullReplies, PullReply, PullStatus

Answer = PullReply | RocketMQError

# Of one server: its answers suggest another replica, or do not.
_SHAPES_MAX: Final = 8
_NUMBER: Final = r"(0|[1-9][0-9]{0,18})"
_NAMES: Final = ("opaque", "nextBeginOffset", "minOffset", "maxOffset")


class _Numbers(NamedTuple):
    """What differs from one header to the next, in the order of `_NAMES`."""

    opaque: bytes
    next_begin: bytes
    start: bytes
    end: bytes


class AnswerShape:
    """A header that says messages were found, with any numbers in the place of its own four."""

    __slots__ = ("_order", "_pattern", "reply")

    def __init__(self, pattern: re.Pattern[bytes], order: Sequence[int], reply: PullReply) -> None:
        self._pattern, self._order = pattern, tuple(order)
        self.reply = reply
        """What such a header says, but for the numbers and the body."""

    def match(self, buffer: Buffer, start: int, end: int) -> Sequence[bytes] | None:
        """The numbers of a header in which nothing else differs, as `_Numbers` names them."""
        found = self._pattern.fullmatch(buffer, start, end)
        return None if found is None else found.group(*self._order)


def learn_shape(header: bytes, request: PullMessages) -> AnswerShape | None:
    """The shape of a JSON header that says messages were found; None for any other."""
    try:
        decoded = decode_header(header, HeaderCodec.JSON)
        reply = decode_reply(request, decoded, b"")
    except (ProtocolError, BrokerError):
        return None
    if not decoded.is_reply or reply.status is not PullStatus.FOUND:
        return None
    pattern = re.escape(header.decode("latin-1"))
    for name in _NAMES:
        # Behind the number stands a quote, a comma or a brace, which is escaped in a pattern.
        place = re.compile(rf'("{name}":"?)[0-9]+(?=[",\\])')
        if len(place.findall(pattern)) != 1:
            return None
        pattern = place.sub(lambda found: found[1] + _NUMBER, pattern)
    in_order = sorted(_NAMES, key=lambda name: header.index(b'"%b"' % name.encode()))
    order = [in_order.index(name) + 1 for name in _NAMES]
    shape = AnswerShape(re.compile(pattern.encode("latin-1")), order, reply)
    said = [decoded.opaque, reply.next_begin, reply.start, reply.end]
    found = shape.match(header, 0, len(header))
    return shape if found is not None and [int(number) for number in found] == said else None


def join_answers(pull: PullMessages, answers: Sequence[Answer]) -> PullReply | PullReplies:
    """One answer for all of a pull's times, where each brought just what was planned."""
    bodies: list[Buffer] = []
    for number, answer in enumerate(answers, 1):
        planned = pull.start + number * pull.count_max
        if (
            not isinstance(answer, PullReply)
            or (answer.status, answer.next_begin) != (PullStatus.FOUND, planned)
            or not answer.records
            or answer.sizes is not None
        ):
            return PullReplies(tuple(answers))
        bodies += answer.records
    last = answers[-1]
    assert isinstance(last, PullReply)
    return replace(last, records=tuple(bodies))


class _Joint:
    """Pulls that were sent as one. An answer is its body where it is what was planned."""

    __slots__ = ("answers", "first", "missing", "numbers", "pull", "shape")

    def __init__(self, pull: PullMessages, first: int) -> None:
        self.pull, self.first = pull, first
        self.answers: list[bytes | Answer | None] = [None] * pull.times
        self.missing = pull.times
        self.shape: AnswerShape | None = None
        self.numbers: Sequence[bytes] = ()
        """Of the last header of that shape."""

    def result(self) -> PullReply | PullReplies:
        """The answer to all of them."""
        bodies = [answer for answer in self.answers if isinstance(answer, bytes)]
        if len(bodies) == len(self.answers):
            return self._reply(self.pull.times - 1, *bodies)
        answers = [
            self._reply(number, answer) if isinstance(answer, bytes) else answer
            for number, answer in enumerate(self.answers)
        ]
        return join_answers(self.pull, [answer for answer in answers if answer is not None])

    def _reply(self, number: int, *bodies: bytes) -> PullReply:
        assert self.shape is not None
        numbers = _Numbers(*self.numbers)
        return replace(
            self.shape.reply,
            next_begin=self.pull.start + (number + 1) * self.pull.count_max,
            start=int(numbers.start),
            end=int(numbers.end),
            records=bodies,
        )


class JoinedPulls:
    """Those of one session. Not thread-safe."""

    def __init__(self) -> None:
        self._joints: dict[int, _Joint] = {}
        self._places: dict[int, tuple[_Joint, int]] = {}
        self._shapes: list[AnswerShape] = []
        self.done: deque[tuple[int, PullReply | PullReplies]] = deque()
        """The first number of pulls that are answered, all of them, and the answer."""

    def __contains__(self, opaque: int) -> bool:
        return opaque in self._places

    def start(self, pull: PullMessages, opaques: Sequence[int]) -> None:
        """They were sent under these numbers, of which the first stands for all."""
        joint = self._joints[opaques[0]] = _Joint(pull, opaques[0])
        self._places.update((opaque, (joint, place)) for place, opaque in enumerate(opaques))

    def forget(self, first: int) -> None:
        """Nobody waits for them any more."""
        joint = self._joints.pop(first, None)
        if joint is not None:
            left = [opaque for opaque, (other, _) in self._places.items() if other is joint]
            for opaque in left:
                del self._places[opaque]

    def clear(self) -> None:
        """Nobody waits for any of them."""
        self._joints.clear()
        self._places.clear()
        self.done.clear()

    def stands_for_all(self, opaque: int) -> bool:
        """True for the first number of pulls of which some are not answered yet."""
        return opaque in self._joints

    def request_of(self, opaque: int) -> PullMessages | None:
        """The pulls that one number belongs to."""
        place = self._places.get(opaque)
        return None if place is None else place[0].pull

    def take(self, buffer: Buffer, header: int, body: int, end: int) -> bool:
        """Take an answer from where it was received; False: it wants the general way.

        The three numbers are where its JSON header, its body and what is behind it begin.
        """
        if not self._places:
            return False
        for shape in self._shapes:
            numbers = shape.match(buffer, header, body)
            if numbers is not None:
                break
        else:
            self._learn(bytes(memoryview(buffer)[header:body]))
            return False
        found = self._places.get(int(numbers[0]))
        if found is None:
            return False
        joint, place = found
        pull = joint.pull
        if int(numbers[1]) != pull.start + (place + 1) * pull.count_max or body == end:
            return False
        joint.shape, joint.numbers = shape, numbers
        self._put(int(numbers[0]), bytes(memoryview(buffer)[body:end]))
        return True

    def put(self, opaque: int, answer: Answer) -> None:
        """An answer that was read the general way."""
        self._put(opaque, answer)

    def _put(self, opaque: int, answer: bytes | Answer) -> None:
        joint, place = self._places.pop(opaque)
        joint.answers[place] = answer
        joint.missing -= 1
        if not joint.missing:
            del self._joints[joint.first]
            self.done.append((joint.first, joint.result()))

    def _learn(self, header: bytes) -> None:
        if len(self._shapes) >= _SHAPES_MAX:
            return
        pull = next(iter(self._joints.values())).pull
        shape = learn_shape(header, pull)
        if shape is not None:
            self._shapes.append(shape)
