"""Tells whoever asked to when the queues of a topic change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from rocketmq_wire.model import QueueId, Route

_LOG = logging.getLogger(__name__)


class TopicWatch:
    """Looks at routes when it is told to; the first look only remembers them."""

    def __init__(self) -> None:
        self._callbacks: dict[str, list[Callable[[tuple[QueueId, ...]], None]]] = {}
        self._known: dict[str, tuple[QueueId, ...]] = {}

    @property
    def topics(self) -> Iterable[str]:
        """What is watched."""
        return tuple(self._callbacks)

    def add(self, topic: str, on_change: Callable[[tuple[QueueId, ...]], None]) -> None:
        """Watch a topic."""
        self._callbacks.setdefault(topic, []).append(on_change)

    def look(self, route: Callable[[str], Route | None]) -> None:
        """Compare; what a callback raises is logged."""
        for topic in self.topics:
            found = route(topic)
            if found is None:
                continue
            queues = found.readable_queues(topic)
            known = self._known.get(topic)
            self._known[topic] = queues
            if known is None or known == queues:
                continue
            for on_change in self._callbacks[topic]:
                try:
                    on_change(queues)
                except BaseException:  # noqa: BLE001, PERF203 - a callback is not ours
                    _LOG.exception("topic=%s: a callback for its queues failed", topic)
