"""Pop answers -> messages with the handles that acknowledge them: pure."""

from __future__ import annotations

from typing import NamedTuple

from rocketmq_client.consumer.common.messages import ReceivedMessage, decode_messages
from rocketmq_wire.errors import RemoteProtocolError
from rocketmq_wire.records.handles import ReceiptHandle
from rocketmq_wire.requests.pop import PopReply


class Popped(NamedTuple):
    """One delivery of a message."""

    message: ReceivedMessage
    topic: str
    """The topic that was popped, as brokers know it."""
    handle: ReceiptHandle

    @property
    def visible_ms(self) -> int:
        """When it is to be had again unless acknowledged before: of the epoch, by the broker."""
        return self.handle.visible_ms


def popped_messages(
    reply: PopReply, *, broker: str, topic: str, tags: frozenset[str] = frozenset()
) -> tuple[list[Popped], list[Popped]]:
    """The deliveries of a pop, and those with another tag than `tags` (unless empty).

    A broker filters by the tag's hash, and hashes collide: the latter are to be acknowledged.

    Raises RemoteProtocolError and CorruptRecordError.
    """
    wanted: list[Popped] = []
    strays: list[Popped] = []
    if not reply.records:
        return wanted, strays
    handles = reply.handles(broker)
    data = b"".join(reply.records)
    messages = decode_messages(data, broker=broker, topic=topic)
    if len(messages) != len(handles):
        raise RemoteProtocolError(
            f"{len(messages)} popped messages came with {len(handles)} offsets"
        )
    counts = [count for span in reply.spans for count in span.attempts or [0] * len(span.offsets)]
    for message, handle, count in zip(messages, handles, counts, strict=True):
        if (message.queue_index, message.queue_offset) != (handle.queue_index, handle.offset):
            raise RemoteProtocolError(f"{message} was popped where {handle.text()!r} is named")
        if count:
            # In order the broker counts attempts: such messages are not stored again.
            message.reconsume_times = count
        popped = Popped(message, topic, handle)
        (strays if tags and message.tags not in tags else wanted).append(popped)
    return wanted, strays
