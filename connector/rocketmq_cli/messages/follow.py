"""`rmq tail --follow`: prints messages as they arrive, and reports changes of the queues.

The follower scans the route and the bounds every few seconds, because the end-offset watcher
detects neither new queues nor offsets that decrease:

    a new queue          is printed from its start
    a recreated queue    (its topic was deleted and created again) is printed from its start
    a truncated queue    (its broker lost the end) continues at its new end
    an unavailable queue keeps its position, and the reason is reported
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from rocketmq_cli.messages.printing import Printer
from rocketmq_cli.usage import UsageError, report
from rocketmq_client.cluster import Cluster
from rocketmq_client.errors import RangeLostError
from rocketmq_client.offsets.end_offset_watcher import EndOffsetWatcher
from rocketmq_wire.errors import BrokerError, RocketMQError, TopicNotFoundError
from rocketmq_wire.model import Bounds, QueueId

SCAN_INTERVAL_S: Final = 3.0
_WAIT_MS: Final = 1_000
# A scan of thousands of queues takes long: most of the time the brokers get no request.
_REST_PER_SCAN: Final = 3


class QueueSample(NamedTuple):
    """A queue in one scan."""

    bounds: Bounds
    first_store_ms: int | None
    """The store time of offset 0, None once it is expired."""


def next_position(
    queue: QueueId, position: int, before: QueueSample, now: QueueSample
) -> tuple[int, str]:
    """The position at which printing continues, and a report, empty if nothing changed."""
    start, end = now.bounds.start, now.bounds.end
    is_recreated = (
        start < before.bounds.start
        or (
            None not in (before.first_store_ms, now.first_store_ms)
            and before.first_store_ms != now.first_store_ms
        )
        or (end < position and before.first_store_ms is not None and now.first_store_ms is None)
    )
    if is_recreated:
        return start, f"{queue} was deleted and created again: its messages follow from its start"
    if end < position:
        return end, (
            f"{queue} ends at {end:,}, though it was printed up to {position:,}: its broker lost "
            "messages. Messages that arrive now follow"
        )
    return position, ""


class Follower:
    """Follows the queues of topics from `positions`, which it advances. Use it in `with`."""

    def __init__(
        self,
        cluster: Cluster,
        find_topics: Callable[[], Iterable[str]],
        positions: dict[QueueId, int],
        *,
        index: int | None = None,
        scan_interval_s: float = SCAN_INTERVAL_S,
        reporter: Callable[[str], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._find_topics = find_topics
        self._topics: dict[str, None] = {}
        self._index = index
        self._positions = positions
        self._scan_interval_s = scan_interval_s
        self._report = reporter or report
        self._samples: dict[QueueId, QueueSample] = {}
        self._problems: set[str] = set()
        self._gone: set[str] = set()
        self._watch = EndOffsetWatcher(cluster.settings, positions)
        self._scan()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.close()

    def run(self, printer: Printer) -> None:
        """Print until the printer is done. Raises errors that end the command."""
        next_scan = time.monotonic()
        while not printer.is_done:
            if self._gone == self._topics.keys():
                # New messages before the next scan may be of a recreated topic.
                time.sleep(self._scan_interval_s)
                self._scan()
                continue
            self._watch.wait(self._positions, _WAIT_MS)
            if (began := time.monotonic()) >= next_scan:
                self._scan()
                took_s = time.monotonic() - began
                next_scan = began + took_s + max(self._scan_interval_s, took_s * _REST_PER_SCAN)
            known = self._watch.ends()
            ends = {
                queue: at if queue.topic in self._gone else known.get(queue, at)
                for queue, at in self._positions.items()
            }
            try:
                printer.print_between(self._cluster, self._positions, ends)
            except (RangeLostError, TopicNotFoundError):
                # The topic may have been recreated since the last scan.
                if not self._scan():
                    raise

    def _scan(self) -> bool:
        """Scan the route and the bounds; True if something changed."""
        route_errors: dict[str, RocketMQError] = {}
        try:
            # All topics that a pattern selected may be gone: it selects none then.
            with suppress(UsageError):
                self._topics.update(dict.fromkeys(self._find_topics()))
        except RocketMQError as error:
            route_errors["the list of topics"] = error
        listed: list[QueueId] = []
        gone: set[str] = set()
        for topic in self._topics:
            try:
                listed += self._cluster.queues(topic)
            except TopicNotFoundError:  # noqa: PERF203 - each failure is that of one topic
                gone.add(topic)
            except RocketMQError as error:
                route_errors[f"topic {topic}"] = error
        for topic in sorted(gone - self._gone):
            self._report(f"topic {topic} is gone: waiting until it exists again")
        is_new, self._gone = bool(gone - self._gone), gone
        self._report_problems(route_errors)
        wanted = [queue for queue in listed if self._index in (None, queue.index)]
        if not wanted:
            return is_new
        changed = [
            queue for queue, seen in self._sample(wanted).items() if self._update(queue, seen)
        ]
        if changed:
            # The old watcher's end offsets and in-flight requests are out of date.
            self._watch.close()
            self._watch = EndOffsetWatcher(self._cluster.settings, self._positions)
        return is_new or bool(changed)

    def _sample(self, queues: list[QueueId]) -> dict[QueueId, QueueSample]:
        found: dict[QueueId, QueueSample] = {}
        asked = self._cluster.bounds(queues)
        # Read after the bounds: for a queue recreated in between they must not be older.
        first_times = self._first_store_times(queues)
        for queue, bounds in asked.items():
            first_ms = first_times[queue]
            if isinstance(bounds, Bounds) and not isinstance(first_ms, RocketMQError):
                found[queue] = QueueSample(bounds, first_ms if bounds.start == 0 else None)
        return found

    def _first_store_times(
        self, queues: list[QueueId]
    ) -> dict[QueueId, int | RocketMQError | None]:
        first_times = self._cluster.earliest_store_times(queues)
        refused = [
            queue for queue, answer in first_times.items() if isinstance(answer, BrokerError)
        ]
        if refused:
            # Proxies lack this request, and some accounts may not send it: all may pull.
            first_times.update(
                self._cluster.store_times_at(dict.fromkeys(refused, 0), is_exact=True)
            )
        return first_times

    def _update(self, queue: QueueId, now: QueueSample) -> bool:
        """Store a queue's sample; True if its position changed."""
        before = self._samples.get(queue, now)
        if now.first_store_ms is None and now.bounds.start == 0 < now.bounds.end:
            now = now._replace(
                first_store_ms=before.first_store_ms
            )  # The queue was deleted between two requests.
        self._samples[queue] = now
        if queue not in self._positions:
            self._positions[queue] = now.bounds.start
            self._report(f"{queue} is new: its messages follow from its start")
            return True
        self._positions[queue], text = next_position(queue, self._positions[queue], before, now)
        if text:
            self._report(text)
        return bool(text)

    def _report_problems(self, route_errors: Mapping[str, RocketMQError]) -> None:
        """Report each problem once, and its end."""
        problems = {str(queue): error for queue, error in self._watch.errors().items()}
        problems.update(route_errors)
        for name, error in problems.items():
            if name not in self._problems:
                self._report(f"{name} cannot be watched: {error}")
        for name in sorted(self._problems - problems.keys()):
            self._report(f"{name} is watched again")
        self._problems = set(problems)
