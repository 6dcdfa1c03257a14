"""SourceOffset <-> the dict that Spark writes into its checkpoint.

    {"version": 1,
     "births":  {topic: {broker: {queue: milliseconds}}},
     "firsts":  {topic: {broker: {queue: first offset there}}},
     "offsets": {topic: {broker: {queue: next offset}}},
     "starts":  {topic: {broker: {queue: first offset}}},
     "initial": true}

`starts` holds the queues of this batch that do not begin where the offset before ended: those it
did not have (all of them in batch 0, whose start Spark does not log), and those whose old place is
gone. A replayed batch so begins where it began. In the initial offset every queue starts where it
stands; `initial` is only there, and for as long as nothing was read since. `births` is when offset
0 of a queue was stored, where it was still there: should it become another time, then the topic was
deleted and created anew. (A time of the plan would have to be compared across two machines'
clocks.) `firsts` is the first offset that was there, where offset 0 was gone; it is left out when
empty. Both are as they were known when the batch was planned, and what is known better since is no
reason for a batch: the dict is canonical, and unchanged offsets are the identical text, or Spark
would plan empty batches for ever.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark_rocketmq.errors import UnsupportedError
from rocketmq_wire.errors import LocalProtocolError
from rocketmq_wire.model import QueueId

VERSION: Final = 1
# The offset before and the one behind of a batch, and of the one that is planned meanwhile.
_KEPT: Final = 4


class CheckpointError(LocalProtocolError):
    """The checkpoint holds an offset that this source did not write."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason, text)
        self.reason, self.text = reason, text

    def __str__(self) -> str:
        return (
            f"[ROCKETMQ_OPTION.CHECKPOINT] the checkpoint's offset {self.text} {self.reason}. "
            "Use the checkpoint that this query wrote, or a new one."
        )


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """What Spark checkpoints: every queue's next offset."""

    offsets: Mapping[QueueId, int]
    starts: Mapping[QueueId, int] = field(default_factory=dict)
    first_store_times: Mapping[QueueId, int] = field(default_factory=dict)
    first_offsets: Mapping[QueueId, int] = field(default_factory=dict)
    is_initial: bool = False
    """True when nothing was read to get here: such a place is never committed."""

    @classmethod
    def initial(
        cls, offsets: Mapping[QueueId, int], first_store_times: Mapping[QueueId, int]
    ) -> SourceOffset:
        """Where a new query begins: every queue starts where it stands."""
        return cls(offsets, dict(offsets), first_store_times, is_initial=True)

    def has_identity_of(self, other: SourceOffset) -> bool:
        """True when both hold the very same objects for births and first offsets."""
        return (
            self.first_store_times is other.first_store_times
            and self.first_offsets is other.first_offsets
        )

    def identity_json(self) -> dict[str, Any]:
        """The part of the canonical dict that hardly ever changes."""
        identity = {"births": nested(self.first_store_times)}
        return (
            {**identity, "firsts": nested(self.first_offsets)} if self.first_offsets else identity
        )

    def to_json(self, identity: dict[str, Any] | None = None) -> dict[str, Any]:
        """The canonical dict; `identity` are this offset's, laid out before."""
        value = {
            "version": VERSION,
            **(self.identity_json() if identity is None else identity),
            "offsets": nested(self.offsets),
            "starts": nested(self.starts),
        }
        return {**value, "initial": True} if self.is_initial else value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SourceOffset:
        """Read a checkpointed dict. Raises UnsupportedError and CheckpointError."""
        if not isinstance(value, Mapping) or "version" not in value:
            raise CheckpointError("was not written by this source", _shown(value))
        if value["version"] != VERSION:
            raise UnsupportedError(
                "CHECKPOINT_VERSION",
                f"the checkpoint's offset has version {value['version']!r}, this release reads "
                f"version {VERSION}: use the release that wrote it, or a new checkpoint",
            )
        try:
            return cls(
                flat(value["offsets"]),
                flat(value.get("starts", {})),
                flat(value.get("births", {})),
                flat(value.get("firsts", {})),
                is_initial=value.get("initial") is True,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError("is damaged", _shown(value)) from error


class ParsedOffsets:
    """The last few offsets that Spark was given or handed in: it hands the same ones in again."""

    def __init__(self) -> None:
        self._known: deque[tuple[Mapping[str, Any], SourceOffset]] = deque(maxlen=_KEPT)
        self._identity: tuple[SourceOffset, dict[str, Any]] | None = None

    def parse(self, value: Mapping[str, Any]) -> SourceOffset:
        """As `SourceOffset.from_json`; equal offsets give one object."""
        for known, offset in self._known:
            if known == value:
                return offset
        offset = SourceOffset.from_json(value)
        self._known.appendleft((value, offset))
        return offset

    def write(self, offset: SourceOffset) -> dict[str, Any]:
        """As `SourceOffset.to_json`; marks, which hardly ever change, are laid out once."""
        laid_out = self._identity
        if laid_out is None or not laid_out[0].has_identity_of(offset):
            laid_out = self._identity = offset, offset.identity_json()
        value = offset.to_json(laid_out[1])
        self._known.appendleft((value, offset))
        return value


def _shown(value: object) -> str:
    return json.dumps(value)[:200]


def nested(offsets: Mapping[QueueId, int]) -> dict[str, dict[str, dict[str, int]]]:
    """topic -> broker -> queue -> number, in queue order."""
    topics: dict[str, dict[str, dict[str, int]]] = {}
    queues: dict[str, int] = {}
    last: tuple[str, str] | None = None
    for (topic, broker, index), offset in sorted(offsets.items()):
        if (topic, broker) != last:
            last = topic, broker
            queues = topics.setdefault(topic, {}).setdefault(broker, {})
        queues[str(index)] = offset
    return topics


def flat(topics: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[QueueId, int]:
    """The reverse of `nested`."""
    offsets: dict[QueueId, int] = {}
    for topic, brokers in topics.items():
        for broker, queues in brokers.items():
            for index, offset in queues.items():
                if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
                    raise ValueError(f"not an offset: {offset!r}")
                offsets[QueueId(topic, broker, int(index))] = offset
    return offsets
