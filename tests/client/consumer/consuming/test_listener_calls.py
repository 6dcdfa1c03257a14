"""A message that a tool sends to a member's listener."""

from __future__ import annotations

import pytest

from rocketmq_client.consumer.common.listener import ConsumeContext, ConsumeStatus, OrderlyStatus
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.consuming.listener_calls import ListenerCalls
from rocketmq_wire.errors import BrokerError
from rocketmq_wire.requests.members import ConsumeDirectly, ConsumeDirectlyReply, ConsumeResult
from support.records import GOLDEN_RECORD

SETTINGS = ConsumerSettings("g")
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
