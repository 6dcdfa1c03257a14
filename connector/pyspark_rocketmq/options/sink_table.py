"""The options of writes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pyspark_rocketmq.options import kinds
from pyspark_rocketmq.options.definition import SINK, Section
from rocketmq_wire.model import DECISION_TOPIC

_sink = Section("sink", SINK)


@dataclass(frozen=True, slots=True)
class WriteName:
    """The user's name for a write, and a number that grows from write to write."""

    name: str
    number: int | None
    """None: the batch of the stream whose foreachBatch writes."""


def _parse_write_name(text: str) -> WriteName:
    # The name becomes a tag, whose expressions have characters of their own.
    found = re.fullmatch(r"([\w.:-]{1,100})(?:/([0-9]{1,18}))?", text.strip(), re.ASCII)
    if found is None:
        raise ValueError("must be NAME or NAME/NUMBER, a name of letters, digits, . _ : and -")
    return WriteName(found[1], None if found[2] is None else int(found[2]))


_WRITE_NAME: Final = kinds.Kind("NAME or NAME/NUMBER", _parse_write_name)

SENDING_OPTIONS: Final = (
    "compression",
    "compressionThreshold",
    "maxBatchBytes",
    "sendsInFlight",
    "producerGroup",
)
"""The options that say how messages are sent, not which."""

SINK_DEFINITIONS: Final = (
    _sink.option(
        "delivery", kinds.choice("at-least-once", "transactional"), "at-least-once"
    ).with_help(
        "at-least-once: a task or query that runs again sends its rows again; `drop_replays` "
        "recognises them. transactional: rows are sent as half messages and become visible when "
        "their batch is committed, each exactly once, though not all in one instant; needs "
        "nameServer. The query's next start finishes a decided batch, if that comes before "
        "transactionTimeoutMs and the broker's checks are over."
    ),
    _sink.option(
        "transactionTimeoutMs", kinds.duration(10_000, 24 * 3_600_000), 3_600_000
    ).with_help(
        "With delivery=transactional: how long a batch may take from its first row to its commit, "
        "a restart of the query included. Then the broker checks, by default 15 times in 7.5 "
        "minutes, and discards half messages that no producer answers for."
    ),
    _sink.option("decisionTopic", kinds.TOPIC_NAME, DECISION_TOPIC).with_help(
        "With delivery=transactional: the topic that stores the decisions about batches. The sink "
        "creates it if necessary, with two queues on every broker; several queries may share it."
    ),
    _sink.option("writeId", _WRITE_NAME).with_help(
        "The name by which the sink recognises a batch write that runs again: with "
        "delivery=transactional it sends nothing twice, with at-least-once `drop_replays` "
        "recognises it. NAME in foreachBatch, where the sink adds the query's and the batch's ids: "
        "give each write a name of its own. NAME/NUMBER elsewhere, with a number that grows from "
        "write to write."
    ),
    # With messages of 1 KB, 1 MiB costs the broker and the task a fifth more.
    _sink.option("maxBatchBytes", kinds.SIZE, 2 * 1024 * 1024).with_help(
        "Bytes in one send as a broker stores them, its own fields of each message included; a "
        "larger message is sent alone. Brokers accept 4 MiB unless configured."
    ),
    _sink.option("sendsInFlight", kinds.count(1, 256), 8).with_help(
        "Sends in flight for each task, one at a time for each queue."
    ),
    _sink.option("producerGroup", kinds.GROUP_NAME, "pyspark-rocketmq-producer").with_help(
        "Producer group named in sends."
    ),
    _sink.option("compression", kinds.choice("none", "zlib", "lz4", "zstd"), "none").with_help(
        "Codec of large bodies, each by itself. Every reader of the topic must support it: all "
        "support zlib, RocketMQ's clients from 4.9.4 on lz4 and zstd. Bodies that would not shrink "
        "are sent uncompressed."
    ),
    _sink.option("compressionThreshold", kinds.SIZE, 4_096).with_help(
        "Bodies of this many bytes and more are compressed."
    ),
    _sink.option("sendBack", kinds.FLAG, False).with_help(
        "Instead of sending rows as messages, send the messages that they were read from back to "
        "the consumer group of the option group: they come again in the topic %RETRY%<group>, "
        "after the delay of their attempt or of a column delayLevel, and after the last attempt in "
        "%DLQ%<group>. Needs nameServer, and the columns topic, brokerName and physicalOffset. A "
        "task that runs again sends its messages back again."
    ),
    _sink.option("maxReconsumeTimes", kinds.count(0, 1_000)).with_help(
        "With sendBack: the number of attempts after which a message becomes a dead letter "
        "(default: the group's configuration at the broker, 16 unless changed)."
    ),
)
