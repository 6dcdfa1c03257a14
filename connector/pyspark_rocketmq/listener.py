"""GroupProgressListener: commits a group's progress when Spark reports a batch, from the driver.

The source commits when Spark asks it for the next batch. Between the ticks of a long trigger, after
Trigger.Once and after `stop()` nobody asks; Spark's progress reports close that gap.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_rocketmq.connecting import connection_settings
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import parse_options, require_connection
from pyspark_rocketmq.progress_report import source_progress
from pyspark_rocketmq.selection import matching_topics, named_topics
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_log = logging.getLogger("pyspark_rocketmq")


class GroupProgressListener(StreamingQueryListener):
    """`spark.streams.addListener(GroupProgressListener(options))`, with the source's own options.

    Of the options the connection, `group` and the selection count: topics that are not selected are
    left alone. `query` is a query's name or id: only its progress counts then.
    """

    def __init__(self, options: Mapping[str, str], query: str | None = None) -> None:
        super().__init__()
        self._options = parse_options(dict(options))
        require_connection(self._options)
        if self._options.group is None:
            raise OptionError("group", "is missing: whose progress shall be committed?", "MISSING")
        self._group, self._query = self._options.group, query
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._ended: dict[str, dict[QueueId, int]] = {}
        """Where the last batch of each query ended, as far as it was committed."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing was read yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch is done: its end is durable by now."""
        progress = event.progress
        if self._query not in (None, progress.name, str(progress.id)):
            return
        ends: dict[QueueId, int] = {}
        for source in source_progress(progress):
            if not source.is_initial:
                ends.update(self._selected(source.end))
        self._commit(str(progress.id), ends)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The last report came before this."""
        with self._lock:
            self._ended.pop(str(event.id), None)

    def close(self) -> None:
        """Close the connection; a later report opens it again."""
        with self._lock:
            if self._cluster is not None:
                self._cluster.close()
                self._cluster = None

    def _selected(self, ends: Mapping[QueueId, int]) -> dict[QueueId, int]:
        topics = {queue.topic for queue in ends}
        named = named_topics(self._options)
        if named is not None:
            topics &= set(named)
        elif self._options.subscribe_pattern is not None:
            topics = set(matching_topics(self._options.subscribe_pattern, topics))
        return {queue: offset for queue, offset in ends.items() if queue.topic in topics}

    def _commit(self, query: str, ends: Mapping[QueueId, int]) -> None:
        with self._lock:
            before = self._ended.setdefault(query, {})
            due = {queue: offset for queue, offset in ends.items() if before.get(queue) != offset}
            if not due:
                return
            try:
                if self._cluster is None:
                    self._cluster = open_cluster(connection_settings(self._options))
                for queue, result in self._cluster.commit(self._group, due).items():
                    if isinstance(result, RocketMQError):
                        _log.warning("group %s %s: not committed: %s", self._group, queue, result)
                    else:
                        before[queue] = due[queue]
            except RocketMQError as error:
                # Progress is for people and tools: the next report tries again.
                _log.warning("group %s: progress is not committed: %s", self._group, error)
