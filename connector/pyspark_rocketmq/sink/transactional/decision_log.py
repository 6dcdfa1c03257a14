"""The log of commit decisions: a topic in the cluster that a transactional write goes to.

A decision lists the half messages of (query, batch) that are to be committed. Every broker of the
topic stores all of it, so that an unavailable broker hides no decision:

    queue 1   parts: half messages as Arrow, up to 30,000 a record; and markers of look-ups
    queue 0   the head, stored after its parts and tagged with the query; then a fencing token each
              second from the driver that commits; at last "finished"

A decision is valid from its first head on. If there are two heads, the first one at the first
broker that has any is valid. The newest record of a query shows its state, so a look-up reads
backwards, and only records with the query's tag.

Every record of queue 0 names all brokers that store decisions. They all learn of a new broker
before it stores its first decision, so a broker that is missing from the route is noticed: it may
be the only one that stored a decision before the driver died. A missing route proves nothing
either: then the log asks the brokers themselves whether they have the topic.

Heads and tokens name their owner, one driver's run of a commit. So a driver that was taken for dead
notices that another one has resumed its decision.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pyarrow as pa

from pyspark_rocketmq.errors import DecisionsAwayError
from rocketmq_client.cluster import Cluster
from rocketmq_client.consumer.common.messages import ReceivedMessage, decode_messages
from rocketmq_client.producer.half_messages import HalfMessage
from rocketmq_client.producer.producer import Producer
from rocketmq_client.retry import Retry
from rocketmq_client.retry_schedules import DECISION, DECISION_ROUTE, DECISION_SHOWN
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
_MARKER: Final = b"{}"


@dataclass(frozen=True, slots=True)
class Decision:
    """The half messages of a batch that are to be committed, and no others."""

    query: str
    batch: int
    group: str
    half_messages: tuple[HalfMessage, ...] = field(repr=False)
    starts: dict[QueueId, int] = field(repr=False)
    """The end offsets of their queues before the first commit."""
    is_finished: bool = False
    """True if all are committed; the other fields are empty then."""
    count: int | None = None
    """The number of rows; None in decisions of earlier versions."""


@dataclass(frozen=True, slots=True)
class _Record:
    queue: QueueId
    offset: int
    query: str
    batch: int
    is_finished: bool
    is_head: bool
    owner: str
    store_ms: int
    content: dict[str, Any]


HALF_MESSAGE_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("broker", pa.string()),
        pa.field("queue", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("position", pa.int64()),
        pa.field("key", pa.string()),
    ]
)


def pack_half_messages(half_messages: Sequence[HalfMessage]) -> bytes:
    columns: list[list[object]] = [
        [half.queue.topic for half in half_messages],
        [half.queue.broker for half in half_messages],
        [half.queue.index for half in half_messages],
        [half.offset for half in half_messages],
        [half.position for half in half_messages],
        [half.transaction_id for half in half_messages],
    ]
    batch = pa.record_batch(columns, schema=HALF_MESSAGE_SCHEMA)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, HALF_MESSAGE_SCHEMA, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpack_half_messages(data: bytes, group: str) -> list[HalfMessage]:
    with pa.ipc.open_stream(data) as reader:
        columns = reader.read_all().to_pydict()
    return [
        HalfMessage(group, QueueId(topic, broker, queue), offset, position, key)
        for topic, broker, queue, offset, position, key in zip(*columns.values(), strict=True)
    ]


def _content_of(decision: Decision, **facts: object) -> dict[str, object]:
    return {"version": _VERSION, "query": decision.query, "batch": decision.batch, **facts}


def retry_decision(cluster: Cluster, work: Callable[[], T]) -> T:
    """Repeat `work` during an outage, for as long as `retry.outageMs` allows."""
    return Retry(cluster.settings.over_outage(DECISION), cluster.clock).call(work)


class DecisionLog:
    """The decisions in one topic. The caller owns `cluster`."""

    def __init__(self, cluster: Cluster, topic: str, producer: Producer) -> None:
        self._cluster, self.topic, self._producer = cluster, topic, producer
        self._owner = uuid.uuid4().hex

    def open(self, brokers: Iterable[str] = ()) -> None:
        """Create the topic if it is missing at one of these brokers.

        Raises the brokers' refusal.
        """
        wanted, present = set(brokers), self._brokers_with_log()
        if present and wanted <= present:
            return
        # A marker on the same broker is the only way to learn what that broker shows.
        for name in sorted(wanted - present) if present else (None,):
            self._cluster.create_topic(TopicConfig(self.topic, 2, 2), name)
        retry = Retry(DECISION_ROUTE, self._cluster.clock)
        while not (present := self._brokers_with_log()) or not wanted <= present:
            if not retry.pause():
                raise TopicNotFoundError(17, f"topic[{self.topic}] was made and is not routed")

    def _brokers_with_log(self) -> set[str]:
        return {queue.broker for queue in self._queues()}

    def store(self, decision: Decision) -> dict[QueueId, int]:
        """Store a decision at every broker. After an error a look-up tells whether it is decided.

        Returns the offsets of the heads.
        """
        half_messages = decision.half_messages
        parts = [
            pack_half_messages(half_messages[first : first + _PART_ROWS_MAX])
            for first in range(0, len(half_messages), _PART_ROWS_MAX)
        ]
        head = _content_of(
            decision,
            group=decision.group,
            count=len(half_messages),
            starts=[[q.topic, q.broker, q.index, at] for q, at in decision.starts.items()],
            owner=self._owner,
        )
        queues = retry_decision(self._cluster, self._head_queues)
        head["brokers"] = self._register_brokers(queues)
        heads = {}
        for queue in queues:
            kept_in = QueueId(queue.topic, queue.broker, _PARTS)
            offsets = [self._send(kept_in, part, None) for part in parts]
            body = json.dumps({**head, "parts": offsets}).encode()
            heads[queue] = self._send(queue, body, decision)
        return heads

    def store_finished(self, decision: Decision) -> None:
        """Record that all half messages are committed, so that no driver looks again."""
        queues = retry_decision(self._cluster, self._head_queues)
        self._store_note(queues, decision, count=decision.count, finished=True)

    def store_token(self, decision: Decision) -> dict[QueueId, int]:
        """Store a fencing token: this driver commits the decision from now on.

        If this driver dies, the next one learns from the token when it was last active. Returns the
        token's offsets at the brokers of the half messages.
        """
        brokers = {half.queue.broker for half in decision.half_messages}
        keepers = retry_decision(self._cluster, self._head_queues)
        queues = [queue for queue in keepers if queue.broker in brokers]
        return self._store_note(queues, decision, turn=True, owner=self._owner)

    def _store_note(
        self, queues: Sequence[QueueId], decision: Decision, **content_of_kind: object
    ) -> dict[QueueId, int]:
        content = _content_of(decision, **content_of_kind)
        body = json.dumps({**content, "brokers": self._register_brokers(queues)}).encode()
        return {queue: self._send(queue, body, decision) for queue in queues}

    def _register_brokers(self, queues: Sequence[QueueId]) -> list[str]:
        """The brokers that store decisions, including these; makes all of these know the list."""
        known = retry_decision(self._cluster, lambda: {one: self._known_at(one) for one in queues})
        brokers = sorted({queue.broker for queue in queues}.union(*known.values()))
        # A finished batch of no query: look-ups ignore it.
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

    def find(self, query: str, batch: int) -> Decision | None:
        """The decision about a batch; None if there certainly is none.

        Raises RocketMQError if no broker has it and one that might have it cannot be asked.
        """
        record = self._valid_record(query, batch)
        if record is None:
            return None
        if record.is_finished:
            count = record.content.get("count")
            return Decision(query, batch, "", (), {}, is_finished=True, count=count)
        return self._decision(record)

    def _valid_record(self, query: str, batch: int) -> _Record | None:
        """The record that a batch is finished, or else its valid head."""
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
            self.check_all_there(queues)
        return head

    def find_surely(self, query: str, batch: int) -> Decision | None:
        """As `find`; also finds a decision that a driver stored just before it died."""
        found = self.find(query, batch)
        if found is None:
            self.catch_up()
            found = self.find(query, batch)
        return found

    def is_ours(self, decision: Decision, heads: Mapping[QueueId, int]) -> bool:
        """Whether our heads are the valid ones; False if another driver's came first."""
        self._await_shown(heads)
        record = self._valid_record(decision.query, decision.batch)
        return record is not None and record.owner == self._owner

    def is_taken_over(
        self, decision: Decision, since: Mapping[QueueId, int], until: Mapping[QueueId, int]
    ) -> bool:
        """Whether another driver has stored a token between these records of ours."""
        self._await_shown(until)
        return any(
            record.batch == decision.batch and record.owner != self._owner and not record.is_head
            for queue, end in until.items()
            for record in self._window(queue, since.get(queue, -1) + 1, end, decision.query)
        )

    def last_tokens(self, decision: Decision) -> dict[str, int]:
        """The store time of another driver's last token, in ms of each broker's clock."""
        tokens: dict[str, int] = {}
        for queue in self._queues():
            for record in self._backwards(queue, decision.query):
                if record.batch == decision.batch and record.owner != self._owner:
                    tokens[queue.broker] = record.store_ms
                    break
                if record.batch < decision.batch:
                    break
        return tokens

    def times(self, records: Mapping[QueueId, int]) -> dict[str, int]:
        """The store times of our records, in ms of each broker's clock."""
        self._await_shown(records)
        return {queue.broker: self._message(queue, at).store_ms for queue, at in records.items()}

    def catch_up(self) -> None:
        """Wait until every broker shows what it has stored so far, in any topic.

        A broker shows stored records a moment later, a busy one seconds later, but in the order of
        storing: it has caught up once it shows a record of now.
        """
        queues = [QueueId(queue.topic, queue.broker, _PARTS) for queue in self._queues()]
        self._await_shown({queue: self._send(queue, _MARKER, None) for queue in queues})

    def _await_shown(self, records: Mapping[QueueId, int]) -> None:
        left = dict(records)
        settings = self._cluster.settings
        retry = Retry(settings.over_outage(DECISION_SHOWN), self._cluster.clock)
        while left := {queue: at for queue, at in left.items() if self._bounds(queue).end <= at}:
            if not retry.pause():
                waited = f"waited {settings.outage_ms} ms for {sorted(left)[0]}"
                raise DeadlineExceededError(sorted(left)[0].broker, waited)

    def newest_batch(self, query: str) -> int:
        """The last decided batch of a query; -1 if there is none."""
        newest = -1
        for queue in self._queues():
            record = next(self._backwards(queue, query), None)
            newest = max(newest, -1 if record is None else record.batch)
        return newest

    def unfinished(self) -> list[Decision]:
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

    def check_all_there(self, queues: Sequence[QueueId] | None = None) -> None:
        """Raise DecisionsAwayError if a broker that stores decisions is not in the route."""
        queues = self._queues() if queues is None else queues
        known = set[str]().union(*(self._known_at(queue) for queue in queues))
        missing = known - {queue.broker for queue in queues}
        if missing:
            raise DecisionsAwayError(self.topic, tuple(sorted(missing)))

    def _known_at(self, queue: QueueId) -> set[str]:
        """The brokers in the newest record of a queue."""
        record = next(self._backwards(queue, None), None)
        return set() if record is None else set(record.content.get("brokers", ()))

    def _decision(self, record: _Record) -> Decision:
        queue, content = record.queue, record.content
        group = str(content["group"])
        half_messages: list[HalfMessage] = []
        for offset in content["parts"]:
            part = self._body(QueueId(queue.topic, queue.broker, _PARTS), offset)
            half_messages += unpack_half_messages(part, group)
        if len(half_messages) != content["count"]:
            raise RocketMQError(
                f"[ROCKETMQ_SINK.DECISION] {queue} offset={record.offset} lists "
                f"{content['count']} half messages and has {len(half_messages)}"
            )
        starts = {
            QueueId(topic, broker, index): at for topic, broker, index, at in content["starts"]
        }
        return Decision(
            record.query,
            record.batch,
            group,
            tuple(half_messages),
            starts,
            count=len(half_messages),
        )

    def _body(self, queue: QueueId, offset: int) -> bytes:
        return self._message(queue, offset).body

    def _message(self, queue: QueueId, offset: int) -> ReceivedMessage:
        reply = self._cluster.pull(queue, offset, 1)
        for part in reply.records:
            for message in decode_messages(part, broker=queue.broker, topic=queue.topic):
                if message.queue_offset == offset:
                    return message
        raise RocketMQError(f"[ROCKETMQ_SINK.DECISION] {queue} offset={offset} is gone")

    def _head_queues(self) -> tuple[QueueId, ...]:
        """The queues of heads.

        Raises DecisionsAwayError if there is none: nothing could be decided.
        """
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
        """Raise DecisionsAwayError if the topic may exist although it has no route now.

        That is so while a broker or the name server restarts.
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
        """The records of a query, or of all queries, newest first."""
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
    """A parsed record; None for a foreign one (its checksum was right, so it is not ours)."""
    try:
        content = json.loads(message.body)
    except ValueError:
        return None
    if not isinstance(content, dict) or not content.keys() >= {"version", "query", "batch"}:
        return None
    if content["version"] != _VERSION:
        raise RocketMQError(
            f"[ROCKETMQ_SINK.DECISION] {queue} offset={message.queue_offset} has version "
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
