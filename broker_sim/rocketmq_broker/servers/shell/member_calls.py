"""Requests of the broker to members of groups, over their own connections, with a timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.outcomes import AskMembers, Member
from rocketmq_broker.servers.shell.held_requests import Done
from rocketmq_wire.errors import BrokerError, RocketMQError
from rocketmq_wire.remoting.codec import decode_reply
from rocketmq_wire.remoting.headers import Header
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.members import RelayedReply

# As in RocketMQ.
_ANSWER_SECONDS: Final = 10.0
_IN_FLIGHT_MAX: Final = 1_024

Answered = Callable[[RelayedReply | None], None]
"""Called once with a client's answer, or with None if its connection closed before."""
AskClient = Callable[[Request[Reply], Answered], Callable[[], None]]
"""Sends a request to a client, and returns a function that gives up waiting for the answer."""


class MemberCalls:
    def __init__(self) -> None:
        self._clients: dict[int, AskClient] = {}
        self._in_flight = 0

    def add(self, peer_key: int, ask: AskClient) -> None:
        self._clients[peer_key] = ask

    def remove(self, peer_key: int) -> None:
        self._clients.pop(peer_key, None)

    def begin(self, outcome: AskMembers, done: Done) -> None:
        """Ask every member; `done` gets the combined answer."""
        if self._in_flight + len(outcome.members) > _IN_FLIGHT_MAX:
            done(refusals.members_busy())
            return
        answers: dict[str, Reply | BrokerError] = {}

        def answered(member: Member, answer: Reply | BrokerError) -> None:
            answers[member.client_id] = answer
            if len(answers) == len(outcome.members):
                done(_combined(outcome, answers))

        if not outcome.members:
            done(_combined(outcome, answers))
        for member in outcome.members:
            self._ask(outcome, member, answered)

    def _ask(
        self,
        outcome: AskMembers,
        member: Member,
        answered: Callable[[Member, Reply | BrokerError], None],
    ) -> None:
        ask = self._clients.get(member.peer_key)
        if ask is None:
            answered(member, refusals.member_offline(member.group, member.client_id))
            return
        self._in_flight += 1

        def came(raw: RelayedReply | None) -> None:
            timer.cancel()
            self._in_flight -= 1
            answered(member, _answer_of(outcome, member, raw))

        def late() -> None:
            give_up()
            self._in_flight -= 1
            answered(member, refusals.member_silent(member.group, member.client_id))

        timer = asyncio.get_running_loop().call_later(_ANSWER_SECONDS, late)
        give_up = ask(outcome.request, came)


def _answer_of(
    outcome: AskMembers, member: Member, raw: RelayedReply | None
) -> Reply | BrokerError:
    if raw is None:
        return refusals.member_offline(member.group, member.client_id)
    if outcome.passes_on:
        return raw
    try:
        header = Header(raw.code, remark=raw.remark, ext_fields=dict(raw.ext_fields))
        return decode_reply(outcome.request, header, raw.body)
    except BrokerError as error:
        return error
    except RocketMQError as error:
        return refusals.member_unclear(member.group, member.client_id, str(error))


def _combined(
    outcome: AskMembers, answers: dict[str, Reply | BrokerError]
) -> Reply | RocketMQError:
    try:
        return outcome.combine(answers)
    except BrokerError as error:
        return error
