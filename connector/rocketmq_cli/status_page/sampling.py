"""Samples a cluster in a thread of its own: what its pages and metrics show."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from rocketmq_cli.groups import GroupOffsets, Members, find_members, group_offsets, is_system_group
from rocketmq_cli.status_page.history import BrokerSample, History, Sample
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import (
    DEAD_LETTER_PREFIX,
    MASTER_ID,
    CommittedOffset,
    QueueId,
    is_internal_topic,
)
from rocketmq_wire.requests.brokers import GetBrokerSettings, GetRuntimeInfo, SettingsReply

V = TypeVar("V")
HISTORY_LENGTH: Final = 720
"""An hour, with a sample every 5 seconds."""
# A slow sample is followed by a longer pause, so that the cluster is idle most of the time.
_REST_PER_SAMPLE: Final = 3
_STOP_TIMEOUT_S: Final = 10


class Observer:
    """Adds samples to `history`; readers hold `lock`.

    A failure becomes a sample with its problem.
    """

    def __init__(self, settings: ConnectionSettings, interval_s: float) -> None:
        self.history = History(HISTORY_LENGTH)
        self.lock = threading.Lock()
        self.interval_s = interval_s
        self._settings = settings
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rmq-status-page", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(_STOP_TIMEOUT_S)

    def _run(self) -> None:
        with open_cluster(self._settings) as cluster:
            while not self._stopped.is_set():
                began = time.monotonic()
                now_ms = time.time_ns() // 1_000_000
                sample = take_sample(cluster, now_ms, self.history.newest)
                with self.lock:
                    self.history.add(sample)
                took_s = time.monotonic() - began
                self._stopped.wait(max(self.interval_s - took_s, took_s * _REST_PER_SAMPLE))


def take_sample(cluster: Cluster, now_ms: int, before: Sample | None = None) -> Sample:
    """Read the state of a cluster; requests that fail become problems of the sample.

    Store times that the sample `before` has are not read again.
    """
    problems: list[str] = []
    try:
        topics = [name for name in cluster.topics() if is_shown(name)]
        brokers = _brokers(cluster)
        groups = [name for name in cluster.groups() if not is_system_group(name)]
    except RocketMQError as error:
        return Sample(now_ms, problems=(str(error),))
    unavailable = {broker.name for broker in brokers if broker.error is not None}

    def offsets_of(group: str) -> Mapping[QueueId, CommittedOffset]:
        found: GroupOffsets = group_offsets(cluster, group)
        # An unavailable broker is reported once, not for every group.
        if found.problem is not None and not found.problem.missing.keys() <= unavailable:
            problems.append(str(found.problem))
        return found.queues

    def members_of(group: str) -> Members | None:
        try:
            return find_members(cluster, group)
        except RocketMQError:
            if unavailable:
                return None
            raise

    stats = _each(topics, cluster.topic_stats, problems)
    offsets = _each(groups, offsets_of, problems)
    members = _each(groups, members_of, problems)
    sample = Sample(
        now_ms,
        brokers,
        stats,
        offsets,
        tuple(problems),
        members={group: found for group, found in members.items() if found is not None},
    )
    unread = {group: _unread_ms(cluster, group, sample, before or sample) for group in offsets}
    return replace(sample, unread_ms=unread)


def is_shown(topic: str) -> bool:
    """True for the topics of applications and for dead letters."""
    return topic.startswith(DEAD_LETTER_PREFIX) or not is_internal_topic(topic)


def _brokers(cluster: Cluster) -> tuple[BrokerSample, ...]:
    answers = cluster.ask_masters(GetRuntimeInfo())
    settings = cluster.ask_masters(GetBrokerSettings())
    samples = []
    for broker in cluster.cluster_info().brokers:
        answer, setting = answers.get(broker.name), settings.get(broker.name)
        samples.append(
            BrokerSample(
                broker.name,
                broker.cluster,
                broker.addresses.get(MASTER_ID, ""),
                answer.settings if isinstance(answer, SettingsReply) else {},
                None if isinstance(answer, SettingsReply) else str(answer or "has no master"),
                setting.settings.get("fileReservedTime")
                if isinstance(setting, SettingsReply)
                else None,
            )
        )
    return tuple(samples)


def _unread_ms(
    cluster: Cluster, group: str, sample: Sample, before: Sample
) -> Mapping[QueueId, int]:
    """The store time of the next unread message of each queue with lag, if it is known."""
    found: dict[QueueId, int] = {}
    unknown: dict[QueueId, int] = {}
    for queue, at in sample.groups[group].items():
        if at.lag <= 0:
            continue
        earlier = before.groups.get(group, {}).get(queue)
        stored_ms = before.unread_ms.get(group, {}).get(queue)
        held = sample.topics.get(queue.topic, {}).get(queue)
        # Retention moves the next unread message of a group that is behind the queue's start.
        is_behind_start = held is not None and at.consumer_offset < held.start
        is_same = earlier is not None and earlier.consumer_offset == at.consumer_offset
        if stored_ms is not None and is_same and not is_behind_start:
            found[queue] = stored_ms
        else:
            unknown[queue] = at.consumer_offset
    times = cluster.store_times_at(unknown) if unknown else {}
    return found | {queue: stored_ms for queue, stored_ms in times.items() if stored_ms}


def _each(names: Iterable[str], ask: Callable[[str], V], problems: list[str]) -> dict[str, V]:
    """The answer for each name; failures are added to the problems instead."""
    found: dict[str, V] = {}
    for name in names:
        try:
            found[name] = ask(name)
        except RocketMQError as error:  # noqa: PERF203 - each failure is that of one name
            problems.append(f"{name}: {error}")
    return found
