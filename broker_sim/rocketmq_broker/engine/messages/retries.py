"""Messages that a consumer sends back: they go to the retry topic after a delay, or to the DLQ.

attempts used up, or a level below 0     %DLQ%<group>, at once
level 0                                  %RETRY%<group>, level 3 + attempts so far
another level                            %RETRY%<group>, that level
"""

from __future__ import annotations

import itertools
from typing import Final

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.outcomes import DONE, Outcome, Peer
from rocketmq_broker.engine.messages.delays import DELAY, LEVEL_MAX, delayed
from rocketmq_broker.engine.messages.store_again import (
    message_at,
    next_attempt,
    require_right,
    store_again,
)
from rocketmq_broker.engine.tables import Tables
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import ProtocolError, broker_error
from rocketmq_wire.model import DEAD_LETTER_PREFIX, RETRY_PREFIX, QueueId, StoredMessage
from rocketmq_wire.records.message_id import offset_message_id
from rocketmq_wire.records.properties import UNIQUE_KEY
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.messages import SendBack
from rocketmq_wire.requests.permissions import CONSUME

RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
_LEVEL_START: Final = 3


def retry_target(group: str, *, attempts: int, attempts_max: int, level: int) -> tuple[str, int]:
    """The topic that a message sent back goes to, and its delay level there; 0: at once.

    Decides by the message's count of attempts and the level that the consumer asks for.
    """
    if attempts >= attempts_max or level < 0:
        return DEAD_LETTER_PREFIX + group, 0
    wanted = level or _LEVEL_START + attempts
    return RETRY_PREFIX + group, min(wanted, LEVEL_MAX)


class SendBacks:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._next_queue = itertools.count()

    def send_back(self, request: SendBack, peer: Peer, now_ms: int) -> Outcome:
        """Store the message again. Refusals: 1, 16, 26."""
        tables = self._tables
        if request.group not in tables.groups:
            raise refusals.group_missing(request.group)
        retry_queues, attempts_max = tables.groups.retry_limits(request.group)
        if retry_queues < 1:
            # As in RocketMQ, a group without retry queues has no second attempts.
            return DONE
        # The message gets a new checksum when stored again, so compare the old one now.
        message = message_at(tables.store, request.physical_offset)
        if message is None:
            remark = f"look message by offset failed, {request.physical_offset}"
            raise broker_error(ResponseCode.SYSTEM_ERROR, remark)
        position, group = request.physical_offset, request.group
        require_right(message, position, tables.store, peer, CONSUME, group=group)
        if request.attempts_max is not None:
            attempts_max = request.attempts_max
        topic, level = retry_target(
            request.group,
            attempts=message.reconsume_times,
            attempts_max=attempts_max,
            level=request.delay_level,
        )
        count = tables.topics.ensure_group_topic(
            topic, retry_queues if topic.startswith(RETRY_PREFIX) else 1
        )
        queue = QueueId(topic, "", next(self._next_queue) % count)
        properties = {name: v for name, v in message.properties.items() if name != DELAY}
        note_origin(properties, message, message.topic, request.message_id)
        if level:
            queue, properties = delayed(queue, properties, level)
        try:
            appended = store_again(
                message,
                now_ms,
                tables,
                queue,
                properties,
                reconsume_times=next_attempt(message),
            )
        except ProtocolError as error:
            raise refusals.message_illegal(f"it cannot be stored again: {error.detail}") from error
        return tables.acknowledge(Done(), appended.end_position)


def note_origin(
    properties: dict[str, str], message: StoredMessage, topic: str, message_id: str = ""
) -> None:
    """Note the message's first topic and first id in its properties, unless they are there."""
    properties.setdefault(RETRY_TOPIC, topic)
    first_id = message_id or properties.get(UNIQUE_KEY)
    if ORIGIN_MESSAGE_ID not in properties:
        properties[ORIGIN_MESSAGE_ID] = first_id or offset_message_id(
            message.store_host, message.physical_offset
        )
