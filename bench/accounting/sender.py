"""Sends numbered messages and writes down what became of each send."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np

from bench.accounting.ledger import Numbers
from bench.load import QUEUES, numbered_bodies
from rocketmq_arrow.encode.rows import encode_batch_body
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import ConnectError, TransportError
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.messages import SendBatch

GROUP = "accounting-producer"
_BODY_SIZE = 100
_BATCH = 50
_TIMEOUT_MS = 3_000
_RETRY_S = 0.1


class Sender:
    """A thread that sends to every queue in turn, one batch a queue at a time, until it is stopped.

    Nothing whose outcome is unknown is sent again: it may have been stored.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        topic: str,
        *,
        first: int,
        spacing: int,
        pause_s: float,
    ) -> None:
        """Each queue's numbers begin at `first`; a body names its queue's index times `spacing`
        plus the number. After each round the thread waits for `pause_s`.
        """
        self.acknowledged: dict[int, list[Numbers]] = {}
        self.unknown: dict[int, list[Numbers]] = {}
        self.error: Exception | None = None
        self._settings = settings
        self._topic = topic
        self._first = first
        self._spacing = spacing
        self._pause_s = pause_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Finish the sends under way."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def end(self) -> None:
        """Finish the sends under way. Raises what ended the thread early."""
        self.close()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            with open_cluster(self._settings) as cluster:
                queues = cluster.route(self._topic).writable_queues(self._topic)
                assert len(queues) == QUEUES
                for queue, numbers in self._work(queues):
                    self._send(cluster, queue, numbers)
        except Exception as error:  # noqa: BLE001 - the thread's outermost frame; `end` raises it.
            self.error = error

    def _work(self, queues: tuple[QueueId, ...]) -> Iterator[tuple[QueueId, Numbers]]:
        first = self._first
        while not self._ended.wait(self._pause_s):
            for queue in queues:
                yield queue, np.arange(first, first + _BATCH)
            first += _BATCH

    def _send(self, cluster: Cluster, queue: QueueId, numbers: Numbers) -> None:
        number = queue.index * self._spacing + int(numbers[0])
        bodies = numbered_bodies(number, len(numbers), _BODY_SIZE)
        request = SendBatch(
            GROUP, queue, born_ms=time.time_ns() // 1_000_000, body=encode_batch_body(bodies)
        )
        while not self._try(cluster, request, numbers):
            if self._ended.wait(_RETRY_S):
                return

    def _try(self, cluster: Cluster, request: SendBatch, numbers: Numbers) -> bool:
        """Send once; False if the broker never saw it, and the same numbers may be sent again."""
        queue = request.queue
        try:
            cluster.transport.call(request, broker=queue.broker, timeout_ms=_TIMEOUT_MS)
        except ConnectError:
            return False
        except TransportError:
            self.unknown.setdefault(queue.index, []).append(numbers)
        else:
            self.acknowledged.setdefault(queue.index, []).append(numbers)
        return True
