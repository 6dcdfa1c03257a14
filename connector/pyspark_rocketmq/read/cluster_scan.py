"""Scans the cluster: the selected queues, their bounds, and what cannot be reached."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark_rocketmq.errors import ClusterUnreachableError, OptionError
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.planning.selection import (
    assigned_queues,
    listed,
    matching_topics,
    named_topics,
)
from rocketmq_client.cluster import Cluster, no_route
from rocketmq_client.retry import Retry
from rocketmq_client.retry_schedules import PLAN
from rocketmq_wire.errors import (
    BrokerError,
    RocketMQError,
    TopicNotFoundError,
    TransportError,
    split_answers,
)
from rocketmq_wire.model import Bounds, QueueId

_log = logging.getLogger("pyspark_rocketmq")


@dataclass(frozen=True, slots=True)
class ClusterScan:
    """The selected queues as found at one moment."""

    queues: tuple[QueueId, ...] = ()
    """The selected queues that exist, according to the routes."""
    bounds: Mapping[QueueId, Bounds] = field(default_factory=dict)
    first_store_times: Mapping[QueueId, int] = field(default_factory=dict)
    """When offset 0 was stored, for queues that still have it."""
    unreachable: Mapping[QueueId, RocketMQError] = field(default_factory=dict)
    absent_topics: frozenset[str] = frozenset()
    """Topics without a route that are selected by name, or were known before."""
    missing_queues: tuple[QueueId, ...] = ()
    """Assigned queues that do not exist."""

    @property
    def topics(self) -> set[str]:
        return {queue.topic for queue in self.queues} | self.absent_topics

    @property
    def brokers(self) -> frozenset[tuple[str, str]]:
        return frozenset((queue.topic, queue.broker) for queue in self.queues)


def scan_cluster(
    cluster: Cluster,
    options: ReadOptions,
    also: Iterable[str] = (),
    *,
    with_first_store_times: bool = True,
) -> ClusterScan:
    """Scan the selected topics, and the topics `also` known from before.

    Raises RocketMQError if the name server does not answer; a broker that does not answer is in the
    result.
    """
    named = named_topics(options)
    if named is None:
        topics = set(matching_topics(options.subscribe_pattern or "", cluster.topics())) | set(also)
    else:
        topics = set(named)
    existing: dict[str, tuple[QueueId, ...]] = {}
    absent: set[str] = set()
    for topic in sorted(topics):
        try:
            existing[topic] = cluster.queues(topic)
        except TopicNotFoundError:  # noqa: PERF203 - each try costs a round trip.
            absent.add(topic)
    missing: list[QueueId] = []
    if options.assign is not None:
        queues, missing = assigned_queues(options.assign, existing)
    else:
        queues = sorted(queue for found in existing.values() for queue in found)
    bounds, unreachable = split_answers(cluster.bounds(queues) if queues else {})
    return ClusterScan(
        tuple(queues),
        bounds,
        find_first_store_times(cluster, bounds) if with_first_store_times else {},
        unreachable,
        frozenset(absent),
        tuple(missing),
    )


def find_first_store_times(
    cluster: Cluster, bounds: Mapping[QueueId, Bounds]
) -> dict[QueueId, int]:
    """Find when offset 0 was stored, for those of the queues that still have it."""
    candidates = [queue for queue, held in bounds.items() if held.start == 0 and held.end > 0]
    if not candidates:
        return {}
    times: dict[QueueId, int | RocketMQError | None] = cluster.earliest_store_times(candidates)
    refused = [queue for queue, answer in times.items() if isinstance(answer, BrokerError)]
    if refused:
        # A proxy does not support this request, but serves pulls, as any account that may read.
        times.update(cluster.store_times_at(dict.fromkeys(refused, 0), is_exact=True))
    # Retention between the two answers would give the time of a later message.
    after = cluster.bounds(candidates)
    first_store_times: dict[QueueId, int] = {}
    for queue, answer in times.items():
        held = after[queue]
        if isinstance(answer, int) and isinstance(held, Bounds) and held.start == 0 < held.end:
            first_store_times[queue] = answer
    return first_store_times


def first_scan(
    cluster: Cluster,
    options: ReadOptions,
    also: Iterable[str] = (),
    *,
    is_whole: bool,
    with_first_store_times: bool = True,
) -> ClusterScan:
    """Scan until the cluster answers, for as long as making a connection may take.

    A user waits for the start of a read, so a wrong address must be reported within seconds.
    `is_whole` requires every broker of every queue: a new query needs all of their bounds.
    Raises ClusterUnreachableError, and at once an error that a retry cannot help.
    """

    def scan() -> ClusterScan:
        found = scan_cluster(cluster, options, also, with_first_store_times=with_first_store_times)
        if is_whole and found.unreachable:
            raise next(iter(found.unreachable.values()))
        return found

    policy = PLAN.within(
        options.connection.connect_timeout_ms, options.connection.retry_max_delay_ms
    )
    retry = Retry(policy, cluster.clock, log=_log)
    try:
        return retry.call(scan)
    except TransportError as error:
        raise ClusterUnreachableError(
            options.connection.address, error.address, error.reason, retry.failures, retry.waited_ms
        ) from None


def require_selected(scan: ClusterScan, options: ReadOptions, cluster: Cluster) -> None:
    """Check that a new read finds the topics and queues that its options name.

    Raises TopicNotFoundError and OptionError.
    """
    if scan.absent_topics and not options.may_be_absent:
        raise no_route(cluster, scan.absent_topics)
    if scan.missing_queues:
        raise OptionError(
            "assign",
            f"names queues that do not exist: {listed(scan.missing_queues)}",
            "UNKNOWN_QUEUE",
        )
