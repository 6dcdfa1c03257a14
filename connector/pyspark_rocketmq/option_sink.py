"""The options of writes."""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.option_definition import SINK, OptionDefinition, later
from pyspark_rocketmq.option_kinds import Choice, Count, Flag, Size, Text

_O = OptionDefinition

SINK_DEFINITIONS: Final = (
    _O(
        "delivery",
        Choice(("at-least-once", "transactional")),
        "at-least-once",
        SINK,
        "sink",
        "at-least-once: what a failed task or a restarted query sent is sent again; `drop_replays` "
        "recognises it.",
        supported=("at-least-once",),
    ),
    _O(
        "maxBatchBytes",
        Size(),
        1024 * 1024,
        SINK,
        "sink",
        "Bytes in one send; a larger message goes alone. Brokers take 4 MiB unless configured, "
        "their own fields of each message included.",
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
        Text(),
        "pyspark-rocketmq-producer",
        SINK,
        "sink",
        "Producer group named in sends.",
    ),
    later("compression", Text(), SINK, "sink", "Codec of large bodies."),
    later("compressionThreshold", Size(), SINK, "sink", "Bodies over this size are compressed."),
    later("sendBack", Flag(), SINK, "sink", "Send failed rows to their group's retry topic."),
)
