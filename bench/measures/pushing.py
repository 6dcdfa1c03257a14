"""A push consumer whose listener only counts messages, up to a number."""

from __future__ import annotations

import threading

from bench.bed import Bed
from rocketmq_client.consumer.common.listener import ConsumeContext, ConsumeStatus
from rocketmq_client.consumer.common.messages import ReceivedMessage
from rocketmq_client.consumer.common.settings import ConsumerSettings, PopSettings
from rocketmq_client.consumer.push import PushConsumer

_SECONDS_MAX = 300.0


def consume(
    bed: Bed, settings: ConsumerSettings, count: int, pop: PopSettings | None = None
) -> int:
    """Start a consumer and wait until its listener has `count` messages. Returns their number."""
    done, found, lock = threading.Event(), 0, threading.Lock()

    def listen(messages: list[ReceivedMessage], _: ConsumeContext) -> ConsumeStatus:
        nonlocal found
        with lock:
            found += len(messages)
        if found >= count:
            done.set()
        return ConsumeStatus.SUCCESS

    with PushConsumer(bed.settings("nameServer"), settings, listen, pop=pop):
        assert done.wait(_SECONDS_MAX), f"{found} of {count} messages came"
    return found
