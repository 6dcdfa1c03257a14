"""Calls a listener with the hooks around it, and sends failed messages back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from rocketmq_client.consumer.common.io_thread import IoThread, now_ms
from rocketmq_client.consumer.common.listener import (
    ConsumeContext,
    ConsumeHook,
    ConsumeStatus,
    Listener,
    OrderlyStatus,
    ReturnType,
)
from rocketmq_client.consumer.common.messages import (
    ORIGIN_MESSAGE_ID,
    ReceivedMessage,
    decode_messages,
)
from rocketmq_client.consumer.common.rates import ConsumeCounts, Rates
from rocketmq_client.consumer.common.settings import ConsumerSettings, wrapped
from rocketmq_wire.codes import ResponseCode
from rocketmq_wire.errors import BrokerError, ProtocolError, RocketMQError, broker_error
from rocketmq_wire.model import QueueId
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.members import ConsumeDirectly, ConsumeDirectlyReply, ConsumeResult
from rocketmq_wire.requests.messages import SendBack

_LOG = logging.getLogger(__name__)
_RESULTS: Final[dict[object, ConsumeResult]] = {
    ConsumeStatus.SUCCESS: ConsumeResult.SUCCESS,
    ConsumeStatus.RECONSUME_LATER: ConsumeResult.LATER,
    OrderlyStatus.SUCCESS: ConsumeResult.SUCCESS,
    OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT: ConsumeResult.LATER,
    OrderlyStatus.COMMIT: ConsumeResult.COMMIT,
    OrderlyStatus.ROLLBACK: ConsumeResult.ROLLBACK,
}
_FAILURES: Final = (
    ConsumeStatus.RECONSUME_LATER,
    OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT,
    OrderlyStatus.ROLLBACK,
)
_SUCCESSES: Final = (ConsumeStatus.SUCCESS, OrderlyStatus.SUCCESS, OrderlyStatus.COMMIT)
_CONCURRENT: Final = (ConsumeStatus.SUCCESS, ConsumeStatus.RECONSUME_LATER)
_ORDERLY: Final = (OrderlyStatus.SUCCESS, OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT)
DEAD_LETTER_LEVEL: Final = -1
_SEND_BACK_MS_MAX: Final = 5_000
_NAMED_MAX: Final = 32


@dataclass(eq=False)
class ListenerCalls:
    """One consumer's listener and the hooks around its calls; any thread may call them."""

    settings: ConsumerSettings
    listener: Listener
    hooks: Sequence[ConsumeHook] = ()
    _: KW_ONLY
    is_orderly: bool = False
    rates: Rates = field(default_factory=lambda: Rates(now_ms()))
    _has_explained: bool = field(default=False, init=False)

    def call(
        self, messages: list[ReceivedMessage], context: ConsumeContext
    ) -> tuple[object, ReturnType]:
        """Returns the listener's status, None if it raised, and how the call ended."""
        if not self.is_orderly:
            epoch_ms = time.time_ns() // 1_000_000
            for message in messages:
                message.consume_start_ms = epoch_ms
        if self.hooks:
            context.group, context.namespace = self.settings.group, self.settings.namespace
        for hook in self.hooks:
            _call_hook(hook.before, tuple(messages), context)
        started_ns = time.monotonic_ns()
        status, result = self._ask_listener(messages, context)
        spent_ns = time.monotonic_ns() - started_ns
        if result is ReturnType.SUCCESS:
            # In order there is no time limit: the next batch waits for this one.
            if not self.is_orderly and spent_ns >= self.settings.consume_timeout_ms * 1_000_000:
                result = ReturnType.TIME_OUT
            elif status in _FAILURES:
                result = ReturnType.FAILED
        context.is_success = status in _SUCCESSES
        for hook in self.hooks:
            _call_hook(hook.after, tuple(messages), context, result)
        counts = self.rates.of(context.queue.topic)
        counts.calls += 1
        counts.spent_ns += spent_ns
        return status, result

    def count(self, queue: QueueId, *, succeeded: int = 0, failed: int = 0) -> None:
        """Count messages by the listener's result."""
        counts = self.rates.of(queue.topic)
        counts.succeeded += succeeded
        counts.failed += failed

    @property
    def counts(self) -> ConsumeCounts:
        """The counts of all topics together."""
        return self.rates.total()

    def _ask_listener(
        self, messages: list[ReceivedMessage], context: ConsumeContext
    ) -> tuple[object, ReturnType]:
        try:
            # A list of its own: what the listener does to it must not lose or repeat messages.
            status = self.listener(messages.copy(), context)
        except BaseException:  # noqa: BLE001 - its cancellation or exit is a failure too
            _LOG.exception("%s: the listener failed", self._describe(messages, context))
            return None, ReturnType.EXCEPTION
        if status is not None:
            return status, ReturnType.SUCCESS
        _LOG.warning(
            "%s: the listener returned None, which counts as a failure",
            self._describe(messages, context),
        )
        if not self._has_explained:
            self._has_explained = True
            consumed, failed = _ORDERLY if self.is_orderly else _CONCURRENT
            _LOG.warning(
                "group=%s: a listener returns %s for consumed messages and %s for failed ones",
                self.settings.group,
                consumed,
                failed,
            )
        return None, ReturnType.RETURN_NULL

    def _describe(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> str:
        ids = [message.message_id for message in messages[:_NAMED_MAX]]
        more = [f"{len(messages) - _NAMED_MAX} more"] if len(messages) > _NAMED_MAX else []
        return f"group={self.settings.group} {context.queue} messages={', '.join(ids + more)}"

    def consume_for_tool(self, request: ConsumeDirectly) -> ConsumeDirectlyReply | BrokerError:
        """Call the listener with a tool's message, without hooks; this commits no offset."""
        try:
            topic = decode_record(request.record)[0].topic
            (message,) = decode_messages(request.record, broker=request.broker, topic=topic)
        except (ProtocolError, ValueError) as error:
            return broker_error(ResponseCode.SYSTEM_ERROR, f"the message cannot be read: {error}")
        context = ConsumeContext(QueueId(topic, request.broker, message.queue_index))
        started_ns = time.monotonic_ns()
        status, how = self._ask_listener([message], context)
        spent_ms = (time.monotonic_ns() - started_ns) // 1_000_000
        if how is ReturnType.EXCEPTION:
            result = ConsumeResult.EXCEPTION
        elif how is ReturnType.RETURN_NULL:
            result = ConsumeResult.RETURN_NULL
        else:
            result = _RESULTS.get(status, ConsumeResult.LATER)
        return ConsumeDirectlyReply(result, spent_ms, self.is_orderly, context.auto_commit)


def split_outcome(
    messages: Sequence[ReceivedMessage], status: object, ack_index: int
) -> tuple[list[ReceivedMessage], list[ReceivedMessage]]:
    """The consumed and the failed messages, by a concurrent listener's result."""
    if status is not ConsumeStatus.SUCCESS:
        return [], list(messages)
    cut = max(0, min(ack_index + 1, len(messages)))
    return list(messages[:cut]), list(messages[cut:])


def send_back(
    io: IoThread, settings: ConsumerSettings, messages: Sequence[ReceivedMessage], delay_level: int
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
                settings.attempts,
            ),
        )
        for message in messages
    ]
    replies = io.call_many(requests, timeout_ms=_SEND_BACK_MS_MAX)
    failed = []
    for message, reply in zip(messages, replies, strict=True):
        if isinstance(reply, RocketMQError):
            _LOG.warning("%s could not be sent back: %s", message, reply)
            failed.append(message)
    return failed


def _call_hook(method: Callable[..., None], *arguments: object) -> None:
    try:
        method(*arguments)
    except BaseException:  # noqa: BLE001 - an application's hook must not disturb consumption
        _LOG.exception("a consume hook failed")
