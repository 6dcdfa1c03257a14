"""Looks at a cluster every few seconds, in a thread with a connection of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from rocketmq_cli.groups.lag import group_offsets, is_system_group
from rocketmq_cli.status_page.history import History
from rocketmq_cli.status_page.samples import BrokerSeen, Sample
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import MASTER_ID, CommittedOffset, QueueId, is_internal_topic
from rocketmq_wire.requests.brokers import GetRuntimeInfo, SettingsReply

V = TypeVar("V")
HISTORY_LENGTH: Final = 720
"""An hour, at a look every 5 seconds."""
# However long a look takes, most of the time the cluster is left alone.
_REST_PER_LOOK: Final = 3
_STOP_TIMEOUT_S: Final = 10


class Observer:
    """`history` changes while it runs, so it is read with `lock` held.

    A look that fails becomes a sample with its problem.
    """

    def __init__(self, settings: ConnectionSettings, interval_s: float) -> None:
        self.history = History(HISTORY_LENGTH)
        self.lock = threading.Lock()
        self.interval_s = interval_s
        self._settings = settings
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rmq-status-page", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Return when it has ended."""
        self._stopped.set()
        self._thread.join(_STOP_TIMEOUT_S)

    def _run(self) -> None:
        with open_cluster(self._settings) as cluster:
            while not self._stopped.is_set():
                began = time.monotonic()
                sample = look(cluster, time.time_ns() // 1_000_000)
                with self.lock:
                    self.history.add(sample)
                took_s = time.monotonic() - began
                self._stopped.wait(max(self.interval_s - took_s, took_s * _REST_PER_LOOK))


def look(cluster: Cluster, now_ms: int) -> Sample:
    """All that is shown, as it is now. What cannot be had is named among the problems."""
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
            BrokerSeen(
                broker.name,
                broker.cluster,
                broker.addresses.get(MASTER_ID, ""),
                answer.settings if isinstance(answer, SettingsReply) else {},
                None if isinstance(answer, SettingsReply) else str(answer or "has no master"),
            )
        )
    away = {broker.name for broker in brokers if broker.error is not None}

    def queues_of(group: str) -> Mapping[QueueId, CommittedOffset]:
        places = group_offsets(cluster, group)
        # A broker that is away is told of once, not for every group.
        if places.problem is not None and not places.problem.missing.keys() <= away:
            problems.append(str(places.problem))
        return places.queues

    stats = _each(topics, cluster.topic_stats, problems)
    places = _each(groups, queues_of, problems)
    return Sample(now_ms, tuple(brokers), stats, places, tuple(problems))


def _each(names: Iterable[str], ask: Callable[[str], V], problems: list[str]) -> dict[str, V]:
    """The answer for each name; what fails is named among the problems instead."""
    found: dict[str, V] = {}

    def ask_one(name: str) -> None:
        try:
            found[name] = ask(name)
        except RocketMQError as error:
            problems.append(f"{name}: {error}")

    for name in names:
        ask_one(name)
    return found
