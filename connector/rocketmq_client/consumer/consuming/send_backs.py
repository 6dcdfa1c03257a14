"""Sends messages that failed back to their brokers, several at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from rocketmq_client.consumer.common.io_thread import IoThread
from rocketmq_client.consumer.common.messages import ORIGIN_MESSAGE_ID, ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumerSettings, wrapped
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.requests.messages import SendBack

_LOG = logging.getLogger(__name__)
TIMEOUT_MS: Final = 5_000


def send_back(
    io: IoThread,
    settings: ConsumerSettings,
    messages: Sequence[ReceivedMessage],
    *,
    delay_level: int,
    attempts_max: int,
) -> list[ReceivedMessage]:
    """Send messages back; returns those that brokers refused, or may have refused."""
    requests = [
        (
            message.broker,
            SendBack(
                settings.group,
                message.physical_offset,
                delay_level,
                message.properties.get(ORIGIN_MESSAGE_ID) or message.message_id,
                wrapped(settings.namespace, message.topic),
                attempts_max,
            ),
        )
        for message in messages
    ]
    replies = io.call_many(requests, timeout_ms=TIMEOUT_MS)
    failed = []
    for message, reply in zip(messages, replies, strict=True):
        if isinstance(reply, RocketMQError):
            _LOG.warning("%s could not be sent back: %s", message, reply)
            failed.append(message)
    return failed
