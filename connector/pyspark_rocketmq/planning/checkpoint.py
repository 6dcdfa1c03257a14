"""SourceOffset <-> the dict that Spark writes into its checkpoint.

    {"version": 1,
     "births":  {topic: {broker: {queue: milliseconds}}},
     "firsts":  {topic: {broker: {queue: first offset there}}},
     "offsets": {topic: {broker: {queue: next offset}}},
     "starts":  {topic: {broker: {queue: first offset}}},
     "initial": true}

- `offsets`: the next offset of every queue.
- `starts`: the queues of this batch that do not begin where the offset before ended, so that a
  replayed batch begins at the same offsets. These are queues that the offset before did not have
  (all of them in batch 0, whose start Spark does not log), and queues whose next offset was gone.
- `initial`: present until the query has read a message. Such an offset is never committed.
- `births`: when the message at offset 0 of a queue was stored (its first store time). If that time
  changes, the topic was deleted and created again. (A time of the plan would have to be compared
  across two machines' clocks.)
- `firsts`: the first offset of a queue whose offset 0 was gone; absent if there are none.

`births` and `firsts` are as known when the batch was planned; a change of them alone is no reason
for a batch. The dict is canonical, and unchanged offsets give the identical text: otherwise Spark
would plan empty batches for ever.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark_rocketmq.errors import CheckpointError, UnsupportedError
from pyspark_rocketmq.planning.topic_identity import QueueIdentity
from rocketmq_wire.model import QueueId

VERSION: Final = 1
# The start and the end of one batch, and of the batch that is planned meanwhile.
_KEPT: Final = 4


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The offset that Spark checkpoints: the next offset of every queue."""

    offsets: Mapping[QueueId, int]
    starts: Mapping[QueueId, int] = field(default_factory=dict)
    first_store_times: Mapping[QueueId, int] = field(default_factory=dict)
    first_offsets: Mapping[QueueId, int] = field(default_factory=dict)
    is_initial: bool = False
    """True if the query has read no message yet: such an offset is never committed."""

    @classmethod
    def initial(
        cls, offsets: Mapping[QueueId, int], first_store_times: Mapping[QueueId, int]
    ) -> SourceOffset:
        return cls(offsets, dict(offsets), first_store_times, is_initial=True)

    def identities(self) -> dict[QueueId, QueueIdentity]:
        """Return the identity of each queue that has one."""
        times, offsets = self.first_store_times, self.first_offsets
        queues = (*times, *offsets)
        return {queue: QueueIdentity(times.get(queue), offsets.get(queue)) for queue in queues}

    def has_identity_of(self, other: SourceOffset) -> bool:
        """True if both hold the same objects for first store times and first offsets."""
        return (
            self.first_store_times is other.first_store_times
            and self.first_offsets is other.first_offsets
        )

    def identity_json(self) -> dict[str, Any]:
        """Return the part of the canonical dict that rarely changes."""
        identity = {"births": nested(self.first_store_times)}
        return (
            {**identity, "firsts": nested(self.first_offsets)} if self.first_offsets else identity
        )

    def to_json(self, identity: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the canonical dict; `identity` is this offset's `identity_json`, if known."""
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
    """Remembers the last few offsets, since Spark passes the same ones several times."""

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
        """As `SourceOffset.to_json`; formats the identity, which rarely changes, only once."""
        identity = self._identity
        if identity is None or not identity[0].has_identity_of(offset):
            identity = self._identity = offset, offset.identity_json()
        value = offset.to_json(identity[1])
        self._known.appendleft((value, offset))
        return value


def _shown(value: object) -> str:
    return json.dumps(value)[:200]


def nested(offsets: Mapping[QueueId, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Nest numbers as topic -> broker -> queue -> number, in queue order."""
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
    """Reverse `nested`. Raises ValueError for what is no offset."""
    offsets: dict[QueueId, int] = {}
    for topic, brokers in topics.items():
        for broker, queues in brokers.items():
            for index, offset in queues.items():
                if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
                    raise ValueError(f"not an offset: {offset!r}")
                offsets[QueueId(topic, broker, int(index))] = offset
    return offsets
