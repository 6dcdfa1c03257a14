"""The state of a member that tools show (`mqadmin consumerStatus`)."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rocketmq_client.consumer.common.io_thread import now_ms
from rocketmq_client.consumer.common.listener import ConsumeCounts
from rocketmq_client.consumer.common.settings import ConsumerSettings
from rocketmq_client.consumer.pulling.queue_puller import OwnedQueue, PullCounts
from rocketmq_wire.model import ConsumerInfo, QueueId
from rocketmq_wire.requests.members import ConsumeRates, QueueInfo, RunningInfoReply


def running_info(
    settings: ConsumerSettings,
    info: ConsumerInfo,
    owned: Mapping[QueueId, OwnedQueue],
    pulls: PullCounts,
    consumed: ConsumeCounts | None,
) -> RunningInfoReply:
    """The current state; `consumed` is None for a member without a listener."""
    shift_ms = time.time_ns() // 1_000_000 - now_ms()
    counts = consumed or ConsumeCounts()
    seconds = max((time.monotonic_ns() - pulls.started_ns) / 1e9, 1e-3)
    total = max(counts.succeeded + counts.failed, 1)
    # The counts are those of the whole consumer, so every topic shows the same rates.
    rates = ConsumeRates(
        pull_ms=pulls.round_trip_ms / max(pulls.pulls, 1),
        pulled=pulls.messages / seconds,
        consume_ms=counts.spent_ns / 1e6 / total,
        succeeded=counts.succeeded / seconds,
        failed=counts.failed / seconds,
    )
    properties = {
        "PROP_CONSUME_TYPE": info.consume_type,
        "PROP_CONSUMEORDERLY": str(any(one.control.is_orderly for one in owned.values())).lower(),
        "PROP_THREADPOOL_CORE_SIZE": str(settings.threads if consumed is not None else 0),
        "PROP_CONSUMER_START_TIMESTAMP": str(pulls.started_ns // 1_000_000 + shift_ms),
        "PROP_CLIENT_VERSION": "PYTHON",
        "consumeMessageBatchMaxSize": str(settings.consume_batch_size),
        "pullBatchSize": str(settings.pull_batch_size),
        "pullThresholdForQueue": str(settings.limits.count_max),
    }
    queues = {queue: _queue_info(one, shift_ms) for queue, one in owned.items()}
    topics = {topic: rates for topic, *_ in info.subscriptions}
    return RunningInfoReply(properties, queues, topics, info.subscriptions)


def _queue_info(owned: OwnedQueue, shift_ms: int) -> QueueInfo:
    def epoch(time_ms: int) -> int:
        return time_ms + shift_ms if time_ms else 0

    with owned.lock:
        process = owned.process
        first = process.waiting_from if process.count else 0
        return QueueInfo(
            done=process.consumed_offset,
            count=process.count,
            first=first,
            last=first + process.span if process.count else 0,
            size=process.size,
            is_locked=process.is_locked,
            lock_ms=epoch(process.lock_ms if process.is_locked else 0),
            is_dropped=process.is_dropped,
            pull_ms=epoch(process.last_pull_ms),
            consume_ms=epoch(process.last_consume_ms),
        )
