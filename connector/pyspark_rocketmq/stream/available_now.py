"""How far a run with AvailableNow reads: its bounds are frozen when the run begins.

by offset   the end offset of every queue; a member of a group freezes the end of a queue that
            it gains during the run when it gains it
by pop      the number of messages that wait
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketmq_wire.model import QueueId


class FrozenEnds:
    """The end offsets of a run; not frozen with any other trigger."""

    def __init__(self) -> None:
        self._ends: dict[QueueId, int] | None = None

    @property
    def is_frozen(self) -> bool:
        return self._ends is not None

    def freeze(self, ends: Mapping[QueueId, int]) -> None:
        self._ends = dict(ends)

    def freeze_gained(self, queue: QueueId, end: int) -> None:
        """Freeze the end of a queue gained during the run."""
        if self._ends is not None:
            self._ends.setdefault(queue, end)

    def freeze_again(self, queue: QueueId, end: int) -> None:
        """Freeze the end of a queue that is read again from an earlier offset."""
        if self._ends is not None:
            self._ends[queue] = end

    def of(self, ends: Mapping[QueueId, int]) -> Mapping[QueueId, int]:
        """Return the frozen ends, or else the present ones."""
        return ends if self._ends is None else self._ends


class FrozenCount:
    """How many messages a run may still pop for the first time; None: without an end."""

    def __init__(self) -> None:
        self._left: int | None = None

    @property
    def may_pop(self) -> bool:
        return self._left is None or self._left > 0

    def freeze(self, count: int | None) -> None:
        self._left = count

    def note_popped(self, count: int) -> None:
        """Count messages popped for the first time; a redelivered one was not counted before."""
        if self._left is not None:
            self._left -= count
