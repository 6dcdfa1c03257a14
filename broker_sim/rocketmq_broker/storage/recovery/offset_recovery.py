"""Committed offsets after a crash: none behind its queue's end, none of a deleted topic."""

from __future__ import annotations

from collections.abc import Collection

from rocketmq_broker.storage.disk.config_files import (
    CONSUMER_OFFSETS,
    OFFSET_TABLE,
    TOPICS,
    Configs,
    Table,
    table_of,
)
from rocketmq_broker.storage.queues.lite_queues import is_lite_queue, parent_of
from rocketmq_broker.storage.queues.queue_table import QueueTable


def clamp_committed_offsets(configs: Configs, queues: QueueTable) -> tuple[str, ...]:
    """Limit `consumerOffset.json` to what the log holds; returns the changed `topic@group/queue`.

    Offsets before a queue's start stay: the group learns that its messages have expired. Offsets
    of lite queues stay, too: their ends are not known here.
    """
    content = configs.load(CONSUMER_OFFSETS)
    topics = configs.load_table(TOPICS)
    changed = []
    kept: Table = {}
    for key, offsets in table_of(CONSUMER_OFFSETS, content).items():
        topic = key.partition("@")[0]
        is_deleted = parent_of(topic) not in topics and _is_of(topic, configs.dead_before)
        for index, text in offsets.items():
            offset = int(str(text))
            queue = queues.get(topic, int(index))
            end = queue.end if queue is not None else 0
            if is_lite_queue(topic):
                end = offset
            if is_deleted or offset > end:
                changed.append(f"{key}/{index}")
            if not is_deleted:
                kept.setdefault(key, {})[str(index)] = min(offset, end)
    if changed:
        configs.save(CONSUMER_OFFSETS, {**content, OFFSET_TABLE: kept})
    return tuple(changed)


def delete_committed_offsets(configs: Configs, topics: Collection[str]) -> None:
    """Return once the disk has no group's offsets in these topics, or in their lite queues."""
    content = configs.load(CONSUMER_OFFSETS)
    table = table_of(CONSUMER_OFFSETS, content)
    kept = {key: value for key, value in table.items() if not _is_of(key.partition("@")[0], topics)}
    if len(kept) < len(table):
        configs.save(CONSUMER_OFFSETS, {**content, OFFSET_TABLE: kept})


def _is_of(name: str, topics: Collection[str]) -> bool:
    """True for one of these topics, and for a lite queue of one."""
    return name in topics or parent_of(name) in topics
