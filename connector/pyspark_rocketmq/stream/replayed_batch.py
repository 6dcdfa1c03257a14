"""A batch that was logged before a restart, and whether its messages are still those it was for.

Spark plans it again as it was. Should a topic have been created anew meanwhile, then what is at the
same offsets now are other messages; the marks in the batch's end tell.
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

_UNTOLD: Final = "cannot tell whether the logged batch's messages are still there: %s"


def drop_recreated_queues(
    cluster: Cluster, options: ReadOptions, ranges: Sequence[OffsetRange], planned: SourceOffset
) -> list[OffsetRange]:
    """The ranges without those of queues that are other ones now. Raises DataLossError.

    With failOnDataLoss=false those are left out: the next batch reads the new ones from their
    start. What cannot be told is left to the tasks, which wait for brokers that are away.
    """
    marked = {
        piece.queue: piece
        for piece in ranges
        if piece.queue in planned.first_store_times or piece.queue in planned.first_offsets
    }
    try:
        for topic in {queue.topic for queue in marked}:
            with suppress(TopicNotFoundError):
                cluster.queues(topic)
        found = cluster.bounds(marked) if marked else {}
        held = {queue: one for queue, one in found.items() if isinstance(one, Bounds)}
        first_store_times = find_first_store_times(cluster, held)
    except RocketMQError as error:
        _log.warning(_UNTOLD, error)
        return list(ranges)
    untold = sorted(marked.keys() - held.keys())
    if untold:
        _log.warning(_UNTOLD, f"{untold[0]}: {found[untold[0]]}")
    others = set()
    for queue, bounds in held.items():
        loss = judge_offset(
            queue,
            # Of a batch that begins a queue nothing may have been read, yet all of it was planned.
            marked[queue].end,
            bounds,
            first_offset_seen=planned.first_offsets.get(queue),
            first_store_time=planned.first_store_times.get(queue),
            first_store_time_now=first_store_times.get(queue),
        )
        if loss is not None and loss.reason is LossReason.TOPIC_RECREATED:
            loss = replace(loss, start=marked[queue].start)
            raise_or_skip_loss(loss, fail_on_data_loss=options.fail_on_data_loss)
            others.add(queue)
    return [piece for piece in ranges if piece.queue not in others]
