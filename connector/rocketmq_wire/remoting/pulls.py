"""The frames of pulls, and the answers to joined pulls, which are sent in one write.

A real broker answers with 32 messages per pull. A single pull costs 38 us of a core, a joined pull
9 us: the answers of several pulls are gathered as they are received and completed together. Headers
of one server differ in four numbers, so a pattern made of one header reads the others.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from rocketmq_wire.errors import BrokerError, ProtocolError, RocketMQError
from rocketmq_wire.model import Buffer
from rocketmq_wire.remoting.codec import decode_reply
from rocketmq_wire.remoting.frames import HEAD_SIZE, pack_head
from rocketmq_wire.remoting.headers import HeaderCodec, decode_header
from rocketmq_wire.requests.messages import PullMessages, PullReplies, PullReply, PullStatus

Answer = PullReply | RocketMQError

# One server has few shapes: its answers suggest another replica, or do not.
_SHAPES_MAX: Final = 8
_NUMBER: Final = r"(0|[1-9][0-9]{0,18})"
_NAMES: Final = ("opaque", "nextBeginOffset", "minOffset", "maxOffset")
# One for each queue of a download, and for each of its few message counts.
_TEMPLATES_MAX: Final = 256
# Longer frames are rare and not worth keeping.
_FRAME_SIZE_MAX: Final = 4096
# Stand for the numbers in a template; a frame that contains one of them elsewhere gets none.
_OFFSET_MARK: Final = 1_234_567_890_123_456_789
_OPAQUE_MARK: Final = 1_987_654_321


class _Template(NamedTuple):
    before: bytes
    between: bytes
    """The bytes between offset and opaque number."""
    after: bytes


class PullFrames:
    """Makes the frames of one session's pulls. Not thread-safe.

    A download sends thousands of frames that differ in offset and opaque number. The rest is
    encoded once; the bytes are those of the general codec.
    """

    def __init__(
        self, encode: Callable[[PullMessages, int], bytes], *, is_signed: bool = False
    ) -> None:
        """`encode` is the general codec: a pull and its opaque number -> the frame.

        A signed frame differs in its signature, too: each is encoded as a whole.
        """
        self._encode = encode
        self._is_signed = is_signed
        self._templates: dict[tuple[object, ...], _Template] = {}

    def frames(self, pull: PullMessages, opaques: Sequence[int]) -> bytes:
        """The frames of all times of a pull, back to back. Raises LocalProtocolError."""
        template = self._find(pull)
        starts = range(pull.start, pull.start + pull.times * pull.count_max, pull.count_max)
        if template is None:
            each = (replace(pull, start=start, times=1) for start in starts)
            return b"".join(map(self._encode, each, opaques))
        before, between, after = template
        headers = [
            b"%b%d%b%d%b" % (before, start, between, opaque, after)
            for start, opaque in zip(starts, opaques, strict=True)
        ]
        return b"".join([part for header in headers for part in (pack_head(len(header)), header)])

    def frame(self, pull: PullMessages, opaque: int) -> bytes:
        """The frame of a pull. Raises LocalProtocolError if it cannot be sent."""
        template = self._find(pull)
        if template is None:
            return self._encode(pull, opaque)
        before, between, after = template
        header = b"%b%d%b%d%b" % (before, pull.start, between, opaque, after)
        return pack_head(len(header)) + header

    def _find(self, pull: PullMessages) -> _Template | None:
        if self._is_signed:
            return None
        queue, subscription = pull.queue, pull.subscription
        # All fields but the offset, as plain values, which a tuple hashes without calling Python.
        key = (
            *(queue.index, queue.topic, queue.broker, pull.group, pull.count_max, pull.bytes_max),
            *(subscription.expression, subscription.kind, pull.subscription_version),
            *(pull.uses_registered_subscription, pull.commit, pull.suspend_ms),
        )
        template = self._templates.get(key)
        if template is None:
            template = self._template(pull)
            if template is None:
                return None
            if len(self._templates) >= _TEMPLATES_MAX:
                self._templates.clear()
            self._templates[key] = template
        return template

    def _template(self, pull: PullMessages) -> _Template | None:
        frame = self._encode(replace(pull, start=_OFFSET_MARK), _OPAQUE_MARK)
        before, _, rest = frame[HEAD_SIZE:].partition(b"%d" % _OFFSET_MARK)
        between, _, after = rest.partition(b"%d" % _OPAQUE_MARK)
        marks = (frame.count(b"%d" % _OFFSET_MARK), frame.count(b"%d" % _OPAQUE_MARK))
        if len(frame) > _FRAME_SIZE_MAX or marks != (1, 1) or not after:
            return None
        return _Template(before, between, after)


class _Numbers(NamedTuple):
    """The four numbers in which headers differ, in the order of `_NAMES`."""

    opaque: bytes
    next_begin: bytes
    start: bytes
    end: bytes


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """The pattern of headers of answers with messages; the four numbers may be any."""

    pattern: re.Pattern[bytes]
    order: tuple[int, ...]
    """The pattern's group of each number."""
    reply: PullReply
    """The reply of such a header, except for the numbers and the body."""

    def match(self, buffer: Buffer, start: int, end: int) -> Sequence[bytes] | None:
        """The numbers of a header of this shape, as `_Numbers` names them; None for others."""
        found = self.pattern.fullmatch(buffer, start, end)
        return None if found is None else found.group(*self.order)


def learn_shape(header: bytes, request: PullMessages) -> AnswerShape | None:
    """The shape of the JSON header of an answer with messages; None for any other header."""
    try:
        decoded = decode_header(header, HeaderCodec.JSON)
        reply = decode_reply(request, decoded, b"")
    except (ProtocolError, BrokerError):
        return None
    if not decoded.is_reply or reply.status is not PullStatus.FOUND:
        return None
    pattern = re.escape(header.decode("latin-1"))
    for name in _NAMES:
        # A quote, a comma or a brace follows the number; the pattern escapes the brace.
        number = re.compile(rf'("{name}":"?)[0-9]+(?=[",\\])')
        if len(number.findall(pattern)) != 1:
            return None
        pattern = number.sub(lambda found: found[1] + _NUMBER, pattern)
    in_order = sorted(_NAMES, key=lambda name: header.index(b'"%b"' % name.encode()))
    order = tuple([in_order.index(name) + 1 for name in _NAMES])
    shape = AnswerShape(re.compile(pattern.encode("latin-1")), order, reply)
    numbers = [decoded.opaque, reply.next_begin, reply.start, reply.end]
    found = shape.match(header, 0, len(header))
    return shape if found is not None and [int(digits) for digits in found] == numbers else None


def join_answers(pull: PullMessages, answers: Sequence[Answer]) -> PullReply | PullReplies:
    """Join the answers of a pull's times into one if each brought what was planned."""
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


@dataclass(slots=True, eq=False)
class _JoinedPull:
    """The pulls of one write and their answers; an answer as planned is kept as its body."""

    pull: PullMessages
    first: int
    answers: list[bytes | Answer | None]
    missing: int
    shape: AnswerShape | None = None
    numbers: Sequence[bytes] = ()
    """The numbers in the last header of that shape."""

    def result(self) -> PullReply | PullReplies:
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
    """The joined pulls of one session. Not thread-safe."""

    def __init__(self) -> None:
        self._pulls: dict[int, _JoinedPull] = {}
        self._by_opaque: dict[int, tuple[_JoinedPull, int]] = {}
        self._shapes: list[AnswerShape] = []
        self.done: deque[tuple[int, PullReply | PullReplies]] = deque()
        """Completed joined pulls: their first opaque number and the joint answer."""

    def __contains__(self, opaque: int) -> bool:
        return opaque in self._by_opaque

    def start(self, pull: PullMessages, opaques: Sequence[int]) -> None:
        """Register a pull sent under these opaque numbers; the first one names the whole."""
        joined = self._pulls[opaques[0]] = _JoinedPull(
            pull, opaques[0], [None] * pull.times, pull.times
        )
        self._by_opaque.update((opaque, (joined, index)) for index, opaque in enumerate(opaques))

    def forget(self, first: int) -> None:
        """Drop joined pulls that the caller gave up."""
        joined = self._pulls.pop(first, None)
        if joined is not None:
            left = [opaque for opaque, (other, _) in self._by_opaque.items() if other is joined]
            for opaque in left:
                del self._by_opaque[opaque]

    def clear(self) -> None:
        self._pulls.clear()
        self._by_opaque.clear()
        self.done.clear()

    def stands_for_all(self, opaque: int) -> bool:
        """True for the first opaque number of joined pulls with missing answers."""
        return opaque in self._pulls

    def request_of(self, opaque: int) -> PullMessages | None:
        """The pull that an opaque number belongs to; None for other requests."""
        found = self._by_opaque.get(opaque)
        return None if found is None else found[0].pull

    def take(self, buffer: Buffer, header: int, body: int, end: int) -> bool:
        """Take an answer from the receive buffer; False leaves it to the general codec.

        `header`, `body` and `end` are the positions of its JSON header, its body and its end.
        """
        if not self._by_opaque:
            return False
        for shape in self._shapes:
            numbers = shape.match(buffer, header, body)
            if numbers is not None:
                break
        else:
            self._learn(bytes(memoryview(buffer)[header:body]))
            return False
        found = self._by_opaque.get(int(numbers[0]))
        if found is None:
            return False
        joined, index = found
        pull = joined.pull
        if int(numbers[1]) != pull.start + (index + 1) * pull.count_max or body == end:
            return False
        joined.shape, joined.numbers = shape, numbers
        self.put(int(numbers[0]), bytes(memoryview(buffer)[body:end]))
        return True

    def put(self, opaque: int, answer: bytes | Answer) -> None:
        """Add an answer: as the general codec read it, or the body of one as planned."""
        joined, index = self._by_opaque.pop(opaque)
        joined.answers[index] = answer
        joined.missing -= 1
        if not joined.missing:
            del self._pulls[joined.first]
            self.done.append((joined.first, joined.result()))

    def _learn(self, header: bytes) -> None:
        if len(self._shapes) >= _SHAPES_MAX:
            return
        pull = next(iter(self._pulls.values())).pull
        shape = learn_shape(header, pull)
        if shape is not None:
            self._shapes.append(shape)
