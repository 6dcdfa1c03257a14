"""Calls of a listener: what is logged and counted, and messages that a tool sends to it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import cast

import pytest

from rocketmq_client.consumer.common.listener import (
    ConsumeContext,
    ConsumeStatus,
    Listener,
    OrderlyStatus,
    ReturnType,
)
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.consuming.listener_calls import ListenerCalls
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.members import ConsumeDirectly, ConsumeDirectlyReply, ConsumeResult
from support.received_messages import received
from support.records import GOLDEN_RECORD

SETTINGS = ConsumerSettings("g")
CONTEXT = ConsumeContext(QueueId("T", "a", 0))
REQUEST = ConsumeDirectly("g", "c@1", "0A", "broker-a", GOLDEN_RECORD)


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (ConsumeStatus.SUCCESS, ConsumeResult.SUCCESS),
        (ConsumeStatus.RECONSUME_LATER, ConsumeResult.LATER),
        (OrderlyStatus.SUCCESS, ConsumeResult.SUCCESS),
        (OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, ConsumeResult.LATER),
        (OrderlyStatus.COMMIT, ConsumeResult.COMMIT),
        (OrderlyStatus.ROLLBACK, ConsumeResult.ROLLBACK),
        (None, ConsumeResult.RETURN_NULL),
    ],
)
def test_the_listeners_status_decides_the_reply(status: object, result: ConsumeResult) -> None:
    seen: list[ReceivedMessage] = []

    def listener(messages: list[ReceivedMessage], context: ConsumeContext) -> object:
        seen.extend(messages)
        assert (context.queue.topic, context.queue.broker) == ("T", "broker-a")
        return status

    reply = ListenerCalls(SETTINGS, listener).consume_for_tool(REQUEST)
    assert isinstance(reply, ConsumeDirectlyReply)
    assert reply.result is result
    assert [message.body for message in seen] == [b"hello"]


def test_an_exception_of_the_listener_is_replied() -> None:
    def listener(messages: list[ReceivedMessage], context: ConsumeContext) -> object:
        raise ValueError(f"the listener's own: {messages} {context}")

    reply = ListenerCalls(SETTINGS, listener, is_orderly=True).consume_for_tool(REQUEST)
    assert isinstance(reply, ConsumeDirectlyReply)
    assert (reply.result, reply.is_orderly) == (ConsumeResult.EXCEPTION, True)


def test_an_unreadable_message_is_refused() -> None:
    torn = ConsumeDirectly("g", "c@1", "0A", "broker-a", GOLDEN_RECORD[:-1])
    refusal = ListenerCalls(SETTINGS, lambda *_: None).consume_for_tool(torn)
    assert isinstance(refusal, BrokerError)
    assert "the message cannot be read" in refusal.remark


def call(
    listener: Listener, count: int = 1, *, is_orderly: bool = False, timeout_ms: int = 1_000
) -> ReturnType:
    settings = ConsumerSettings("g", consume_timeout_ms=timeout_ms)
    calls = ListenerCalls(settings, listener, is_orderly=is_orderly)
    calls.call([received(offset) for offset in range(count)], CONTEXT)
    return calls.call([received(offset) for offset in range(count)], CONTEXT)[1]


@pytest.mark.parametrize("is_orderly", [False, True])
def test_none_is_reported_each_time_and_once_with_what_to_return(
    is_orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    assert call(lambda *_: None, is_orderly=is_orderly) is ReturnType.RETURN_NULL
    first, advice, second = caplog.messages
    assert first == second
    assert first.startswith(f"group=g {CONTEXT.queue} messages={received(0).message_id}: ")
    assert ("OrderlyStatus.SUCCESS" if is_orderly else "ConsumeStatus.RECONSUME_LATER") in advice


def test_a_report_of_many_messages_names_some_and_counts_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    call(lambda *_: None, 100)
    assert ", 68 more: the listener returned None" in caplog.messages[0]


def test_an_exception_is_reported_with_group_queue_and_messages(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def listener(messages: list[ReceivedMessage], context: ConsumeContext) -> object:
        raise ValueError(f"the listener's own: {messages} {context}")

    assert call(listener) is ReturnType.EXCEPTION
    described = f"group=g {CONTEXT.queue} messages={received(0).message_id}"
    assert caplog.messages == [f"{described}: the listener failed"] * 2


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (ConsumeStatus.SUCCESS, ReturnType.TIME_OUT),
        (ConsumeStatus.RECONSUME_LATER, ReturnType.TIME_OUT),
        (None, ReturnType.RETURN_NULL),
        (ValueError(), ReturnType.EXCEPTION),
    ],
)
def test_none_and_exceptions_are_judged_before_the_time_limit(
    status: object, result: ReturnType
) -> None:
    def slow(messages: list[ReceivedMessage], context: ConsumeContext) -> object:
        del messages, context
        end_ns = time.monotonic_ns() + 1_000_000
        while time.monotonic_ns() < end_ns:
            pass
        if isinstance(status, Exception):
            raise status
        return status

    assert call(slow, timeout_ms=1) is result


def test_no_hook_changes_what_the_listener_gets() -> None:
    class Hook:
        def before(self, messages: Sequence[ReceivedMessage], context: ConsumeContext) -> None:
            del context
            cast("list[ReceivedMessage]", messages).clear()

        def after(self, *_: object) -> None: ...

    counts: list[int] = []

    def listener(messages: list[ReceivedMessage], context: ConsumeContext) -> ConsumeStatus:
        del context
        counts.append(len(messages))
        return ConsumeStatus.SUCCESS

    ListenerCalls(SETTINGS, listener, [Hook()]).call([received(0)], CONTEXT)
    assert counts == [1]
