"""The options of consumer groups."""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.options.definition import READ, SINK, STREAM, Section
from pyspark_rocketmq.options.kinds import Choice, Duration, Flag, GroupName

_group = Section("group", STREAM)
_FLAG: Final = Flag()

GROUP_DEFINITIONS: Final = (
    _group.option(
        "group",
        GroupName(),
        None,
        "Consumer group whose committed offsets the brokers keep. Without one the query commits "
        "nothing. In a write: the group that gets the messages of sendBack again.",
        aliases=("consumerGroup", "consumer.group"),
        uses=READ | SINK,
    ),
    _group.option(
        "commitOffsets",
        Choice(("true", "false", "confirmed")),
        "true",
        "Commit the end of each finished batch for the group; 'confirmed' commits only what Spark "
        "confirms, one batch late (for asynchronous progress tracking).",
    ),
    _group.option(
        "joinGroup",
        _FLAG,
        False,
        "Be a member of the group: share its topics' queues with its other queries and consumers, "
        "take over the queues of members that leave or die, and hand queues over by the group's "
        "committed offsets. startingOffsets applies to queues without one. The group's "
        "redeliveries are shared, too: as rows of the topic %RETRY%<group>. Needs nameServer and "
        "subscribe.",
    ),
    _group.option(
        "allocateStrategy",
        Choice(("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")),
        "AVG",
        "How the members of a joined group share the queues: every member must use the same.",
    ),
    _group.option(
        "messageModel",
        Choice(("CLUSTERING", "BROADCASTING")),
        "CLUSTERING",
        "Where committed offsets are kept.",
        uses=READ,
        supported=("CLUSTERING",),
    ),
    _group.option(
        "consumeMode",
        Choice(("pull", "pop")),
        "pull",
        "'pull' reads by offset. 'pop' (streams, RocketMQ 5) has the brokers hand messages out to "
        "the group: each micro-batch holds up to 10,000 of them and 32 MiB in memory (or "
        "maxOffsetsPerTrigger, maxBytesPerTrigger), and acknowledges them once it is durable. At "
        "least once: if a query dies, its popped messages come again after invisibleTimeMs.",
        uses=READ,
    ),
    _group.option(
        "invisibleTimeMs",
        Duration(2_000, 12 * 3_600_000),
        300_000,
        "How long popped messages stay invisible; the query renews it after half of that time.",
    ),
)
