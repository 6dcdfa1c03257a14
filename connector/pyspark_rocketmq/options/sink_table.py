"""The options of writes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.options.definition import SINK, OptionDefinition
from pyspark_rocketmq.options.kinds import (
    Choice,
    Count,
    Duration,
    Flag,
    GroupName,
    Size,
    TopicName,
)
from rocketmq_wire.model import DECISION_TOPIC

_O = OptionDefinition


@dataclass(frozen=True, slots=True)
class WriteName:
    """What a write is called by its user: a name, and a number that grows from write to write."""

    name: str
    number: int | None
    """None: the batch of the stream whose foreachBatch writes."""


@dataclass(frozen=True, slots=True)
class _WriteName:
    takes: str = "NAME or NAME/NUMBER"

    def __call__(self, text: str) -> WriteName:
        # The name becomes a tag, whose expressions have characters of their own.
        found = re.fullmatch(r"([\w.:-]{1,100})(?:/([0-9]{1,18}))?", text.strip(), re.ASCII)
        if found is None:
            raise ValueError("must be NAME or NAME/NUMBER, a name of letters, digits, . _ : and -")
        return WriteName(found[1], None if found[2] is None else int(found[2]))


# How messages are sent, whatever they say.
SENDING_OPTIONS: Final = (
    *("compression", "compressionThreshold", "maxBatchBytes", "sendsInFlight", "producerGroup"),
)

SINK_DEFINITIONS: Final = (
    _O(
        "delivery",
        Choice(("at-least-once", "transactional")),
        "at-least-once",
        SINK,
        "sink",
        "at-least-once: what a failed task or a restarted query sent is sent again; `drop_replays` "
        "recognises it. transactional: rows are sent as half messages and become visible when "
        "their batch is committed, each exactly once, though not all in one instant; needs "
        "nameServer. A batch that is decided is finished by the query's next start, if that comes "
        "before transactionTimeoutMs and the broker's checks are over.",
    ),
    _O(
        "transactionTimeoutMs",
        Duration(10_000, 24 * 3_600_000),
        3_600_000,
        SINK,
        "sink",
        "With delivery=transactional: how long a batch may take from its first row to its commit, "
        "and a query may be away in between. Then the broker asks, by default 15 times in 7.5 "
        "minutes, and puts away what nobody answers for.",
    ),
    _O(
        "decisionTopic",
        TopicName(),
        DECISION_TOPIC,
        SINK,
        "sink",
        "With delivery=transactional: the topic that keeps the decisions about batches. It is made "
        "if it is not there, with two queues on every broker; several queries may share it.",
    ),
    _O(
        "writeId",
        _WriteName(),
        None,
        SINK,
        "sink",
        "What a batch write is known by when it runs again: with delivery=transactional nothing is "
        "sent twice then, with at-least-once `drop_replays` recognises it. NAME in foreachBatch, "
        "where the query's and the batch's ids are added, a name of its own for each write of it; "
        "NAME/NUMBER elsewhere, with a number that grows from write to write.",
    ),
    _O(
        "maxBatchBytes",
        Size(),
        # Of 1 KB messages 1 MiB at a time costs the broker and the task a fifth more.
        2 * 1024 * 1024,
        SINK,
        "sink",
        "Bytes in one send as a broker stores them, its own fields of each message included; a "
        "larger message goes alone. Brokers take 4 MiB unless configured.",
    ),
    _O(
        "sendsInFlight",
        Count(1, 256),
        8,
        SINK,
        "sink",
        "Sends under way at a time for each task, one at a time for each queue.",
    ),
    _O(
        "producerGroup",
        GroupName(),
        "pyspark-rocketmq-producer",
        SINK,
        "sink",
        "Producer group named in sends.",
    ),
    _O(
        "compression",
        Choice(("none", "zlib", "lz4", "zstd")),
        "none",
        SINK,
        "sink",
        "Codec of large bodies, each by itself. Every reader of the topic must know it: zlib is "
        "known to all, lz4 and zstd to RocketMQ's clients from 4.9.4 on. Bodies that would not "
        "shrink are sent as they are.",
    ),
    _O(
        "compressionThreshold",
        Size(),
        4_096,
        SINK,
        "sink",
        "Bodies of this many bytes and more are compressed.",
    ),
    _O(
        "sendBack",
        Flag(),
        False,
        SINK,
        "sink",
        "Instead of sending rows as messages, give the messages that they were read from back to "
        "the option group: they come again in the topic %RETRY%<group>, after the delay of their "
        "attempt or of a column delayLevel, and after the last one in %DLQ%<group>. Needs "
        "nameServer, and the columns topic, brokerName and physicalOffset. What is run again is "
        "sent back again.",
    ),
    _O(
        "maxReconsumeTimes",
        Count(0, 1_000),
        None,
        SINK,
        "sink",
        "With sendBack: after so many attempts a message is dead (default: what the group's "
        "configuration at the broker says, 16 unless changed).",
    ),
)
