"""`rmq tail --follow` behind what was there: prints what arrives, and says what happens to queues.

Every few seconds the route and the bounds are looked at, as the watch for arrivals knows neither
queues that come nor offsets that go back:

    a new queue        is printed from its start
    a queue made anew  (its topic was deleted and created again) is printed from its start
    a queue cut off    (its broker lost the end) goes on at its new end
    a queue away       keeps its place, and why it cannot be seen is said
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from rocketmq_cli.usage import report
from rocketmq_client.cluster import Cluster
from rocketmq_client.errors import RangeLostError
from rocketmq_client.offsets.end_offset_watcher import EndOffsetWatcher
from rocketmq_wire.errors import BrokerError, RocketMQError, TopicNotFoundError
from rocketmq_wire.model import Bounds, QueueId

LOOK_S: Final = 3.0
_WAIT_MS: Final = 1_000
# A look at thousands of queues takes its time: most of the time they are left alone.
_REST_PER_LOOK: Final = 3


class Seen(NamedTuple):
    """A queue at a look."""

    bounds: Bounds
    birth_ms: int | None
    """When offset 0 was stored, while it is there."""


class Prints(Protocol):
    """What prints."""

    @property
    def is_done(self) -> bool: ...

    def print_between(
        self, cluster: Cluster, positions: dict[QueueId, int], ends: Mapping[QueueId, int]
    ) -> None: ...


def go_on(queue: QueueId, position: int, before: Seen, now: Seen) -> tuple[int, str]:
    """Where to go on in a queue, and what is to be said of it; nothing when all is as it was."""
    start, end = now.bounds.start, now.bounds.end
    is_anew = (
        start < before.bounds.start
        or (None not in (before.birth_ms, now.birth_ms) and before.birth_ms != now.birth_ms)
        or (end < position and before.birth_ms is not None and now.birth_ms is None)
    )
    if is_anew:
        return start, f"{queue} was deleted and made anew: its messages follow from its start"
    if end < position:
        return end, (
            f"{queue} ends at {end:,}, though it was printed up to {position:,}: its broker lost "
            "messages. What arrives now follows"
        )
    return position, ""


class Follower:
    """Follows the queues of a topic from `positions`, which it moves on. Use it in `with`."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        positions: dict[QueueId, int],
        *,
        index: int | None = None,
        look_s: float = LOOK_S,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._cluster, self._topic, self._index = cluster, topic, index
        self._positions = positions
        self._look_s = look_s
        self._say = say or report
        self._seen: dict[QueueId, Seen] = {}
        self._problems: set[str] = set()
        self._is_gone = False
        self._watch = EndOffsetWatcher(cluster.settings, positions)
        self._look()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.close()

    def run(self, printer: Prints) -> None:
        """Print until the printer is done. Raises what cannot be gone on from."""
        next_look = time.monotonic()
        while not printer.is_done:
            if self._is_gone:
                # What arrives before the next look may be of a topic that was made anew.
                time.sleep(self._look_s)
                self._look()
                continue
            self._watch.wait(self._positions, _WAIT_MS)
            if (began := time.monotonic()) >= next_look:
                self._look()
                took_s = time.monotonic() - began
                next_look = began + took_s + max(self._look_s, took_s * _REST_PER_LOOK)
            known = self._watch.ends()
            ends = {queue: known.get(queue, at) for queue, at in self._positions.items()}
            try:
                printer.print_between(self._cluster, self._positions, ends)
            except (RangeLostError, TopicNotFoundError):
                # Was it made anew since it was looked at?
                if not self._look():
                    raise

    def _look(self) -> bool:
        """Look at the route and the bounds; True when something is not as it was."""
        try:
            listed = self._cluster.queues(self._topic)
        except TopicNotFoundError:
            if not self._is_gone:
                self._say(f"topic {self._topic} is gone: waiting for it to come back")
            is_new, self._is_gone = not self._is_gone, True
            return is_new
        except RocketMQError as error:
            self._say_problems(error)
            return False
        self._is_gone = False
        self._say_problems(None)
        now = self._look_at([queue for queue in listed if self._index in (None, queue.index)])
        changed = [queue for queue, seen in now.items() if self._take(queue, seen)]
        if changed:
            # What the watch knows of them, and has under way, is of the time before.
            self._watch.close()
            self._watch = EndOffsetWatcher(self._cluster.settings, self._positions)
        return bool(changed)

    def _look_at(self, queues: list[QueueId]) -> dict[QueueId, Seen]:
        found: dict[QueueId, Seen] = {}
        asked = self._cluster.bounds(queues)
        # Behind the bounds: of a queue made anew in between it must not say less than they do.
        births = self._births(queues)
        for queue, bounds in asked.items():
            birth = births[queue]
            if isinstance(bounds, Bounds) and not isinstance(birth, RocketMQError):
                found[queue] = Seen(bounds, birth if bounds.start == 0 else None)
        return found

    def _births(self, queues: list[QueueId]) -> dict[QueueId, int | RocketMQError | None]:
        births = self._cluster.earliest_store_times(queues)
        refused = [queue for queue, answer in births.items() if isinstance(answer, BrokerError)]
        if refused:
            # Proxies do not know this question, some accounts may not ask it: all may pull.
            births.update(self._cluster.store_times_at(dict.fromkeys(refused, 0), is_exact=True))
        return births

    def _take(self, queue: QueueId, now: Seen) -> bool:
        """Take what was seen of a queue; True when it goes on elsewhere than it stood."""
        before = self._seen.get(queue, now)
        if now.birth_ms is None and now.bounds.start == 0 < now.bounds.end:
            now = now._replace(birth_ms=before.birth_ms)  # It was deleted between two questions.
        self._seen[queue] = now
        if queue not in self._positions:
            self._positions[queue] = now.bounds.start
            self._say(f"{queue} is new: its messages follow from its start")
            return True
        self._positions[queue], told = go_on(queue, self._positions[queue], before, now)
        if told:
            self._say(told)
        return bool(told)

    def _say_problems(self, of_route: RocketMQError | None) -> None:
        """Each once, and when it is over."""
        problems = {str(queue): error for queue, error in self._watch.errors().items()}
        if of_route is not None:
            problems[f"topic {self._topic}"] = of_route
        for name, error in problems.items():
            if name not in self._problems:
                self._say(f"{name} cannot be seen: {error}")
        for name in sorted(self._problems - problems.keys()):
            self._say(f"{name} is seen again")
        self._problems = set(problems)
