"""The options of consumer groups; `option_table` has the others."""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.options.definition import (
    READ,
    SINK,
    STREAM,
    OptionDefinition,
)
from pyspark_rocketmq.options.join_checks import STRATEGIES
from pyspark_rocketmq.options.kinds import Choice, Duration, Flag, GroupName
from pyspark_rocketmq.options.pop_checks import INVISIBLE_MS

_O = OptionDefinition
_FLAG: Final = Flag()

GROUP_DEFINITIONS: Final = (
    _O(
        "group",
        GroupName(),
        None,
        READ | SINK,
        "group",
        "Consumer group whose progress is kept at the broker. Without one nothing is committed. "
        "In a write: who gets the messages of sendBack again.",
        ("consumerGroup", "consumer.group"),
    ),
    _O(
        "commitOffsets",
        Choice(("true", "false", "confirmed")),
        "true",
        STREAM,
        "group",
        "Commit the end of each finished batch as the group's progress; 'confirmed' commits only "
        "what Spark confirms, one batch late (for asynchronous progress tracking).",
    ),
    _O(
        "joinGroup",
        _FLAG,
        False,
        STREAM,
        "group",
        "Be a member of the group: share its topics' queues with other queries and consumers that "
        "are, take over those of members that leave or die, and hand on by the group's progress. "
        "startingOffsets counts for queues without progress. The group's second attempts are "
        "shared, too: as rows of the topic %RETRY%<group>. Needs nameServer and subscribe.",
    ),
    _O(
        "allocateStrategy",
        Choice(STRATEGIES),
        "AVG",
        STREAM,
        "group",
        "How the members of a joined group share the queues: the same at every member.",
    ),
    _O(
        "messageModel",
        Choice(("CLUSTERING", "BROADCASTING")),
        "CLUSTERING",
        READ,
        "group",
        "Where progress is kept.",
        supported=("CLUSTERING",),
    ),
    _O(
        "consumeMode",
        Choice(("pull", "pop")),
        "pull",
        READ,
        "group",
        "'pull' reads by offset. 'pop' (streams, RocketMQ 5) has the brokers lend messages to the "
        "group: each micro-batch holds up to 10,000 of them and 32 MiB in memory (or "
        "maxOffsetsPerTrigger, maxBytesPerTrigger), and acknowledges once it is durable. At least "
        "once: what a query had popped when it died comes again after invisibleTimeMs.",
    ),
    _O(
        "invisibleTimeMs",
        Duration(2_000, 12 * 3_600_000),
        INVISIBLE_MS,
        STREAM,
        "group",
        "How long popped messages are lent; renewed when half of it is over.",
    ),
)
