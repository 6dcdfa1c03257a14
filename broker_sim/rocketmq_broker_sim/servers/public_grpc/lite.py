"""SyncLiteSubscription of the public service: which lite topics a client wants to have.

In a group where a lite topic is one client's, whoever loses it is told by its telemetry stream.
"""

from __future__ import annotations

from typing import Any, Final

from rocketmq_broker_sim.servers.public_grpc.caller import Caller
from rocketmq_broker_sim.servers.public_grpc.facts import Facts
from rocketmq_broker_sim.servers.public_grpc.routing import (
    check_lite_topic,
    group_named,
    require_bound,
    topic_named,
)
from rocketmq_broker_sim.servers.public_grpc.sessions import Session, Sessions
from rocketmq_broker_sim.servers.public_grpc.settings import is_lite
from rocketmq_wire.grpc_public_codes import Code, PublicRefusal, make_status
from rocketmq_wire.lite_requests import LiteAction, LiteOffset, LiteStart, SubscribeLite
from rocketmq_wire.stubs import public

_MIN, _MAX = 1, 2
"""`OffsetOption.Policy` in the protocol."""
_POLICIES: Final = {_MIN: LiteStart.OLDEST, _MAX: LiteStart.END}
_NUMBERS: Final = {
    "offset": LiteStart.OFFSET,
    "tail_n": LiteStart.BACK,
    "timestamp": LiteStart.TIME,
}


class LiteCalls:
    """What clients say of their lite topics."""

    def __init__(self, facts: Facts, sessions: Sessions) -> None:
        self._facts, self._sessions = facts, sessions

    async def sync(self, caller: Caller, request: Any) -> Any:
        """Add, remove or replace what the client wants."""
        topic, group = topic_named(request.topic), group_named(request.group)
        action = _action_of(request.action)
        if action is LiteAction.ADD:
            for name in request.lite_topic_set:
                check_lite_topic(name)
        require_bound(self._facts.group(group), group, topic)
        session = self._sessions.find(caller.client_id)
        if session is None or not is_lite(session.settings):
            raise PublicRefusal(
                Code.UNRECOGNIZED_CLIENT_TYPE,
                f"client {caller.client_id} is not known to consume lite topics: "
                "open Telemetry first",
            )
        if session.group != group:
            raise PublicRefusal(
                Code.ILLEGAL_CONSUMER_GROUP,
                f"client {caller.client_id} is a member of group {session.group}, not of {group}",
            )
        subscribe = SubscribeLite(
            group,
            topic,
            caller.client_id,
            action,
            tuple(request.lite_topic_set),
            _offset_of(request) if action is LiteAction.ADD else None,
        )
        caller.check_right(subscribe)
        # As the session: what it wants ends with its stream.
        reply = await caller.asking.ask(subscribe, session.peer)
        for client_id, lite_topic in reply.lost:
            self._tell(client_id, lite_topic)
        return public.message_class("SyncLiteSubscriptionResponse")(status=make_status(Code.OK))

    async def forget(self, caller: Caller, session: Session) -> None:
        """A client says goodbye."""
        subscription = session.settings.subscription
        group = subscription.group.name
        parent = self._facts.group(group).lite_parent
        if is_lite(session.settings) and parent:
            forget = SubscribeLite(group, parent, caller.client_id, LiteAction.FORGET)
            await caller.asking.ask(forget, session.peer)

    def _tell(self, client_id: str, lite_topic: str) -> None:
        session = self._sessions.known(client_id)
        if session is not None:
            command = public.message_class("TelemetryCommand")()
            command.notify_unsubscribe_lite_command.lite_topic = lite_topic
            session.tell(command)


def _action_of(number: int) -> LiteAction:
    try:
        return LiteAction(number)
    except ValueError:
        raise PublicRefusal(Code.BAD_REQUEST, f"no action has the number {number}") from None


def _offset_of(request: Any) -> LiteOffset | None:
    """Where to begin; None: where the group is."""
    option = request.offset_option
    kind = option.WhichOneof("offset_type")
    if not request.HasField("offset_option") or kind is None:
        return None
    if kind == "policy":
        start = _POLICIES.get(option.policy)
        return None if start is None else LiteOffset(start)
    return LiteOffset(_NUMBERS[kind], max(int(getattr(option, kind)), 0))
