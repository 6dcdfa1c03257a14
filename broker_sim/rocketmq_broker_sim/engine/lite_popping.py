"""Lending messages of lite topics: what a client wants, what it gets, what blocks what.

Each lite topic is consumed in order: while something of it is lent to a group, nobody of that group
gets more of it. The state is that of pops in order, so a restart knows it, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from rocketmq_broker_sim.engine import refusals
from rocketmq_broker_sim.engine.filtering import EVERYTHING
from rocketmq_broker_sim.engine.groups import Groups, LiteSettings
from rocketmq_broker_sim.engine.lite_subscriptions import LiteClient, LiteSubscriptions
from rocketmq_broker_sim.engine.outcomes import Answer, HoldPop, Outcome, Peer
from rocketmq_broker_sim.engine.pop_loans import PopPlace
from rocketmq_broker_sim.engine.pop_orders import Orders
from rocketmq_broker_sim.engine.pop_places import Places
from rocketmq_broker_sim.engine.pop_reading import Found, Unreadable, read_queue
from rocketmq_broker_sim.engine.progress import Progress
from rocketmq_broker_sim.engine.topics import Topics
from rocketmq_broker_sim.storage.errors import DamagedStoreError
from rocketmq_broker_sim.storage.store import Store
from rocketmq_wire.errors import broker_error
from rocketmq_wire.lite_requests import (
    LiteAction,
    LiteOffset,
    LiteReply,
    LiteStart,
    PopLite,
    SubscribeLite,
)
from rocketmq_wire.lite_topics import DISPATCHED_TO, light_queue, lite_topic_of, parent_of
from rocketmq_wire.model import Buffer, QueueId, TopicConfig
from rocketmq_wire.pop_handles import ORDERLY_REVIVE_QUEUE, RetryKind
from rocketmq_wire.pop_requests import POP_COUNT_MAX, InitMode, PoppedSpan, PopReply, PopStatus
from rocketmq_wire.properties import LITE_TOPIC
from rocketmq_wire.record import decode_record
from rocketmq_wire.requests import Boundary

_QUOTA_MARGIN: Final = 300
"""As the proxy: so many more than its quota a client may name at once; clients count themselves."""
_LATE_MS: Final = 500
MINUTE_MS: Final = 60_000
YOUNG_MS: Final = 15 * MINUTE_MS
"""minLiteTTl: no lite topic expires before."""
EXPIRATION: Final = "lite.topic.expiration"
"""The parent's attribute: after so many minutes without a new message; none or -1: never."""


class LitePopping:
    """The rule of lite topics, over the broker's tables and its store."""

    def __init__(
        self,
        *,
        bytes_max: int,
        poll_ms_max: int,
        orders: Orders,
        places: Places,
        store: Store,
        topics: Topics,
        groups: Groups,
        progress: Progress,
    ) -> None:
        self._bytes_max, self._poll_ms_max = bytes_max, poll_ms_max
        self._orders, self._places, self._store = orders, places, store
        self._topics, self._groups, self._progress = topics, groups, progress
        self._unreadable = Unreadable()
        self.subscriptions = LiteSubscriptions()

    # --- what clients want --------------------------------------------------------------------

    def subscribe(self, request: SubscribeLite, peer: Peer, now_ms: int) -> Outcome:
        """Note which lite topics a client wants. Refusals: 17, 29, 604, 2018."""
        self._require_parent(request.topic)
        settings = self._require_bound(request.group, request.topic)
        if request.action is LiteAction.FORGET:
            self.subscriptions.forget(request.client_id)
            return Answer(LiteReply())
        names = [light_queue(request.topic, each) for each in dict.fromkeys(request.lite_topics)]
        if len(names) > settings.quota + _QUOTA_MARGIN:
            raise _too_many(f"{len(names)} lite topics, more than {settings.quota}")
        if request.action is LiteAction.ADD and not self.subscriptions.has_room(1):
            raise _too_many(f"all clients together want {self.subscriptions.count} lite topics")
        if request.action is LiteAction.ADD and settings.wants_all:
            raise broker_error(
                refusals.ILLEGAL_OPERATION,
                f"group {request.group} gets all lite topics: none can be asked for",
            )
        client = self.subscriptions.client(
            request.client_id, request.group, request.topic, peer_key=peer.key
        )
        client.updated_ms = now_ms
        lost: list[tuple[str, str]] = []
        if request.action is LiteAction.ADD:
            for name in names:
                lost += self._take(client, name, settings)
                client.ready[name] = None
                if request.offset is not None:
                    self._move(client.group, name, request.offset)
        elif request.action is LiteAction.REMOVE:
            for name in names:
                if self.subscriptions.remove(client, name) and settings.resets_when_left:
                    self._move(client.group, name, LiteOffset(LiteStart.OLDEST))
        elif settings.wants_all:
            self.subscriptions.want_all(client, self._store.light_queues(request.topic))
        else:
            lost = self._replace(client, names, settings)
        return Answer(LiteReply(tuple(lost)))

    def _take(self, client: LiteClient, name: str, settings: LiteSettings) -> list[tuple[str, str]]:
        """Have a client get a light queue; who loses it, in a group where only one has it."""
        lost = []
        for owner in self.subscriptions.owners(name, client.group) if settings.is_exclusive else ():
            if owner is not client:
                self.subscriptions.remove(owner, name)
                lost.append((owner.client_id, lite_topic_of(name)))
        if lost and settings.resets_when_taken:
            self._move(client.group, name, LiteOffset(LiteStart.OLDEST))
        self.subscriptions.add(client, name)
        return lost

    def _replace(
        self, client: LiteClient, names: list[str], settings: LiteSettings
    ) -> list[tuple[str, str]]:
        """Have a client get exactly these. One that lost some and does not know is told again."""
        more = len(set(names) - client.names.keys()) - len(client.names.keys() - names)
        if more > 0 and not self.subscriptions.has_room(more):
            raise _too_many(f"all clients together want {self.subscriptions.count} lite topics")
        for name in client.names.keys() - names:
            self.subscriptions.remove(client, name)
        lost = []
        for name in names:
            owners = self.subscriptions.owners(name, client.group) if settings.is_exclusive else []
            if owners and client not in owners:
                lost.append((client.client_id, lite_topic_of(name)))
            else:
                self.subscriptions.add(client, name)
        return lost

    def _move(self, group: str, name: str, offset: LiteOffset) -> None:
        """Have a group begin elsewhere in a light queue."""
        place = PopPlace(name, group, 0)
        progress, bounds = self._places.progress(place), self._places.bounds(place)
        target = {
            LiteStart.OLDEST: bounds.start,
            LiteStart.END: bounds.end,
            LiteStart.OFFSET: offset.value,
        }.get(offset.start)
        if offset.start is LiteStart.BACK and progress is not None:
            target = max(progress - offset.value, 0)
        elif offset.start is LiteStart.TIME:
            target = self._store.search_time(name, 0, offset.value, Boundary.LOWER)
        if target is not None and target != progress:
            self._progress.reset(group, QueueId(name, "", 0), target)
            self._orders.forget(place)
            for client in self.subscriptions.owners(name, group):
                client.ready[name] = None

    # --- lending ------------------------------------------------------------------------------

    def pop(self, request: PopLite, now_ms: int, *, is_final: bool = False) -> Outcome:
        """Lend messages, or hold the request. Refusals: 16, 17, 26, 29."""
        if not request.born_ms:
            request = replace(request, born_ms=now_ms)
        if now_ms - request.born_ms - request.poll_ms > _LATE_MS:
            return Answer(PopReply(PopStatus.POLLING_TIMEOUT, remark="it came too late"))
        if request.count_max > POP_COUNT_MAX:
            raise broker_error(
                refusals.INVALID_PARAMETER,
                f"pop message's num is greater than {POP_COUNT_MAX}: {request.count_max}",
            )
        queue = QueueId(request.topic, "", -1)
        self._places.require_poppable(queue, request.group)
        self._require_parent(request.topic)
        self._require_bound(request.group, request.topic)
        spans, parts, sizes = self._collect(request, now_ms)
        expires_at_ms = request.born_ms + min(request.poll_ms, self._poll_ms_max)
        if not spans and request.count_max > 0 and not is_final and expires_at_ms > now_ms:
            return HoldPop(request.group, queue, expires_at_ms, request)
        return Answer(
            PopReply(
                PopStatus.FOUND if spans else PopStatus.POLLING_TIMEOUT,
                now_ms,
                request.invisible_ms,
                ORDERLY_REVIVE_QUEUE,
                0,
                tuple(spans),
                tuple(parts),
                sizes,
                remark="FOUND" if spans else "NO_MESSAGE_IN_QUEUE",
            )
        )

    def _collect(
        self, request: PopLite, now_ms: int
    ) -> tuple[list[PoppedSpan], list[Buffer], bytes]:
        """What is there for a client, of one lite topic after the other."""
        spans: list[PoppedSpan] = []
        parts: list[Buffer] = []
        sizes, count_left, bytes_left = b"", request.count_max, self._bytes_max
        damage: Exception | None = None
        client = self.subscriptions.find(request.client_id)
        if client is None or client.group != request.group:
            return spans, parts, sizes
        for name in list(client.ready):
            if count_left < 1 or bytes_left < 1:
                break
            place = PopPlace(name, request.group, 0)
            if self._progress.awaits_reset(request.group, QueueId(name, "", 0)):
                self._orders.forget(place)
            if self._orders.is_blocked(place, request.attempt_id, now_ms):
                continue
            # The next pop looks at the others first.
            del client.ready[name]
            start, end = self._places.begin(place, InitMode.MAX)
            if start >= end:
                continue
            client.ready[name] = None
            try:
                found = self._read(place, start, count_left, bytes_left)
            except Unreadable.ERRORS as error:
                self._unreadable.tell(name, 0, error)
                damage = error
                continue
            if found.offsets[:1] != (start,):
                start = found.offsets[0] if found.offsets else found.end
                self._places.commit(place, start)
            if not found.offsets:
                continue
            attempts = self._orders.take(
                place,
                attempt_id=request.attempt_id,
                pop_ms=now_ms,
                invisible_ms=request.invisible_ms,
                offsets=found.offsets,
            )
            self._places.commit(place, start)
            spans.append(PoppedSpan(RetryKind.NONE, 0, start, found.offsets, attempts))
            parts += found.parts
            sizes += found.sizes
            count_left -= len(found.offsets)
            bytes_left -= sum(map(len, found.parts))
        if damage is not None and not spans:
            raise damage
        return spans, parts, sizes

    def _read(self, place: PopPlace, start: int, count_max: int, bytes_max: int) -> Found:
        """What follows in a light queue, behind what a repair gave up."""
        while True:
            found = read_queue(
                self._store,
                place.topic,
                place.queue_index,
                start,
                wanted=EVERYTHING,
                count_max=count_max,
                bytes_max=bytes_max,
            )
            if found.offsets or found.end <= start:
                return found
            start = found.end

    def light_queue_at(self, topic: str, position: int) -> str:
        """The light queue of the message at a log position; empty if it is in none of the topic."""
        record = self._store.record_at(position)
        if record is None:
            return ""
        message, _ = decode_record(record, check_crc=False)
        lite_topic = message.properties.get(LITE_TOPIC)
        is_lite = message.topic == topic and lite_topic and DISPATCHED_TO in message.properties
        return light_queue(topic, lite_topic) if is_lite and lite_topic else ""

    # --- the end of lite topics ---------------------------------------------------------------

    def may_expire(self) -> list[str]:
        """The light queues whose parents let none stay without messages for ever."""
        found = []
        for config in self._topics.all():
            if self._topics.is_parent(config.name) and _expiration_ms(config):
                found += self._store.light_queues(config.name)
        return found

    def is_expired(self, name: str, now_ms: int) -> bool:
        """True if a light queue got no message for as long as its parent lets it."""
        config = self._topics.get(parent_of(name))
        age_ms = 0 if config is None else _expiration_ms(config)
        bounds = self._store.bounds(name, 0)
        # What is stored and not visible yet is new.
        if not age_ms or not bounds.end or bounds.end != self._store.next_offset(name, 0):
            return False
        try:
            stored_ms = self._store.store_time(name, 0, bounds.end - 1)
        except DamagedStoreError:
            return False  # Nobody can tell any more.
        has_messages = bounds.start < bounds.end
        return stored_ms < now_ms - age_ms and (stored_ms >= 0 or not has_messages)

    def _require_parent(self, topic: str) -> None:
        self._topics.require(topic)
        if not self._topics.is_parent(topic):
            raise broker_error(
                refusals.INVALID_PARAMETER, f"the topic [{topic}] has no lite topics"
            )

    def _require_bound(self, group: str, topic: str) -> LiteSettings:
        settings = self._groups.lite(group)
        if settings.parent != topic:
            raise broker_error(
                refusals.INVALID_PARAMETER,
                f"lite group {group} is expected to bind topic {settings.parent or 'none'}, "
                f"but actual is {topic}",
            )
        return settings


def _expiration_ms(config: TopicConfig) -> int:
    """How long its lite topics stay without a message; 0: for ever."""
    minutes = config.attributes.get(EXPIRATION, "")
    is_given = minutes.isdecimal() and int(minutes) > 0
    return max(int(minutes) * MINUTE_MS, YOUNG_MS) if is_given else 0


def _too_many(what: str) -> Exception:
    return broker_error(
        refusals.TOO_MANY_LITE_SUBSCRIPTIONS, f"lite subscription quota exceeded: {what}"
    )
