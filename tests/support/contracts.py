"""What the suites for every transport share: topics of their own, messages in, messages out."""

from __future__ import annotations

import itertools
import time
from typing import Any

from rocketmq_client.download.contract import ReadSpec
from rocketmq_client.producer.producer import Producer
from rocketmq_wire.model import (
    Message,
    QueueId,
)
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.messages import SendReply

SPEC = ReadSpec("readers")
topic_names = (f"topic-{number}" for number in itertools.count())


def queue_of(topic, index=0):
    return QueueId(topic, "broker-a", index)


def fill(cluster, queue, count, *, start=0, tags=None, size=0):
    """Store messages whose bodies are their numbers."""
    with Producer(cluster) as producer:
        numbers = range(start, start + count)
        messages = [
            Message(
                queue.topic,
                str(n).encode().ljust(size, b"."),
                tags=tags(n) if tags else None,
            )
            for n in numbers
        ]
        batches = [messages[i : i + 500] for i in range(0, count, 500)]
        requests = [producer.batch_request(queue, batch) for batch in batches]
        for sent in producer.send_many(requests):
            assert isinstance(sent.result, SendReply)
            end = sent.result.start + sent.result.count
            await_end(cluster, queue, end)


def await_end(cluster, queue, end):
    """Java's broker acknowledges a message a moment before its queue lists it."""
    deadline = time.monotonic() + 10
    while cluster.bounds([queue])[queue].end < end:
        assert time.monotonic() < deadline


def messages_in(chunk):
    """The wanted messages of a chunk."""
    position, found = 0, []
    while position < len(chunk.body):
        message, position = decode_record(chunk.body, position)
        if chunk.start <= message.queue_offset < chunk.end:
            found.append(message)
    return found


def read(cluster, ranges, spec=SPEC):
    """Messages by queue; checks that chunks follow each other and hold what they claim."""
    cursors = {wanted.queue: wanted.start for wanted in ranges}
    found: dict[QueueId, list[Any]] = {wanted.queue: [] for wanted in ranges}
    for chunk in cluster.read_ranges(ranges, spec):
        assert chunk.start == cursors[chunk.queue] < chunk.end
        cursors[chunk.queue] = chunk.end
        messages = messages_in(chunk)
        if chunk.expected_count is not None:
            assert len(messages) == chunk.expected_count
        found[chunk.queue] += messages
    assert cursors == {wanted.queue: wanted.end for wanted in ranges}
    return found
