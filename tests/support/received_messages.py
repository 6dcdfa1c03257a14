"""Messages as consumers receive them."""

from __future__ import annotations

from rocketmq_client.consumer.common.messages import ReceivedMessage

LOCAL = (bytes((127, 0, 0, 1)), 10911)


def received(
    offset: int, body: bytes = b"x", *, topic: str = "T", broker: str = "a", queue_index: int = 0
) -> ReceivedMessage:
    """A message at an offset; its byte position in the log is a thousand times that."""
    return ReceivedMessage(
        topic, broker, queue_index, offset, body, b"", 0, offset * 1_000, 0, 1, LOCAL, 2, LOCAL,
        0, 100,
    )  # fmt: skip
