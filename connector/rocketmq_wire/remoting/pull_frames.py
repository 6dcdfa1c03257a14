"""Frames of pulls that differ from earlier ones only in offset and opaque number.

A real broker returns 32 messages per pull, so a download sends thousands of frames that differ in
two numbers. The rest is encoded once; the bytes are those of the general codec.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from rocketmq_wire.remoting.frames import HEAD_SIZE, pack_head
from rocketmq_wire.requests.messages import PullMessages

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
    """Makes the frames of one session's pulls. Not thread-safe."""

    def __init__(self, encode: Callable[[PullMessages, int], bytes]) -> None:
        """`encode` is the general codec: a pull and its opaque number -> the frame."""
        self._encode = encode
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
