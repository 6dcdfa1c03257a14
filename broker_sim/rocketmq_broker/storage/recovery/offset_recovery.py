"""Groups' progress after a crash: none past its queue's end, none of a deleted topic."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rocketmq_broker.storage.disk.config_files import (
    CONSUMER_OFFSETS,
    OFFSET_TABLE,
    TOPIC_TABLE,
    TOPICS,
    Configs,
)
from rocketmq_broker.storage.queues.lite_queues import is_lite_queue, parent_of
from rocketmq_broker.storage.queues.queue_table import QueueTable


def clamp_committed_offsets(configs: Configs, queues: QueueTable) -> tuple[str, ...]:
    """Settle `consumerOffset.json` with the log; returns what was changed, for the report.

    Progress behind a queue's start is left: the group is told that its messages have expired. So is
    progress in light queues, whose ends are not known here.
    """
    content = configs.load(CONSUMER_OFFSETS)
    table = content.get(OFFSET_TABLE)
    if not isinstance(table, dict):
        return ()
    topics = configs.load(TOPICS).get(TOPIC_TABLE)
    living = set(topics) if isinstance(topics, dict) else set()
    changed = []
    settled: dict[str, dict[str, int]] = {}
    for key, offsets in table.items():
        topic = key.partition("@")[0]
        is_dead = _is_dead(topic, configs.dead_before, living)
        for index, offset in offsets.items() if isinstance(offsets, dict) else ():
            queue = queues.get(topic, int(index))
            end = queue.end if queue is not None else 0
            if is_lite_queue(topic):
                end = int(offset)
            if is_dead or int(offset) > end:
                changed.append(f"{key}/{index}")
            if not is_dead:
                settled.setdefault(key, {})[str(index)] = min(int(offset), end)
    if changed:
        configs.save(CONSUMER_OFFSETS, {**content, OFFSET_TABLE: settled})
    return tuple(changed)


def _is_dead(topic: str, dead_before: Mapping[str, int], living: set[str]) -> bool:
    """A topic that was deleted, or a light queue of one."""
    parent = parent_of(topic)
    return (topic in dead_before or parent in dead_before) and parent not in living


def _is_of(name: str, topics: Collection[str]) -> bool:
    return name in topics or parent_of(name) in topics


def delete_committed_offsets(configs: Configs, topics: Collection[str]) -> None:
    """Return once no group has progress in topics, or their light queues, any more: on disk too."""
    content = configs.load(CONSUMER_OFFSETS)
    table = content.get(OFFSET_TABLE)
    if isinstance(table, dict):
        kept = {
            key: value for key, value in table.items() if not _is_of(key.partition("@")[0], topics)
        }
        if len(kept) < len(table):
            configs.save(CONSUMER_OFFSETS, {**content, OFFSET_TABLE: kept})
