"""Turns the bodies of pull and pop replies into message objects for listeners: pure.

The fixed header of a record is decoded at once; properties stay bytes until one is read.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rocketmq_arrow.decode.inflate import INFLATED_SIZE_MAX, inflate
from rocketmq_client.consumer.common.settings import unwrapped
from rocketmq_wire.errors import CorruptRecordError, InflateError, RemoteProtocolError
from rocketmq_wire.filters.tags import TagExpression
from rocketmq_wire.model import RETRY_PREFIX, Buffer, Host, QueueId, Subscription
from rocketmq_wire.records.handles import FIRST_POP_TIME, RECEIPT, ReceiptHandle
from rocketmq_wire.records.message_id import offset_message_id
from rocketmq_wire.records.properties import KEYS, TAGS, UNIQUE_KEY, decode_properties
from rocketmq_wire.records.record import FLAG_COMPRESSED, MAGIC_V1, body_crc, decode_record
from rocketmq_wire.requests.messages import PullReply
from rocketmq_wire.requests.pop import PopReply

RETRY_TOPIC: Final = "RETRY_TOPIC"
"""The property of a message from a retry topic that names its original topic."""
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"

# The fields before the body, with IPv4 hosts.
_HEAD: Final = struct.Struct(">iiIiiqqiq4siq4siiqi")
_OFFSET_FIELD: Final = 5
INFLATED_BATCH_MAX: Final = 16 * 1024 * 1024
"""Bytes to which the compressed bodies of one pull inflate, but for the last: 16 KB may become
16 MiB, and a pull brings 32 messages. A pull's rest is pulled again, a pop's unpacked later."""
_V6_FLAGS: Final = 0x30
_SHORT: Final = struct.Struct(">h")


@dataclass(slots=True, eq=False, repr=False)
class ReceivedMessage:
    """A message that a consumer received. Listeners may change `properties`."""

    topic: str
    """The topic."""
    broker: str
    """The broker's name."""
    queue_index: int
    """The queue's number at its broker."""
    queue_offset: int
    """The offset in the queue."""
    body: bytes
    """The body, decompressed."""
    raw_properties: bytes
    """The properties as stored; `properties` decodes them."""
    flag: int
    """The producer's own flag."""
    physical_offset: int
    """The byte position in the broker's log."""
    sys_flag: int
    """RocketMQ's flags, as bits."""
    born_ms: int
    """When the producer made the message, by its clock."""
    born_host: tuple[bytes, int]
    """The producer's address and port."""
    store_ms: int
    """When the broker stored it."""
    store_host: tuple[bytes, int]
    """The broker's address and port."""
    reconsume_times: int
    """How often the group sent it back."""
    store_size: int
    """The size in the broker's log, in bytes."""
    consume_start_ms: int = 0
    """When the listener was called; 0 before."""
    is_packed: bool = False
    """True while the body is still compressed: `unpack` decompresses it."""
    handle: ReceiptHandle | None = None
    """The handle that acknowledges a popped message; also among the properties, as `POP_CK`."""
    _properties: dict[str, str] | None = field(default=None, init=False)

    @property
    def properties(self) -> dict[str, str]:
        """The properties, the user's own and RocketMQ's."""
        if self._properties is None:
            self._properties = decode_properties(self.raw_properties)
            if self.consume_start_ms:
                self._properties[CONSUME_START_TIME] = str(self.consume_start_ms)
            if self.handle is not None:
                self._properties[RECEIPT] = self.handle.text()
                self._properties.setdefault(FIRST_POP_TIME, str(self.handle.pop_ms))
        return self._properties

    @property
    def tags(self) -> str | None:
        """The tag; None without one."""
        return self.properties.get(TAGS)

    @property
    def keys(self) -> str | None:
        """The keys, separated by blanks; None without any."""
        return self.properties.get(KEYS)

    @property
    def message_id(self) -> str:
        """The sender's id if there is one, else the broker's. A batch may share the sender's id."""
        return self.properties.get(UNIQUE_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The broker's id: its address and the record's byte position."""
        return offset_message_id(Host(*self.store_host), self.physical_offset)

    def unpack(self) -> None:
        """Decompress a body that was left compressed. Raises CorruptRecordError."""
        if self.is_packed:
            self.body = _inflated(self)
            self.is_packed = False

    def restore_topic(self) -> None:
        """Set a retry message's topic to the original one."""
        if self.topic.startswith(RETRY_PREFIX):
            self.topic = self.properties.get(RETRY_TOPIC, self.topic)

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage(topic={self.topic!r}, broker={self.broker!r}, "
            f"queue={self.queue_index}, offset={self.queue_offset}, bytes={len(self.body)})"
        )


def decode_messages(
    body: Buffer, *, broker: str, topic: str, tags: frozenset[str] = frozenset()
) -> list[ReceivedMessage]:
    """Decode messages in order; unless `tags` is empty, drop messages with other tags.

    A broker filters by the tag's hash, and hashes collide. Raises CorruptRecordError.
    """
    data = body if isinstance(body, bytes) else bytes(body)
    return _decode(data, broker, topic, tags)[0]


def _decode(
    data: bytes,
    broker: str,
    topic: str,
    tags: frozenset[str],
    inflated_max: int = sys.maxsize,
    *,
    packs: bool = False,
    dropped: list[str | None] | None = None,
) -> tuple[list[ReceivedMessage], int]:
    """Decode messages until their bodies have grown to `inflated_max`; also return the position.

    With `packs` it decodes all, and leaves the bodies of the rest compressed. Tags of messages that
    `tags` does not name are added to `dropped`.
    """
    messages: list[ReceivedMessage] = []
    position, end, head_size = 0, len(data), _HEAD.size
    inflated = 0
    topic_bytes = topic.encode("utf-8", "replace")
    is_retry = topic.startswith(RETRY_PREFIX)
    # The topic follows the body: one comparison checks that the record is an ordinary one.
    topic_part = bytes((len(topic_bytes) & 0xFF,)) + topic_bytes
    unpack, topic_size = _HEAD.unpack_from, len(topic_part)
    while position < end:
        if end - position < head_size:
            raise CorruptRecordError(f"pull from {broker}", position, "a record is cut off")
        (
            size, magic, crc, queue_index, flag, offset, physical, sys_flag, born_ms, born_address,
            born_port, store_ms, store_address, store_port, reconsume_times, _, body_size,
        ) = unpack(data, position)  # fmt: skip
        body_at = position + head_size
        topic_at = body_at + body_size
        tail_at = topic_at + topic_size
        if (
            magic != MAGIC_V1
            or sys_flag & _V6_FLAGS
            or body_size < 0
            or tail_at + 2 > position + size
            or position + size > end
            or data[topic_at:tail_at] != topic_part
            or _SHORT.unpack_from(data, tail_at)[0] != position + size - tail_at - 2
        ):
            message, position = _decode_unusual(data, position, broker)
        else:
            stored = data[body_at:topic_at]
            if body_crc(stored) != crc:
                raise CorruptRecordError(f"pull from {broker}", position, "its checksum is wrong")
            text = data[tail_at + 2 : position + size]
            message = ReceivedMessage(
                topic, broker, queue_index, offset, stored, text, flag, physical, sys_flag,
                born_ms, (born_address, born_port), store_ms, (store_address, store_port),
                reconsume_times, size,
            )  # fmt: skip
            position += size
        if tags and message.tags not in tags:
            if dropped is not None:
                dropped.append(message.tags)
            continue
        if message.sys_flag & FLAG_COMPRESSED:
            message.is_packed = inflated >= inflated_max
            if not message.is_packed:
                message.body = _inflated(message)
                inflated += len(message.body)
            elif not packs:
                return messages, position - message.store_size
        if is_retry:
            message.restore_topic()
        messages.append(message)
    return messages, position


def _inflated(message: ReceivedMessage) -> bytes:
    try:
        return inflate(message.body, message.sys_flag, INFLATED_SIZE_MAX)
    except InflateError as error:
        where = f"pull from {message.broker}, offset {message.queue_offset}"
        raise CorruptRecordError(where, message.physical_offset, str(error)) from error


def _decode_unusual(data: bytes, position: int, broker: str) -> tuple[ReceivedMessage, int]:
    """Decode a record with IPv6 hosts or a long topic, or refuse a damaged one."""
    stored, end = decode_record(data, position, where=f"pull from {broker}")
    born, store = stored.born_host, stored.store_host
    message = ReceivedMessage(
        stored.topic, broker, stored.queue_index, stored.queue_offset, stored.body, b"",
        stored.flag, stored.physical_offset, stored.sys_flag, stored.born_ms,
        (born.address, born.port), stored.store_ms, (store.address, store.port),
        stored.reconsume_times, stored.store_size,
    )  # fmt: skip
    message.properties.update(stored.properties)
    return message, end


def tags_of(subscription: Subscription) -> frozenset[str]:
    """The tags that a subscription names; empty if it does not filter by tags."""
    if subscription.kind != "TAG":
        return frozenset()
    return TagExpression.parse(subscription.expression).tags


def decode_pull(
    reply: PullReply,
    queue: QueueId,
    tags: frozenset[str],
    namespace: str | None,
    dropped: list[str | None] | None = None,
) -> tuple[list[ReceivedMessage], int]:
    """Decode a pull's messages, with topics as the namespace's users know them.

    Also returns where the next pull begins: earlier than the broker said if the bodies of this one
    inflate to more than a batch may take. Raises CorruptRecordError.
    """
    messages: list[ReceivedMessage] = []
    next_begin, left = reply.next_begin, INFLATED_BATCH_MAX
    for body in reply.records:
        data = body if isinstance(body, bytes) else bytes(body)
        found, end = _decode(data, queue.broker, queue.topic, tags, left, dropped=dropped)
        messages += found
        if end < len(data):
            next_begin = _HEAD.unpack_from(data, end)[_OFFSET_FIELD]
            break
        left -= sum(len(one.body) for one in found if one.sys_flag & FLAG_COMPRESSED)
    for message in messages if namespace else ():
        message.topic = unwrapped(namespace, message.topic)
    return messages, next_begin


class Popped(NamedTuple):
    """One delivery of a message."""

    message: ReceivedMessage
    topic: str
    """The popped topic, by the name that brokers know."""
    handle: ReceiptHandle

    @property
    def visible_ms(self) -> int:
        """When the message becomes visible unless acknowledged, in epoch ms of the broker."""
        return self.handle.visible_ms


def popped_messages(
    reply: PopReply, *, broker: str, topic: str, tags: frozenset[str] = frozenset()
) -> tuple[list[Popped], list[Popped]]:
    """A pop's deliveries, and those whose tag is not in `tags` (unless empty).

    A broker filters by the tag's hash, and hashes collide. The caller acknowledges the second list.
    Behind `INFLATED_BATCH_MAX` bytes of bodies the messages are packed.

    Raises RemoteProtocolError and CorruptRecordError.
    """
    wanted: list[Popped] = []
    unwanted: list[Popped] = []
    if not reply.records:
        return wanted, unwanted
    handles = reply.handles(broker)
    data = b"".join(reply.records)
    messages, _ = _decode(data, broker, topic, frozenset(), INFLATED_BATCH_MAX, packs=True)
    if len(messages) != len(handles):
        raise RemoteProtocolError(
            f"{len(messages)} popped messages came with {len(handles)} offsets"
        )
    counts = [count for span in reply.spans for count in span.attempts or [0] * len(span.offsets)]
    for message, handle, count in zip(messages, handles, counts, strict=True):
        if (message.queue_index, message.queue_offset) != (handle.queue_index, handle.offset):
            raise RemoteProtocolError(f"{message} was popped where {handle.text()!r} is named")
        if count:
            # For an ordered group the broker counts attempts and does not store the message again.
            message.reconsume_times = count
        message.handle = handle
        popped = Popped(message, topic, handle)
        (unwanted if tags and message.tags not in tags else wanted).append(popped)
    return wanted, unwanted
