"""Turns pop replies into messages with the handles that acknowledge them: pure."""

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

    Raises RemoteProtocolError and CorruptRecordError.
    """
    wanted: list[Popped] = []
    unwanted: list[Popped] = []
    if not reply.records:
        return wanted, unwanted
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
            # For an ordered group the broker counts attempts and does not store the message again.
            message.reconsume_times = count
        popped = Popped(message, topic, handle)
        (unwanted if tags and message.tags not in tags else wanted).append(popped)
    return wanted, unwanted
