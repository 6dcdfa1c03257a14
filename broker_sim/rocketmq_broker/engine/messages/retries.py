"""Messages that a consumer gave back: to the retry topic after a delay, or to the dead letters.

attempts used up, or a level below 0     %DLQ%<group>, at once
level 0                                  %RETRY%<group>, level 3 + attempts so far
another level                            %RETRY%<group>, that level
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.outcomes import AfterSync, Answer, Outcome
from rocketmq_broker.engine.core.store_again import block_again
from rocketmq_broker.engine.core.topics import Topics
from rocketmq_broker.engine.groups.consumer_groups import Groups
from rocketmq_broker.engine.messages.delays import DELAY, LEVEL_MAX, delayed
from rocketmq_broker.storage.store import Store
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import CorruptRecordError, ProtocolError, broker_error
from rocketmq_wire.model import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    Host,
    QueueId,
    StoredMessage,
)
from rocketmq_wire.records.message_id import offset_message_id
from rocketmq_wire.records.properties import UNIQUE_KEY
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.contract import Done
from rocketmq_wire.requests.messages import SendBack

RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
_LEVEL_START: Final = 3


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of a message that was given back."""

    topic: str
    level: int
    """0: at once."""


def fate_of(group: str, *, attempts: int, attempts_max: int, level: int) -> Fate:
    """Decide by the attempts so far, which the message counts."""
    if attempts >= attempts_max or level < 0:
        return Fate(DEAD_LETTER_PREFIX + group, 0)
    wanted = level or _LEVEL_START + attempts
    return Fate(RETRY_PREFIX + group, min(wanted, LEVEL_MAX))


class SendBacks:
    """The rule of code 36, over the broker's tables and its store."""

    def __init__(
        self,
        *,
        store: Store,
        topics: Topics,
        groups: Groups,
        store_host: Host,
        waits_for_sync: bool,
    ) -> None:
        self._store, self._topics, self._groups = store, topics, groups
        self._store_host = store_host
        self._waits_for_sync = waits_for_sync
        self._turns = itertools.count()

    def send_back(self, request: SendBack, now_ms: int) -> Outcome:
        """Store the message again. Refusals: 1, 26."""
        if request.group not in self._groups:
            raise refusals.group_missing(request.group)
        retry_queues, attempts_max = self._groups.retry_limits(request.group)
        if retry_queues < 1:
            # As RocketMQ: a group without retry queues wants no second attempts.
            return Answer(Done())
        message = self._message_at(request.physical_offset)
        if request.attempts_max is not None:
            attempts_max = request.attempts_max
        fate = fate_of(
            request.group,
            attempts=message.reconsume_times,
            attempts_max=attempts_max,
            level=request.delay_level,
        )
        count = self._topics.ensure_group_topic(
            fate.topic, retry_queues if fate.topic.startswith(RETRY_PREFIX) else 1
        )
        queue = QueueId(fate.topic, "", next(self._turns) % count)
        properties = _retry_properties(message, request)
        if fate.level:
            queue, properties = delayed(queue, properties, fate.level)
        try:
            block = block_again(
                message,
                topic=queue.topic,
                queue_index=queue.index,
                properties=properties,
                store_host=self._store_host,
                reconsume_times=message.reconsume_times + 1,
            )
        except ProtocolError as error:
            raise refusals.message_illegal(f"it cannot be stored again: {error.detail}") from error
        appended = self._store.append(queue.topic, queue.index, block, now_ms)
        if self._waits_for_sync:
            return AfterSync(Done(), appended.end_position)
        return Answer(Done())

    def _message_at(self, position: int) -> StoredMessage:
        record = self._store.record_at(position)
        if record is None:
            remark = f"look message by offset failed, {position}"
            raise broker_error(ResponseCode.SYSTEM_ERROR, remark)
        try:
            # It gets a new checksum where it goes, so this is the last time to compare.
            return decode_record(bytes(record))[0]
        except CorruptRecordError as error:
            raise refusals.record_damaged(position, error.reason) from error


def _retry_properties(message: StoredMessage, request: SendBack) -> dict[str, str]:
    """The message's own, with where it came from first."""
    own = dict(message.properties)
    own.pop(DELAY, None)
    own.setdefault(RETRY_TOPIC, message.topic)
    if ORIGIN_MESSAGE_ID not in own:
        own[ORIGIN_MESSAGE_ID] = (
            request.message_id
            or own.get(UNIQUE_KEY)
            or offset_message_id(message.store_host, message.physical_offset)
        )
    return own
