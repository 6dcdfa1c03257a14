"""Decisions about transactional writes, kept in a topic of the cluster that is written to.

A decision says that the halves of (query, batch) are to be committed, and which those are. Every
broker of the topic gets all of it, so that one that is away hides none:

    queue 1   parts: the halves, some ten thousand a record, as Arrow; and marks of look-ups
    queue 0   the head, behind its parts, tagged with the query; later "finished"; between them a
              turn, each second, of whoever is committing

A decision counts from its first head on; of two heads the first counts, at the first broker that
has any. Of one query the newest record decides how far it is, so looking one up reads backwards,
and only what bears the query's tag.

Every record of queue 0 names the brokers that keep decisions, and all of them know a new one before
it keeps the first: so that one which is missing from the route is missed. It may have been the only
one to learn of a decision before the driver died. No route at all tells nothing, either: then the
brokers themselves are asked whether they have the topic.

Heads and turns name their owner, one driver's run of a commit: so that one which was thought dead
finds out that another has gone on with its decision.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pyspark_rocketmq.errors import DecisionsAwayError
from pyspark_rocketmq.sink.transactional.half_messages import (
    pack_half_messages,
    unpack_half_messages,
)
from rocketmq_client.cluster import Cluster
from rocketmq_client.consumer.common.messages import ReceivedMessage, decode_messages
from rocketmq_client.producer.half_messages import HalfMessage
from rocketmq_client.producer.producer import Producer
from rocketmq_client.retry import DECISION, DECISION_ROUTE, DECISION_SHOWN, Retry
from rocketmq_wire.errors import DeadlineExceededError, RocketMQError, TopicNotFoundError
from rocketmq_wire.model import Bounds, Message, QueueId, Subscription, TopicConfig
from rocketmq_wire.requests.messages import PullStatus

T = TypeVar("T")

_VERSION: Final = 1
_HEADS, _PARTS = 0, 1
_PART_ROWS_MAX: Final = 30_000
"""Some 80 bytes each before they are compressed; brokers take 4 MiB."""
_FIRST_WINDOW: Final = 8
_WINDOW_GROWTH: Final = 8
_WINDOW_MAX: Final = 4_096
_PULL_COUNT: Final = 32
_MARK: Final = b"{}"


@dataclass(frozen=True, slots=True)
class Decision:
    """These half messages are to be committed, and no others of this batch."""

    query: str
    batch: int
    group: str
    halves: tuple[HalfMessage, ...] = field(repr=False)
    starts: dict[QueueId, int] = field(repr=False)
    """Where their queues ended before the first of them was committed."""
    is_finished: bool = False
    """All of them are committed; then the rest is empty."""
    count: int | None = None
    """How many rows it has; None where earlier versions did not write that down."""


@dataclass(frozen=True, slots=True)
class _Record:
    """A record of queue 0."""

    queue: QueueId
    offset: int
    query: str
    batch: int
    is_finished: bool
    is_head: bool
    owner: str
    store_ms: int
    content: dict[str, Any]


def retry_decision(cluster: Cluster, work: Callable[[], T]) -> T:
    """Do what can be repeated, for as long as an outage may last."""
    return Retry(cluster.settings.over_outage(DECISION), cluster.clock).call(work)


class DecisionLog:
    """The decisions in one topic. `cluster` is the caller's."""

    def __init__(self, cluster: Cluster, topic: str, producer: Producer) -> None:
        self._cluster, self.topic, self._producer = cluster, topic, producer
        self._owner = uuid.uuid4().hex

    # --- storing ------------------------------------------------------------------------------

    def open(self, brokers: Iterable[str] = ()) -> None:
        """Make the topic if it is new, or one of these lacks it. Raises what brokers refuse."""
        wanted, there = set(brokers), self._keeping()
        if there and wanted <= there:
            return
        # What a broker shows can be told by a mark of ours on it, and only so.
        for name in sorted(wanted - there) if there else (None,):
            self._cluster.create_topic(TopicConfig(self.topic, 2, 2), name)
        retry = Retry(DECISION_ROUTE, self._cluster.clock)
        while not (there := self._keeping()) or not wanted <= there:
            if not retry.pause():
                raise TopicNotFoundError(17, f"topic[{self.topic}] was made and is not routed")

    def _keeping(self) -> set[str]:
        return {queue.broker for queue in self._queues()}

    def store(self, decision: Decision) -> dict[QueueId, int]:
        """Decide, at every broker. Should this fail, it is decided or not: look it up.

        Returns where the heads are.
        """
        halves = decision.halves
        parts = [
            pack_half_messages(halves[first : first + _PART_ROWS_MAX])
            for first in range(0, len(halves), _PART_ROWS_MAX)
        ]
        head = {
            "version": _VERSION,
            "query": decision.query,
            "batch": decision.batch,
            "group": decision.group,
            "count": len(halves),
            "starts": [[q.topic, q.broker, q.index, at] for q, at in decision.starts.items()],
            "owner": self._owner,
        }
        queues = retry_decision(self._cluster, self._keepers)
        head["brokers"] = self._enlisted(queues)
        heads = {}
        for queue in queues:
            kept_in = QueueId(queue.topic, queue.broker, _PARTS)
            offsets = [self._send(kept_in, part, None) for part in parts]
            body = json.dumps({**head, "parts": offsets}).encode()
            heads[queue] = self._send(queue, body, decision)
        return heads

    def store_finished(self, decision: Decision) -> None:
        """All of it is committed: nobody has to look again."""
        queues = retry_decision(self._cluster, self._keepers)
        self._tell(queues, decision, count=decision.count, finished=True)

    def store_turn(self, decision: Decision) -> dict[QueueId, int]:
        """From now on its half messages are being committed by us, as they are from its head on.

        Whoever comes next, should we die, knows from it when we last were at it. Returns where
        it stands, at the brokers that hold the half messages.
        """
        brokers = {half.queue.broker for half in decision.halves}
        keepers = retry_decision(self._cluster, self._keepers)
        queues = [queue for queue in keepers if queue.broker in brokers]
        return self._tell(queues, decision, turn=True, owner=self._owner)

    def _tell(
        self, queues: Sequence[QueueId], decision: Decision, **told: object
    ) -> dict[QueueId, int]:
        """Store something about a decision at these; where it stands."""
        content = {"version": _VERSION, "query": decision.query, "batch": decision.batch, **told}
        body = json.dumps({**content, "brokers": self._enlisted(queues)}).encode()
        return {queue: self._send(queue, body, decision) for queue in queues}

    def _enlisted(self, queues: Sequence[QueueId]) -> list[str]:
        """The brokers that keep decisions, these included; all of these know it then."""
        known = retry_decision(self._cluster, lambda: {one: self._known_at(one) for one in queues})
        brokers = sorted({queue.broker for queue in queues}.union(*known.values()))
        # Nobody's batch, and finished: no look-up minds it.
        content = {"version": _VERSION, "query": "", "batch": -1, "finished": True}
        for queue in queues:
            if known[queue] != set(brokers):
                self._send(queue, json.dumps({**content, "brokers": brokers}).encode(), None)
        return brokers

    def _send(self, queue: QueueId, body: bytes, decision: Decision | None) -> int:
        tags = keys = None
        if decision is not None:
            tags, keys = decision.query, f"{decision.query}/{decision.batch}"
        return self._producer.send(Message(queue.topic, body, tags, keys), queue).start

    # --- looking up ---------------------------------------------------------------------------

    def find(self, query: str, batch: int) -> Decision | None:
        """The decision about a batch; None if there certainly is none.

        Raises RocketMQError when a broker that might have it cannot be asked, and none other has.
        """
        record = self._counting(query, batch)
        if record is None:
            return None
        if record.is_finished:
            count = record.content.get("count")
            return Decision(query, batch, "", (), {}, is_finished=True, count=count)
        return self._decision(record)

    def _counting(self, query: str, batch: int) -> _Record | None:
        """What says that a batch is finished, or else the head that counts."""
        head: _Record | None = None
        error: RocketMQError | None = None
        queues = self._queues()
        for queue in queues:
            first: _Record | None = None
            try:
                for record in self._backwards(queue, query):
                    if record.batch == batch and record.is_finished:
                        return record
                    if record.batch == batch and record.is_head:
                        first = record
                    if record.batch < batch:
                        break
            except RocketMQError as failure:
                error = failure
            head = head or first
        if head is None and error is not None:
            raise error
        if head is None:
            self._check_all_there(queues)
        return head

    def find_surely(self, query: str, batch: int) -> Decision | None:
        """As `find`, also what was decided only just now, by a driver that has died since."""
        found = self.find(query, batch)
        if found is None:
            self.catch_up()
            found = self.find(query, batch)
        return found

    def is_ours(self, decision: Decision, heads: Mapping[QueueId, int]) -> bool:
        """Whether the heads that we have stored count, and nobody else's were there before."""
        self._await_shown(heads)
        record = self._counting(decision.query, decision.batch)
        return record is not None and record.owner == self._owner

    def is_taken_over(
        self, decision: Decision, since: Mapping[QueueId, int], until: Mapping[QueueId, int]
    ) -> bool:
        """Whether somebody else has begun with it between these records of ours."""
        self._await_shown(until)
        return any(
            record.batch == decision.batch and record.owner != self._owner and not record.is_head
            for queue, end in until.items()
            for record in self._window(queue, since.get(queue, -1) + 1, end, decision.query)
        )

    def last_turns(self, decision: Decision) -> dict[str, int]:
        """When someone else last began to commit it, or went on; in ms of each broker's clock."""
        turns: dict[str, int] = {}
        for queue in self._queues():
            for record in self._backwards(queue, decision.query):
                if record.batch == decision.batch and record.owner != self._owner:
                    turns[queue.broker] = record.store_ms
                    break
                if record.batch < decision.batch:
                    break
        return turns

    def times(self, records: Mapping[QueueId, int]) -> dict[str, int]:
        """When records of ours were stored, in ms of each broker's clock."""
        self._await_shown(records)
        return {queue.broker: self._message(queue, at).store_ms for queue, at in records.items()}

    def catch_up(self) -> None:
        """Wait until all can be seen that the brokers have stored so far, in whatever topic.

        A broker shows what it has stored a moment later, a busy one seconds later, in the order in
        which it was stored: so once it shows a record of now.
        """
        queues = [QueueId(queue.topic, queue.broker, _PARTS) for queue in self._queues()]
        self._await_shown({queue: self._send(queue, _MARK, None) for queue in queues})

    def _await_shown(self, records: Mapping[QueueId, int]) -> None:
        left = dict(records)
        settings = self._cluster.settings
        retry = Retry(settings.over_outage(DECISION_SHOWN), self._cluster.clock)
        while left := {queue: at for queue, at in left.items() if self._bounds(queue).end <= at}:
            if not retry.pause():
                waited = f"waited {settings.outage_ms} ms for {sorted(left)[0]}"
                raise DeadlineExceededError(sorted(left)[0].broker, waited)

    def check_all_there(self) -> None:
        """Raises DecisionsAwayError when a broker that keeps decisions is not in the route."""
        self._check_all_there(self._queues())

    def newest_batch(self, query: str) -> int:
        """The last batch of a query that is decided; -1 if none is."""
        newest = -1
        for queue in self._queues():
            record = next(self._backwards(queue, query), None)
            newest = max(newest, -1 if record is None else record.batch)
        return newest

    def unfinished(self) -> list[Decision]:
        """Decisions that nobody has finished, in their order."""
        heads: dict[tuple[str, int], _Record] = {}
        finished: set[tuple[str, int]] = set()
        for queue in self._queues():
            bounds = self._bounds(queue)
            for record in self._window(queue, bounds.start, bounds.end, None):
                if record.is_finished:
                    finished.add((record.query, record.batch))
                elif record.is_head:
                    heads.setdefault((record.query, record.batch), record)
        return [self._decision(head) for key, head in heads.items() if key not in finished]

    def _check_all_there(self, queues: Sequence[QueueId]) -> None:
        known = set[str]().union(*(self._known_at(queue) for queue in queues))
        missing = known - {queue.broker for queue in queues}
        if missing:
            raise DecisionsAwayError(self.topic, tuple(sorted(missing)))

    def _known_at(self, queue: QueueId) -> set[str]:
        """The brokers that the newest record of a queue names."""
        record = next(self._backwards(queue, None), None)
        return set() if record is None else set(record.content.get("brokers", ()))

    def _decision(self, record: _Record) -> Decision:
        queue, content = record.queue, record.content
        group = str(content["group"])
        halves: list[HalfMessage] = []
        for offset in content["parts"]:
            part = self._body(QueueId(queue.topic, queue.broker, _PARTS), offset)
            halves += unpack_half_messages(part, group)
        if len(halves) != content["count"]:
            raise RocketMQError(
                f"[ROCKETMQ_SINK.DECISION] {queue} offset={record.offset} lists "
                f"{content['count']} half messages and has {len(halves)}"
            )
        starts = {
            QueueId(topic, broker, index): at for topic, broker, index, at in content["starts"]
        }
        return Decision(record.query, record.batch, group, tuple(halves), starts, count=len(halves))

    def _body(self, queue: QueueId, offset: int) -> bytes:
        return self._message(queue, offset).body

    def _message(self, queue: QueueId, offset: int) -> ReceivedMessage:
        reply = self._cluster.pull(queue, offset, 1)
        for part in reply.records:
            for message in decode_messages(part, broker=queue.broker, topic=queue.topic):
                if message.queue_offset == offset:
                    return message
        raise RocketMQError(f"[ROCKETMQ_SINK.DECISION] {queue} offset={offset} is gone")

    def _keepers(self) -> tuple[QueueId, ...]:
        """Where decisions are kept. Raises DecisionsAwayError: kept nowhere, nothing is decided."""
        queues = self._queues()
        if not queues:
            raise DecisionsAwayError(self.topic, ())
        return queues

    def _queues(self) -> tuple[QueueId, ...]:
        try:
            route = self._cluster.route(self.topic)
        except TopicNotFoundError:
            self._check_never_made()
            return ()
        return tuple(q for q in route.readable_queues(self.topic) if q.index == _HEADS)

    def _check_never_made(self) -> None:
        """Raises DecisionsAwayError when the topic may be there, and is not in the route for now.

        As while a broker or the name server starts again.
        """
        masters = self._cluster.masters()
        ends = [self._bounds(QueueId(self.topic, name, _HEADS)).end for name in masters]
        if not masters or any(ends):
            raise DecisionsAwayError(self.topic, ())

    def _bounds(self, queue: QueueId) -> Bounds:
        bounds = self._cluster.bounds([queue])[queue]
        if isinstance(bounds, RocketMQError):
            raise bounds
        return bounds

    def _backwards(self, queue: QueueId, query: str | None) -> Iterator[_Record]:
        """The records of a query, or all, the newest first."""
        bounds = self._bounds(queue)
        end, size = bounds.end, _FIRST_WINDOW if query is not None else 1
        while end > bounds.start:
            start = max(bounds.start, end - size)
            yield from reversed(self._window(queue, start, end, query))
            end, size = start, min(size * _WINDOW_GROWTH, _WINDOW_MAX)

    def _window(self, queue: QueueId, start: int, end: int, query: str | None) -> list[_Record]:
        wanted = Subscription(query) if query is not None else None
        tags = frozenset({query}) if query is not None else frozenset()
        records: list[_Record] = []
        while start < end:
            reply = self._cluster.pull(queue, start, _PULL_COUNT, subscription=wanted)
            for part in reply.records:
                found = decode_messages(part, broker=queue.broker, topic=queue.topic, tags=tags)
                parsed = (_record_of(queue, one) for one in found if one.queue_offset < end)
                records += [record for record in parsed if record is not None]
            if reply.status is PullStatus.NO_NEW_MESSAGE or reply.next_begin <= start:
                break
            start = reply.next_begin
        return records


def _record_of(queue: QueueId, message: ReceivedMessage) -> _Record | None:
    """None: somebody else wrote to the topic. Its checksum was compared: it was not ours."""
    try:
        content = json.loads(message.body)
    except ValueError:
        return None
    if not isinstance(content, dict) or not content.keys() >= {"version", "query", "batch"}:
        return None
    if content["version"] != _VERSION:
        raise RocketMQError(
            f"[ROCKETMQ_SINK.DECISION] {queue} offset={message.queue_offset} is of version "
            f"{content['version']}: finish it with the version that wrote it"
        )
    return _Record(
        queue,
        message.queue_offset,
        str(content["query"]),
        int(content["batch"]),
        bool(content.get("finished")),
        "parts" in content,
        str(content.get("owner", "")),
        message.store_ms,
        content,
    )
