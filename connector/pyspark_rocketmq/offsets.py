"""SourceOffset <-> the dict that Spark writes into its checkpoint.

    {"version": 1,
     "births":  {topic: {broker: {queue: milliseconds}}},
     "offsets": {topic: {broker: {queue: next offset}}},
     "starts":  {topic: {broker: {queue: first offset}}},
     "initial": true}

`starts` holds the queues of this batch that do not begin where the offset before ended: those it
did not have (all of them in batch 0, whose start Spark does not log), and those whose old place is
gone. A replayed batch so begins where it began. In the initial offset every queue starts where it
stands; `initial` is only there, and for as long as nothing was read since. `births` is when offset
0 of a queue was stored, where it was still there: should it become another time, then the topic was
deleted and created anew. (A time of the plan would have to be compared across two machines'
clocks.) The dict is canonical: unchanged offsets are the identical text, or Spark would plan
empty batches for ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark_rocketmq.errors import UnsupportedError
from rocketmq_wire.errors import LocalProtocolError
from rocketmq_wire.model import QueueId

VERSION: Final = 1


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
    births: Mapping[QueueId, int] = field(default_factory=dict)
    is_initial: bool = False
    """True when nothing was read to get here: such a place is never committed."""

    @classmethod
    def initial(cls, offsets: Mapping[QueueId, int], births: Mapping[QueueId, int]) -> SourceOffset:
        """Where a new query begins: every queue starts where it stands."""
        return cls(offsets, dict(offsets), births, is_initial=True)

    def to_json(self) -> dict[str, Any]:
        """The canonical dict."""
        value = {
            "version": VERSION,
            "births": nested(self.births),
            "offsets": nested(self.offsets),
            "starts": nested(self.starts),
        }
        return {**value, "initial": True} if self.is_initial else value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SourceOffset:
        """Read a checkpointed dict. Raises UnsupportedError and CheckpointError."""
        text = json.dumps(value)[:200]
        if not isinstance(value, Mapping) or "version" not in value:
            raise CheckpointError("was not written by this source", text)
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
                is_initial=value.get("initial") is True,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError("is damaged", text) from error


def nested(offsets: Mapping[QueueId, int]) -> dict[str, dict[str, dict[str, int]]]:
    """topic -> broker -> queue -> number, in queue order."""
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(offsets):
        brokers = topics.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker, {})[str(queue.index)] = offsets[queue]
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
