"""Samples a cluster every few seconds, in a thread with a connection of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from rocketmq_cli.groups import group_offsets, is_system_group
from rocketmq_cli.status_page.history import BrokerSample, History, Sample
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import MASTER_ID, CommittedOffset, QueueId, is_internal_topic
from rocketmq_wire.requests.brokers import GetRuntimeInfo, SettingsReply

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
                sample = take_sample(cluster, time.time_ns() // 1_000_000)
                with self.lock:
                    self.history.add(sample)
                took_s = time.monotonic() - began
                self._stopped.wait(max(self.interval_s - took_s, took_s * _REST_PER_SAMPLE))


def take_sample(cluster: Cluster, now_ms: int) -> Sample:
    """Read the state of a cluster; requests that fail become problems of the sample."""
    problems: list[str] = []
    try:
        info = cluster.cluster_info()
        topics = [name for name in cluster.topics() if not is_internal_topic(name)]
        answers = cluster.ask_masters(GetRuntimeInfo())
        groups = [name for name in cluster.groups() if not is_system_group(name)]
    except RocketMQError as error:
        return Sample(now_ms, problems=(str(error),))
    brokers = []
    for broker in info.brokers:
        answer = answers.get(broker.name)
        brokers.append(
            BrokerSample(
                broker.name,
                broker.cluster,
                broker.addresses.get(MASTER_ID, ""),
                answer.settings if isinstance(answer, SettingsReply) else {},
                None if isinstance(answer, SettingsReply) else str(answer or "has no master"),
            )
        )
    unavailable = {broker.name for broker in brokers if broker.error is not None}

    def queues_of(group: str) -> Mapping[QueueId, CommittedOffset]:
        queues, problem = group_offsets(cluster, group)
        # An unavailable broker is reported once, not for every group.
        if problem is not None and not problem.missing.keys() <= unavailable:
            problems.append(str(problem))
        return queues

    stats = _each(topics, cluster.topic_stats, problems)
    offsets = _each(groups, queues_of, problems)
    return Sample(now_ms, tuple(brokers), stats, offsets, tuple(problems))


def _each(names: Iterable[str], ask: Callable[[str], V], problems: list[str]) -> dict[str, V]:
    """The answer for each name; failures are added to the problems instead."""
    found: dict[str, V] = {}
    for name in names:
        try:
            found[name] = ask(name)
        except RocketMQError as error:  # noqa: PERF203 - each failure is that of one name
            problems.append(f"{name}: {error}")
    return found
