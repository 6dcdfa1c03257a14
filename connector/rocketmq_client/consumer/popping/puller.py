"""Pops from the queues that brokers assign to a push consumer, in the I/O thread.

At every rebalance a broker names the queues of a topic and a mode: `POP` moves a topic from pulling
to popping, `PULL` moves it back, while the consumer runs. Without a reply nothing changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from rocketmq_client.consumer.common.io_thread import now_ms
from rocketmq_client.consumer.common.messages import popped_messages, tags_of
from rocketmq_client.consumer.common.settings import (
    ConsumeFrom,
    ConsumerSettings,
    PopSettings,
    unwrapped,
)
from rocketmq_client.consumer.membership.client_instance import ClientInstance
from rocketmq_client.consumer.popping.consumption import PopConsumption, PopQueue
from rocketmq_wire.errors import ProtocolError, RocketMQError, UnsupportedRequestError
from rocketmq_wire.model import MASTER_ID, RETRY_PREFIX, QueueId, Subscription
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.groups import AssignmentReply, ConsumeMode, QueryAssignment
from rocketmq_wire.requests.pop import InitMode, PopMessages, PopReply, PopStatus

_LOG = logging.getLogger(__name__)
_STRATEGIES: Final = ("AVG", "AVG_BY_CIRCLE")
_GRACE_MS: Final = 10_000
_ERROR_PAUSE_MS: Final = 3_000
_FULL_PAUSE_MS: Final = 50
_SUSPENDED_PAUSE_MS: Final = 1_000
_EMPTY_PAUSE_MS: Final = 20


@dataclass(eq=False)
class PopPuller:
    """The queues that one member pops; the housekeeping thread gains and loses them."""

    instance: ClientInstance
    settings: ConsumerSettings
    pop: PopSettings
    consumption: PopConsumption
    is_suspended: Callable[[], bool]
    owned: dict[QueueId, PopQueue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._io = self.instance.io
        name = self.settings.strategy.name
        self._strategy = name if name in _STRATEGIES else _STRATEGIES[0]
        is_last = self.settings.consume_from is ConsumeFrom.LAST
        self._init_mode = InitMode.MAX if is_last else InitMode.MIN

    def rebalance(self, subscriptions: Mapping[str, Subscription]) -> dict[str, Subscription]:
        """Gain and lose popped queues; returns the subscriptions of the topics to pull."""
        pulled: dict[str, Subscription] = {}
        wanted: dict[QueueId, Subscription] = {}
        for topic, subscription in subscriptions.items():
            queues = None if topic.startswith(RETRY_PREFIX) else self._queues_of(topic)
            if queues is None:
                pulled[topic] = subscription
            else:
                wanted.update(dict.fromkeys(queues, subscription))
        self._own(wanted)
        return pulled

    def stop(self) -> None:
        self._own({})

    def _queues_of(self, topic: str) -> list[QueueId] | None:
        """The topic's queues to pop; None if the topic is to be pulled."""
        popped_now = [queue for queue in self.owned if queue.topic == topic]
        unchanged = popped_now or None
        broker = self._broker_of(topic)
        if broker is None:
            return unchanged
        settings, client_id = self.settings, self.instance.client_id
        request = QueryAssignment(
            settings.group, topic, client_id, self._strategy, settings.model.value
        )
        (reply,) = self._io.call_many([(broker, request)], timeout_ms=settings.request_timeout_ms)
        if isinstance(reply, UnsupportedRequestError):
            # A broker of 4.9 only knows pulling.
            return None
        if isinstance(reply, RocketMQError):
            _LOG.warning("topic=%s: could not get the queues to consume: %s", topic, reply)
            return unchanged
        assert isinstance(reply, AssignmentReply)
        if reply.assignments is None:
            return unchanged
        popped = [one.queue for one in reply.assignments if one.mode is ConsumeMode.POP]
        if popped or not reply.assignments:
            # A member without queues keeps its mode.
            return popped or ([] if popped_now else None)
        return None

    def _broker_of(self, topic: str) -> str | None:
        route = self.instance.route(topic)
        masters = [one.name for one in route.brokers if MASTER_ID in one.addresses] if route else []
        return min(masters, default=None)

    def _own(self, wanted: Mapping[QueueId, Subscription]) -> None:
        for queue in [queue for queue in self.owned if queue not in wanted]:
            self.owned.pop(queue).is_dropped = True
            _LOG.info("group=%s: stopped popping %s", self.settings.group, queue)
        for queue, subscription in wanted.items():
            known = self.owned.get(queue)
            if known is not None:
                known.subscription = subscription
                continue
            self.owned[queue] = PopQueue(queue, subscription)
            self.start(self.owned[queue])
            _LOG.info("group=%s: started popping %s", self.settings.group, queue)

    def start(self, owned: PopQueue) -> None:
        """Pop the queue until it is dropped."""
        self._io.post(partial(self._step, owned))

    # --- in the I/O thread --------------------------------------------------------------------

    def _step(self, owned: PopQueue) -> None:
        if owned.is_dropped:
            return
        if self.is_suspended():
            self._step_later(owned, _SUSPENDED_PAUSE_MS)
        elif owned.pending > self.pop.pending_max:
            self._step_later(owned, _FULL_PAUSE_MS)
        else:
            self._ask(owned)

    def _step_later(self, owned: PopQueue, pause_ms: int) -> None:
        if not owned.is_step_due:
            owned.is_step_due = True
            self._io.at(now_ms() + pause_ms, partial(self._step_now, owned))

    def _step_now(self, owned: PopQueue) -> None:
        owned.is_step_due = False
        self._step(owned)

    def _ask(self, owned: PopQueue) -> None:
        request = PopMessages(
            group=self.settings.group,
            queue=owned.queue,
            count_max=self.pop.batch_size,
            invisible_ms=self.pop.invisible_ms,
            poll_ms=self.pop.poll_ms,
            init_mode=self._init_mode,
            subscription=owned.subscription,
        )
        self._io.send(
            request,
            broker=owned.queue.broker,
            timeout_ms=self.pop.poll_ms + _GRACE_MS,
            on_done=partial(self._on_reply, owned, now_ms()),
        )

    def _on_reply(self, owned: PopQueue, asked_ms: int, reply: Reply | RocketMQError) -> None:
        if isinstance(reply, PopReply):
            if reply.status is PopStatus.FOUND:
                self._take(owned, reply, asked_ms)
                self._step(owned)
            elif reply.status is PopStatus.POLLING_FULL:
                self._step_later(owned, _SUSPENDED_PAUSE_MS)
            else:
                # A broker that does not hold the request must not be asked without a pause.
                is_quick = now_ms() - asked_ms < _EMPTY_PAUSE_MS
                self._step_later(owned, _EMPTY_PAUSE_MS if is_quick else 0)
            return
        if not owned.is_dropped:
            _LOG.warning("%s: a pop failed: %s", owned.queue, reply)
        self._step_later(owned, _ERROR_PAUSE_MS)

    def _take(self, owned: PopQueue, reply: PopReply, asked_ms: int) -> None:
        tags = tags_of(owned.subscription)
        try:
            wanted, unwanted = popped_messages(
                reply, broker=owned.queue.broker, topic=owned.queue.topic, tags=tags
            )
        except ProtocolError as error:
            # The broker redelivers messages without an acknowledgement until they are dead letters.
            _LOG.error("%s: popped messages cannot be read: %s", owned.queue, error)
            return
        counts = self.consumption.calls.rates.of(owned.queue.topic)
        counts.pulls += 1
        counts.pull_ms += now_ms() - asked_ms
        counts.pulled += len(wanted)
        self.consumption.acks.add(unwanted)
        if owned.is_dropped:
            # The queue was given up meanwhile: its new owner pops them again.
            self.consumption.return_soon(wanted)
            return
        if not wanted:
            return
        for popped in wanted:
            popped.message.topic = unwrapped(self.settings.namespace, popped.message.topic)
        with owned.lock:
            owned.pending += len(wanted)
        self.consumption.on_popped(owned, wanted)
