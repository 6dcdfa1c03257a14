"""Gives messages that could not be consumed back to their brokers, several at once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from rocketmq_client.groups.consumer_settings import ConsumerSettings
from rocketmq_client.groups.messages import ORIGIN_MESSAGE_ID, ReceivedMessage
from rocketmq_client.groups.namespaces import wrapped
from rocketmq_client.groups.wire_thread import WireThread
from rocketmq_wire.consumption_requests import SendBack
from rocketmq_wire.errors import RocketMQError

_LOG = logging.getLogger(__name__)
TIMEOUT_MS: Final = 5_000


def send_back(
    wire: WireThread,
    settings: ConsumerSettings,
    messages: Sequence[ReceivedMessage],
    *,
    delay_level: int,
    attempts_max: int,
) -> list[ReceivedMessage]:
    """Those that the brokers did not take, or of which that is not known."""
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
    replies = wire.call_many(requests, timeout_ms=TIMEOUT_MS)
    failed = []
    for message, reply in zip(messages, replies, strict=True):
        if isinstance(reply, RocketMQError):
            _LOG.warning("%s could not be sent back: %s", message, reply)
            failed.append(message)
    return failed
