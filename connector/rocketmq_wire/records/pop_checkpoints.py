"""Records of a broker's revive topic: checkpoints, acks and batch acks <-> JSON bodies.

A checkpoint names the messages of one queue that one pop took; acks name those that the member
acknowledged. All of them carry the checkpoint's key: topic, group, queue, start, pop time, broker.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.fastjson import Json, json_object, member_int, member_list, member_text
from rocketmq_wire.model import Buffer
from rocketmq_wire.numbers import whole_number

CHECKPOINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"

REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
REVIVE_QUEUE_COUNT: Final = 8

_COUNT_MAX: Final = 127


class CheckpointKey(NamedTuple):
    topic: str
    group: str
    queue_index: int
    start: int
    pop_ms: int
    broker: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The messages of one queue that one pop took."""

    key: CheckpointKey
    invisible_ms: int
    offsets: tuple[int, ...]
    acked: int = 0
    """Bit i: the i-th message is acknowledged."""
    revive_offset: int = 0
    rewrites: int = 0
    """How often the broker rewrote it because it could not write the messages again."""

    @property
    def visible_ms(self) -> int:
        return self.key.pop_ms + self.invisible_ms

    @property
    def pending(self) -> tuple[int, ...]:
        """The offsets that are not acknowledged."""
        return tuple(
            offset for index, offset in enumerate(self.offsets) if not self.acked >> index & 1
        )


@dataclass(frozen=True, slots=True)
class Ack:
    """Acknowledged messages of a checkpoint: an ack of one offset, a batch ack of several."""

    key: CheckpointKey
    offsets: tuple[int, ...]


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    key = checkpoint.key
    body: dict[str, Json] = {
        "bm": _signed(checkpoint.acked),
        "bn": key.broker,
        "c": key.group,
        "d": [offset - key.start for offset in checkpoint.offsets],
        "it": checkpoint.invisible_ms,
        "n": len(checkpoint.offsets),
        "pt": key.pop_ms,
        "q": key.queue_index,
        "ro": checkpoint.revive_offset,
        "so": key.start,
        "t": key.topic,
    }
    if checkpoint.rewrites:
        # Java writes this number as text.
        body["rp"] = str(checkpoint.rewrites)
    return _json_bytes(body)


def decode_checkpoint(body: Buffer) -> Checkpoint:
    """Read a checkpoint. Raises RemoteProtocolError."""
    fields = json_object(body)
    key = _key_of(fields)
    differences = _integers(fields, "d")
    count = member_int(fields, "n", len(differences))
    if not 0 <= count <= _COUNT_MAX or len(differences) > _COUNT_MAX:
        raise RemoteProtocolError(f"a checkpoint of {count} messages")
    # Old brokers write only the number of messages from the start on.
    steps = differences or range(count)
    rewrites = whole_number(str(fields.get("rp") or "0"))
    return Checkpoint(
        key=key,
        invisible_ms=member_int(fields, "it"),
        offsets=tuple(key.start + step for step in steps),
        acked=member_int(fields, "bm", 0) & 0xFFFFFFFF,
        revive_offset=member_int(fields, "ro", 0),
        rewrites=_COUNT_MAX if rewrites is None else rewrites,
    )


def encode_ack(ack: Ack) -> bytes:
    """An ack of one offset, or a batch ack of several."""
    key = ack.key
    body: dict[str, Json] = {
        "ao": ack.offsets[0] if len(ack.offsets) == 1 else -1,
        "bn": key.broker,
        "c": key.group,
        "pt": key.pop_ms,
        "q": key.queue_index,
        "so": key.start,
        "t": key.topic,
    }
    if len(ack.offsets) != 1:
        body["aol"] = list(ack.offsets)
    return _json_bytes(body)


def decode_ack(body: Buffer) -> Ack:
    """Read an ack or a batch ack. Raises RemoteProtocolError."""
    fields = json_object(body)
    offsets = _integers(fields, "aol") or (member_int(fields, "ao"),)
    return Ack(_key_of(fields), offsets)


def _json_bytes(body: dict[str, Json]) -> bytes:
    # Without nulls and object keys this is RocketMQ's own text, at less cost than fastjson's.
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _key_of(fields: dict[str, Json]) -> CheckpointKey:
    return CheckpointKey(
        topic=member_text(fields, "t"),
        group=member_text(fields, "c"),
        queue_index=member_int(fields, "q"),
        start=member_int(fields, "so"),
        pop_ms=member_int(fields, "pt"),
        broker=member_text(fields, "bn", ""),
    )


def _integers(fields: dict[str, Json], name: str) -> tuple[int, ...]:
    numbers = []
    for item in member_list(fields, name):
        if type(item) is not int or not -(1 << 63) <= item < 1 << 63:
            raise RemoteProtocolError(f"{name} holds {str(item)[:40]!r}, no number")
        numbers.append(item)
    return tuple(numbers)


def _signed(bits: int) -> int:
    """32 bits as Java's int."""
    return bits - (1 << 32) if bits >> 31 else bits
