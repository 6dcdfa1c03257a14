"""Compares the topics of planned ranges with those that the brokers have now.

    the driver    before it plans a batch again that was logged before a restart
    a task        behind its last message: then all that it read is of the planned topic

With failOnDataLoss=false a task compares them before it reads, too, and drops other topics' ranges.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from pyspark_rocketmq.errors import raise_or_skip_loss
from pyspark_rocketmq.planning.topic_identity import QueueIdentity
from pyspark_rocketmq.read.cluster_scan import find_first_store_times
from rocketmq_client.cluster import Cluster
from rocketmq_client.loss import Loss, LossReason, judge_offset
from rocketmq_wire.errors import RocketMQError, TopicNotFoundError, raise_first, split_answers
from rocketmq_wire.model import Bounds, OffsetRange, QueueId

_log = logging.getLogger("pyspark_rocketmq")

_UNKNOWN: Final = "cannot find out whether the planned messages are still there: %s"

Identities = Mapping[QueueId, QueueIdentity]
"""The identity of each queue when its range was planned; queues without one are not compared."""


def drop_recreated_queues(
    cluster: Cluster,
    ranges: Sequence[OffsetRange],
    identities: Identities,
    *,
    fail_on_data_loss: bool,
) -> list[OffsetRange]:
    """Drop the ranges of queues whose topic was recreated. Raises DataLossError.

    With failOnDataLoss=false the next batch reads the new queues from their start. Ranges that
    cannot be checked are left to the tasks, which wait for unavailable brokers.
    """
    known = [piece for piece in ranges if piece.queue in identities]
    try:
        for topic in {piece.queue.topic for piece in known}:
            with suppress(TopicNotFoundError):
                cluster.queues(topic)
        held, errors = split_answers(cluster.bounds([piece.queue for piece in known]))
        losses = _losses(cluster, known, identities, held)
    except RocketMQError as error:
        _log.warning(_UNKNOWN, error)
        return list(ranges)
    if errors:
        unknown = min(errors)
        _log.warning(_UNKNOWN, f"{unknown}: {errors[unknown]}")
    for loss in losses.values():
        raise_or_skip_loss(loss, fail_on_data_loss=fail_on_data_loss)
    return [piece for piece in ranges if piece.queue not in losses]


def find_recreated_queues(
    cluster: Cluster, ranges: Sequence[OffsetRange], identities: Identities
) -> dict[QueueId, Loss]:
    """Find the queues whose topic was recreated. Raises the error of a broker.

    One round trip proves that nothing happened: a queue that still has the first store time of the
    plan is the planned one.
    """
    timed = [
        piece.queue
        for piece in ranges
        if piece.queue in identities and identities[piece.queue].first_store_time is not None
    ]
    times = cluster.earliest_store_times(timed) if timed else {}
    same = {queue for queue, time in times.items() if time == identities[queue].first_store_time}
    doubtful = [piece for piece in ranges if piece.queue in identities and piece.queue not in same]
    if not doubtful:
        return {}
    held = raise_first(cluster.bounds([piece.queue for piece in doubtful]))
    return _losses(cluster, doubtful, identities, held)


def _losses(
    cluster: Cluster,
    ranges: Sequence[OffsetRange],
    identities: Identities,
    held: Mapping[QueueId, Bounds],
) -> dict[QueueId, Loss]:
    first_store_times = find_first_store_times(cluster, held)
    losses: dict[QueueId, Loss] = {}
    for piece in ranges:
        if piece.queue not in held:
            continue
        identity = identities[piece.queue]
        loss = judge_offset(
            piece.queue,
            # The batch may begin the queue at offset 0; its end was planned from real messages.
            piece.end,
            held[piece.queue],
            first_offset_seen=identity.first_offset,
            first_store_time=identity.first_store_time,
            first_store_time_now=first_store_times.get(piece.queue),
        )
        if loss is not None and loss.reason is LossReason.TOPIC_RECREATED:
            losses.setdefault(piece.queue, replace(loss, start=piece.start))
    return losses
