"""The lag of a query or a group: messages and seconds, per queue and in total."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.consumer_group.listener import ProgressListener
from pyspark_rocketmq.options.checks import require_connection
from pyspark_rocketmq.options.definition import Use
from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.planning.progress_report import source_progress
from pyspark_rocketmq.planning.selection import selects
from pyspark_rocketmq.read.batch_reader import plan_queues
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import Bounds, QueueId
from rocketmq_wire.plural import plural

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

_log = logging.getLogger("pyspark_rocketmq")


@dataclass(frozen=True, slots=True)
class QueueLag:
    """The lag of one queue."""

    messages: int
    """The number of unread messages."""
    seconds: float | None
    """The age of the next unread message; 0 if there is none, None if it is unknown."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a query or a group, by queue and in total."""

    queues: Mapping[QueueId, QueueLag]
    """The lag of each queue, in messages and seconds."""

    @property
    def messages(self) -> int:
        """The number of unread messages."""
        return sum(lag.messages for lag in self.queues.values())

    @property
    def seconds(self) -> float | None:
        """The age of the oldest unread message; None if it is unknown for a queue with lag."""
        ages = [lag.seconds for lag in self.queues.values()]
        return None if None in ages else max((age for age in ages if age is not None), default=0.0)


def measure_lag(progress: object, options: Mapping[str, str] | None = None) -> Lag:
    """The lag of the sources in `query.lastProgress`.

    Messages come from the progress itself. With the connection's options (nameServer or endpoints)
    end offsets are read again, and the store time of each next unread message gives seconds. Queues
    outside the options' selection do not count.

    Args:
        progress: `query.lastProgress`, or the progress that a listener gets.
        options: The connection's options, and the selection; None: only what the progress itself
            reports.
    """
    sources = source_progress(progress)
    offsets = {queue: offset for source in sources for queue, offset in source.end.items()}
    ends = {queue: offset for source in sources for queue, offset in source.latest.items()}
    if options is None:
        return _lag(offsets, ends, {})
    parsed = read_options(dict(options))
    require_connection(parsed)
    is_selected = selects(parsed)
    offsets = {queue: offset for queue, offset in offsets.items() if is_selected(queue)}
    with open_cluster(connection_settings(parsed.connection)) as cluster:
        return _fresh_lag(cluster, offsets, ends, time.time() * 1_000)


def measure_group_lag(options: Mapping[str, str]) -> Lag:
    """The lag of a consumer group in the topics that the options of a read select.

    Queues without a committed offset count from their first message. Raises the errors of planning
    a read from the group's committed offsets.

    Args:
        options: The options of a read, as for `spark.read`. It names the `group`.
    """
    given = {**options, "startingOffsets": "group:earliest", "endingOffsets": "latest"}
    parsed = read_options(given, Use.BATCH)
    with open_cluster(connection_settings(parsed.connection)) as cluster:
        planned = plan_queues(cluster, parsed)
        offsets = {known.queue: known.start for known in planned}
        ends = {known.queue: known.end for known in planned}
        return _fresh_lag(cluster, offsets, ends, time.time() * 1_000)


def _fresh_lag(
    cluster: Cluster, offsets: Mapping[QueueId, int], ends: dict[QueueId, int], now_ms: float
) -> Lag:
    bounds = cluster.bounds(tuple(offsets)) if offsets else {}
    unread: dict[QueueId, int] = {}
    for queue, held in bounds.items():
        if not isinstance(held, Bounds):
            _log.warning("lag of %s is as of the last batch: %s", queue, held)
            continue
        ends[queue] = held.end
        if offsets[queue] < held.end:
            unread[queue] = max(offsets[queue], held.start)
    seconds: dict[QueueId, float] = {}
    for queue, stored_ms in (cluster.store_times_at(unread) if unread else {}).items():
        if stored_ms is None:
            _log.warning("cannot tell how old the next message of %s is", queue)
        else:
            seconds[queue] = max(0.0, (now_ms - stored_ms) / 1_000)
    return _lag(offsets, ends, seconds)


def _lag(
    offsets: Mapping[QueueId, int], ends: Mapping[QueueId, int], seconds: Mapping[QueueId, float]
) -> Lag:
    queues = {}
    for queue in sorted(offsets):
        behind = max(0, ends.get(queue, offsets[queue]) - offsets[queue])
        queues[queue] = QueueLag(behind, seconds.get(queue) if behind else 0.0)
    return Lag(queues)


class LagListener(ProgressListener):
    """Measures the lag after every batch and hands it to `report`, or logs it.

    `spark.streams.addListener(LagListener(options))` starts it.

    Args:
        options: The options of the read; None: the lag as of the last batch, without seconds.
        report: Called with a query's name or id and its lag; None: the lag is logged,
            or written to standard error if logging would drop it.
        query: The name or id of the one query to measure; None: every query.
    """

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        report: Callable[[str, Lag], None] | None = None,
        query: str | None = None,
    ) -> None:
        super().__init__(query)
        self._options = options
        self._report = report or _log_lag

    def note(self, progress: StreamingQueryProgress) -> None:
        """Measure the lag after a batch, or when the query reports that it is idle."""
        if not source_progress(progress):
            return
        name = progress.name or str(progress.id)
        try:
            lag = measure_lag(progress, self._options)
        except RocketMQError as error:
            _log.warning("query %s: lag is unknown: %s", name, error)
            return
        self._report(name, lag)


def _log_lag(name: str, lag: Lag) -> None:
    seconds = "unknown" if lag.seconds is None else f"{lag.seconds:.1f}"
    messages = plural(lag.messages, "message")
    text = f"query {name}: {messages} behind, {seconds} seconds behind"
    if _log.isEnabledFor(logging.INFO) and _log.hasHandlers():
        _log.info(text)
    else:
        # Without a configuration of logging nobody would see it.
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
