"""Checks a batch that was logged before a restart: do its offsets still have the same messages?

Spark plans the batch again as it was. If a topic was recreated meanwhile, its queues have other
messages at the same offsets; the topic identity in the batch's end tells.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from pyspark_rocketmq.errors import raise_or_skip_loss
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.checkpoint import SourceOffset
from pyspark_rocketmq.read.cluster_scan import find_first_store_times
from rocketmq_client.cluster import Cluster
from rocketmq_client.loss import LossReason, judge_offset
from rocketmq_wire.errors import RocketMQError, TopicNotFoundError
from rocketmq_wire.model import Bounds, OffsetRange

_log = logging.getLogger("pyspark_rocketmq")

_UNKNOWN: Final = "cannot find out whether the logged batch's messages are still there: %s"


def drop_recreated_queues(
    cluster: Cluster, options: ReadOptions, ranges: Sequence[OffsetRange], planned: SourceOffset
) -> list[OffsetRange]:
    """Drop the ranges of queues whose topic was recreated. Raises DataLossError.

    With failOnDataLoss=false the next batch reads the new queues from their start. Ranges that
    cannot be checked are left to the tasks, which wait for unavailable brokers.
    """
    identified = {
        piece.queue: piece
        for piece in ranges
        if piece.queue in planned.first_store_times or piece.queue in planned.first_offsets
    }
    try:
        for topic in {queue.topic for queue in identified}:
            with suppress(TopicNotFoundError):
                cluster.queues(topic)
        found = cluster.bounds(identified) if identified else {}
        held = {queue: one for queue, one in found.items() if isinstance(one, Bounds)}
        first_store_times = find_first_store_times(cluster, held)
    except RocketMQError as error:
        _log.warning(_UNKNOWN, error)
        return list(ranges)
    unknown = sorted(identified.keys() - held.keys())
    if unknown:
        _log.warning(_UNKNOWN, f"{unknown[0]}: {found[unknown[0]]}")
    recreated = set()
    for queue, bounds in held.items():
        loss = judge_offset(
            queue,
            # The batch may begin the queue at offset 0; its end was planned from real messages.
            identified[queue].end,
            bounds,
            first_offset_seen=planned.first_offsets.get(queue),
            first_store_time=planned.first_store_times.get(queue),
            first_store_time_now=first_store_times.get(queue),
        )
        if loss is not None and loss.reason is LossReason.TOPIC_RECREATED:
            loss = replace(loss, start=identified[queue].start)
            raise_or_skip_loss(loss, fail_on_data_loss=options.fail_on_data_loss)
            recreated.add(queue)
    return [piece for piece in ranges if piece.queue not in recreated]
