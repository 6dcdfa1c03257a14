"""OffsetCommitListener: commits a group's offsets when Spark reports a batch, from the driver.

The source commits when Spark asks for the next batch. Spark does not ask between the ticks of a
long trigger, after Trigger.Once and after `stop()`; its progress reports close that gap.

The rules are the source's: a group with live members is not committed, nor is a queue whose stored
offset is above the reported one, unless the listener committed it. Under asynchronous progress
tracking a report comes before its batch is in the checkpoint; commitOffsets=confirmed waits for
that.
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from pyspark_rocketmq.client_settings import connection_settings
from pyspark_rocketmq.consumer_group.commit import commit_round, require_free
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.checks import require_connection
from pyspark_rocketmq.options.parse import read_options
from pyspark_rocketmq.planning.progress_report import source_progress
from pyspark_rocketmq.planning.selection import selects
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_wire.errors import RocketMQError
from rocketmq_wire.model import QueueId

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

_log = logging.getLogger("pyspark_rocketmq")


class ProgressListener(StreamingQueryListener):
    """Notes the batches that Spark reports of one query, by its name or id, or of all."""

    def __init__(self, query: str | None) -> None:
        super().__init__()
        self._query = query

    @abstractmethod
    def note(self, progress: StreamingQueryProgress) -> None:
        """Note a batch that has ended."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if self._query in (None, progress.name, str(progress.id)):
            self.note(progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None: ...


class OffsetCommitListener(ProgressListener):
    """Commits the offsets of finished batches to a consumer group.

    `spark.streams.addListener(OffsetCommitListener(options))`, with the source's own options.

    It uses the connection, `group`, `commitOffsets` and the selection: it commits only selected
    queues, and nothing under commitOffsets=false.

    Args:
        options: The options of the read.
        query: The name or id of the query whose batches to commit; None: every query.
        also_unconfirmed: Commits under `commitOffsets=confirmed`, too.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        query: str | None = None,
        *,
        also_unconfirmed: bool = False,
    ) -> None:
        super().__init__(query)
        self._options = read_options(dict(options))
        require_connection(self._options)
        if self._options.consumer.group is None:
            raise OptionError(
                "group", "is missing: name the group whose offsets are to be committed", "MISSING"
            )
        self._group = self._options.consumer.group
        mode = self._options.consumer.commit_offsets
        # A member of its group commits by itself, and only the queues that it owns.
        self._is_active = not self._options.consumer.join_group and (
            mode == "true" or (mode == "confirmed" and also_unconfirmed)
        )
        self._selects = selects(self._options)
        self._is_alone = False
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._ended: dict[str, dict[QueueId, int]] = {}
        """The committed end offsets of each query's last batch."""

    def note(self, progress: StreamingQueryProgress) -> None:
        """Commit the batch; it is in the checkpoint, unless progress is tracked asynchronously."""
        if not self._is_active:
            return
        ends: dict[QueueId, int] = {}
        for source in source_progress(progress):
            if not source.is_initial:
                ends.update({q: offset for q, offset in source.end.items() if self._selects(q)})
        self._commit(str(progress.id), ends)

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

    def _commit(self, query: str, ends: Mapping[QueueId, int]) -> None:
        with self._lock:
            before = self._ended.setdefault(query, {})
            due = {queue: offset for queue, offset in ends.items() if before.get(queue) != offset}
            if not due:
                return
            try:
                if self._cluster is None:
                    self._cluster = open_cluster(connection_settings(self._options.connection))
                self._send(self._cluster, due, before)
            except RocketMQError as error:
                # Committed offsets are for people and tools: the next report retries.
                _log.warning("group %s: offsets are not committed: %s", self._group, error)

    def _send(
        self, cluster: Cluster, wanted: Mapping[QueueId, int], before: dict[QueueId, int]
    ) -> None:
        if not self._is_alone:
            require_free(cluster, self._group, sorted({queue.topic for queue in wanted}))
            self._is_alone = True
        stored, others, errors = commit_round(cluster, self._group, wanted, wanted, dict, before)
        for queue in others:
            # Another committer, or the source itself, which may be one batch ahead of this report.
            _log.info("group %s %s: %s is left as it is", self._group, queue, stored[queue])
        for queue, error in errors.items():
            _log.warning("group %s %s: not committed: %s", self._group, queue, error)
        before.update({q: n for q, n in stored.items() if n is not None and wanted[q] == n})
