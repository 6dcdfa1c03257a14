"""The thread that finds new queues, new topics and lost data while a query runs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pyspark_rocketmq.errors import DiscoveryDiedError
from pyspark_rocketmq.options.values import ReadOptions
from pyspark_rocketmq.read.cluster_scan import ClusterScan, scan_cluster
from rocketmq_client.cluster import Cluster
from rocketmq_wire.errors import RocketMQError

_log = logging.getLogger("pyspark_rocketmq")


class Discovery:
    """Scans the cluster every `interval_ms`, on a connection of its own."""

    def __init__(
        self,
        open: Callable[[], Cluster],
        options: ReadOptions,
        topics: Callable[[], tuple[str, ...]],
        interval_ms: int,
    ) -> None:
        self._open = open
        self._options = options
        self._topics = topics
        self._interval_ms = interval_ms
        self._stop = threading.Event()
        self._latest: ClusterScan | None = None
        self._is_failing = False
        self._failure: Exception | None = None
        """The error that ended the thread."""
        self._thread = threading.Thread(target=self._run, name="rocketmq-discovery", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take(self) -> ClusterScan | None:
        """Return the newest scan not taken yet. Raises DiscoveryDiedError if the thread failed."""
        if self._failure is not None:
            raise DiscoveryDiedError(repr(self._failure)) from self._failure
        found, self._latest = self._latest, None
        return found

    def close(self, timeout_ms: int = 500) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_ms / 1_000)

    def _run(self) -> None:
        try:
            cluster = self._open()
            try:
                while not self._stop.wait(self._interval_ms / 1_000):
                    self._scan(cluster)
            finally:
                cluster.close()
        except Exception as error:  # noqa: BLE001 - the thread's outermost frame.
            # A query that cannot find new queues and losses must not seem healthy.
            self._failure = error

    def _scan(self, cluster: Cluster) -> None:
        try:
            self._latest = scan_cluster(cluster, self._options, self._topics())
            self._is_failing = False
        except RocketMQError as error:
            # The query still reads the known queues; one line for an outage is enough.
            if not self._is_failing:
                _log.warning("cannot look for new queues and topics now: %s", error)
            self._is_failing = True
