"""Asks for the bounds of many queues at once, and for their offsets by store time.

Brokers answer a search by time in different ways (nearest, first, last, any of several equal times,
the last message for a time in the future). Their answer is a guess: it is checked by the store
times of the messages around it, and replaced by a binary search if it is wrong. So the result is
the same on every broker version. Store times follow the broker's clock; if that was set back, one
of the possible boundaries is found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rocketmq_client.settings import READER_GROUP
from rocketmq_wire.errors import RemoteProtocolError, RocketMQError
from rocketmq_wire.model import Bounds, QueueId
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import PullMessages, PullReply, PullStatus
from rocketmq_wire.requests.offsets import (
    Boundary,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    SearchOffset,
)
from rocketmq_wire.requests.topics import GetTopicStats, TopicStatsReply

Ask = Callable[[Sequence[tuple[str | None, Request[Reply]]]], list[Reply | RocketMQError]]

# Up to this count, queues are asked for one by one: any account that may read is allowed to.
_SINGLE_MAX: Final = 64
# A queue of 2**62 messages takes 62 halvings; more rounds mean that its bounds keep moving.
_ROUNDS_MAX: Final = 80


def ask_bounds(ask: Ask, queues: Iterable[QueueId]) -> dict[QueueId, Bounds | RocketMQError]:
    """Return first and next offset of every queue, or its error.

    Many queues are asked for together, with one request a topic and broker.
    """
    every = tuple(dict.fromkeys(queues))
    many = _ask_statistics(ask, every) if len(every) > _SINGLE_MAX else {}
    one_by_one = _ask_each(ask, [queue for queue in every if queue not in many])
    return {queue: many[queue] if queue in many else one_by_one[queue] for queue in every}


def _ask_statistics(ask: Ask, queues: Sequence[QueueId]) -> dict[QueueId, Bounds]:
    """Return the bounds in topics' statistics; none of a broker that refuses them."""
    wanted: dict[tuple[str, str], list[QueueId]] = {}
    for queue in queues:
        wanted.setdefault((queue.topic, queue.broker), []).append(queue)
    replies = ask([(broker, GetTopicStats(topic)) for topic, broker in wanted])
    found: dict[QueueId, Bounds] = {}
    for at_broker, reply in zip(wanted.values(), replies, strict=True):
        if not isinstance(reply, TopicStatsReply):
            continue
        for queue in at_broker:
            stats = reply.queues.get(queue)
            if stats is not None:
                end = max(0, stats.end)
                found[queue] = Bounds(max(0, min(stats.start, end)), end, reply.is_current)
    return found


def _ask_each(ask: Ask, wanted: Sequence[QueueId]) -> dict[QueueId, Bounds | RocketMQError]:
    if not wanted:
        return {}
    requests: list[tuple[str | None, Request[Reply]]] = []
    for queue in wanted:
        # The first offset is asked first: retention may move it, and it must not pass the end.
        requests.append((queue.broker, GetMinOffset(queue)))
        requests.append((queue.broker, GetMaxOffset(queue)))
    replies = ask(requests)
    bounds: dict[QueueId, Bounds | RocketMQError] = {}
    for index, queue in enumerate(wanted):
        start, end = replies[2 * index], replies[2 * index + 1]
        if isinstance(start, RocketMQError):
            bounds[queue] = start
        elif isinstance(end, RocketMQError):
            bounds[queue] = end
        else:
            assert isinstance(start, OffsetReply)
            assert isinstance(end, OffsetReply)
            # -1 is a queue without any file. While real brokers remove files, a first offset may
            # be above the end for a moment.
            is_current = start.is_current and end.is_current
            first = max(0, min(start.value, end.value))
            bounds[queue] = Bounds(first, max(0, end.value), is_current)
    return bounds


@dataclass(slots=True)
class TimeSearch:
    """The search in one queue. Report the store time at `probe` until there is an `answer`.

    Messages below `low` are too early, messages from `high` on are late enough.
    """

    timestamp_ms: int
    low: int
    high: int
    probe: int
    _guess_is_open: bool = True

    @classmethod
    def start(cls, timestamp_ms: int, bounds: Bounds, guess: int) -> TimeSearch:
        guess = min(max(guess, bounds.start), bounds.end)
        # If the guess is late enough and the message before it too early, two store times are
        # enough.
        probe = min(guess, bounds.end - 1)
        return cls(timestamp_ms, bounds.start, bounds.end, probe)

    @property
    def answer(self) -> int | None:
        """The first offset whose message is late enough, or the queue's end."""
        return self.low if self.low >= self.high else None

    def on_store_time(self, offset: int, store_ms: int) -> None:
        """Note the store time of the message at `offset`, at or behind the probe."""
        if store_ms < self.timestamp_ms:
            self.low = max(self.low, offset + 1)
        else:
            self.high = min(self.high, self.probe)
        self._choose(store_ms)

    def on_bounds(self, bounds: Bounds) -> None:
        """Note that the queue's bounds have moved past the probe."""
        self.low = max(self.low, bounds.start)
        self.high = max(self.low, min(self.high, bounds.end))
        self._guess_is_open = False
        self._choose(0)

    def _choose(self, store_ms: int) -> None:
        """Probe beside the guess once, then halve the rest."""
        if self._guess_is_open:
            self._guess_is_open = False
            is_late = store_ms >= self.timestamp_ms
            self.probe = self.high - 1 if is_late else self.low
        else:
            self.probe = (self.low + self.high) // 2
        if self.low < self.high:
            self.probe = min(max(self.probe, self.low), self.high - 1)


def search_times(
    ask: Ask, timestamps_ms: Mapping[QueueId, int], boundary: Boundary, group: str = READER_GROUP
) -> dict[QueueId, int | RocketMQError]:
    """Search offsets by store time as `Cluster.search_offsets` documents, for a group."""
    step = 0 if boundary is Boundary.LOWER else 1
    found: dict[QueueId, int | RocketMQError] = {}
    searches: dict[QueueId, TimeSearch] = {}
    bounds = ask_bounds(ask, timestamps_ms)
    guesses = ask([(q.broker, SearchOffset(q, ms + step)) for q, ms in timestamps_ms.items()])
    for (queue, timestamp_ms), guess in zip(timestamps_ms.items(), guesses, strict=True):
        queue_bounds = bounds[queue]
        if isinstance(queue_bounds, RocketMQError):
            found[queue] = queue_bounds
        elif isinstance(guess, RocketMQError):
            found[queue] = guess
        else:
            assert isinstance(guess, OffsetReply)
            searches[queue] = TimeSearch.start(timestamp_ms + step, queue_bounds, guess.value)
    _finish_searches(ask, searches, found, group)
    if boundary is Boundary.UPPER:
        for queue in searches:
            offset, queue_bounds = found[queue], bounds[queue]
            if isinstance(offset, int) and isinstance(queue_bounds, Bounds):
                found[queue] = max(queue_bounds.start, offset - 1)
    return found


def _finish_searches(
    ask: Ask,
    searches: dict[QueueId, TimeSearch],
    found: dict[QueueId, int | RocketMQError],
    group: str,
) -> None:
    """Ask for store times, one round trip for all open searches, until every search ends."""
    for _ in range(_ROUNDS_MAX):
        for queue, search in searches.items():
            if queue not in found and search.answer is not None:
                found[queue] = search.answer
        still_open = [queue for queue in searches if queue not in found]
        if not still_open:
            return
        replies = ask([(q.broker, one_pull(q, searches[q].probe, group)) for q in still_open])
        for queue, reply in zip(still_open, replies, strict=True):
            if isinstance(reply, RocketMQError):
                found[queue] = reply
                continue
            assert isinstance(reply, PullReply)
            try:
                _report(searches[queue], reply)
            except RemoteProtocolError as error:
                found[queue] = error
    for queue in searches:
        found.setdefault(queue, RemoteProtocolError(f"the bounds of {queue} keep moving"))


def _report(search: TimeSearch, reply: PullReply) -> None:
    message = first_store_time(reply, search.probe)
    if message is None:
        # Retention or a truncation passed the probe; the answer carries the new bounds.
        search.on_bounds(Bounds(max(search.probe + 1, reply.start), reply.end))
    else:
        search.on_store_time(*message)


def one_pull(queue: QueueId, offset: int, group: str = READER_GROUP) -> PullMessages:
    return PullMessages(group, queue, offset, 1)


def first_store_time(reply: PullReply, offset: int) -> tuple[int, int] | None:
    """Return offset and store time of the first message at or behind `offset`, if any."""
    if reply.status is not PullStatus.FOUND:
        return None
    for part in reply.records:
        position = 0
        while position < len(part):
            # The checksum is of the body: a damaged body does not change the store time.
            message, position = decode_record(part, position, check_crc=False)
            if message.queue_offset >= offset:
                return message.queue_offset, message.store_ms
    return None
