"""Requests that the broker passes on to members of a group: only they know the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.outcomes import AskMembers, Member, Outcome, Peer, Rule
from rocketmq_broker.engine.tables import Tables
from rocketmq_wire.errors import BrokerError, RemoteProtocolError
from rocketmq_wire.records.message_id import parse_offset_message_id
from rocketmq_wire.requests.contract import Reply
from rocketmq_wire.requests.members import (
    ConsumeDirectly,
    GetClientOffsets,
    GetMembersOffsets,
    GetRunningInfo,
    MembersOffsetsReply,
)
from rocketmq_wire.requests.offsets import OffsetsReply


class MemberQuestions:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def rules(self) -> tuple[Rule[Any], ...]:
        return (
            Rule(GetRunningInfo, self._running_info),
            Rule(ConsumeDirectly, self._consume_directly),
            Rule(GetMembersOffsets, self._members_offsets),
        )

    def _running_info(self, request: GetRunningInfo, _: Peer, __: int) -> Outcome:
        member = self._member(request.group, request.client_id)
        return AskMembers((member,), request, _only_reply, passes_on=True)

    def _consume_directly(self, request: ConsumeDirectly, _: Peer, __: int) -> Outcome:
        try:
            _id, position = parse_offset_message_id(request.message_id)
        except RemoteProtocolError as error:
            raise refusals.message_id_illegal(str(error)) from error
        record = self._tables.store.record_at(position)
        if record is None:
            raise refusals.record_missing(position)
        member = self._member(request.group, request.client_id)
        broker_name = self._tables.identity.broker_name
        asked = replace(request, broker=broker_name, record=bytes(record))
        return AskMembers((member,), asked, _only_reply, passes_on=True)

    def _members_offsets(self, request: GetMembersOffsets, _: Peer, __: int) -> Outcome:
        members = self._tables.clients.consumer_peers(request.group)
        if not members:
            raise refusals.group_offline(request.group)
        wanted = tuple(
            Member(request.group, client_id, key)
            for client_id, key in members.items()
            if request.client_id in ("", client_id)
        )
        asked = GetClientOffsets(request.group, request.topic)
        return AskMembers(wanted, asked, _joined_offsets)

    def _member(self, group: str, client_id: str) -> Member:
        key = self._tables.clients.consumer_peers(group).get(client_id)
        if key is None:
            raise refusals.member_offline(group, client_id)
        return Member(group, client_id, key)


def _only_reply(replies: Mapping[str, Reply | BrokerError]) -> Reply:
    (reply,) = replies.values()
    if isinstance(reply, BrokerError):
        raise reply
    return reply


def _joined_offsets(replies: Mapping[str, Reply | BrokerError]) -> Reply:
    # As RocketMQ does, the reply leaves out members that did not answer.
    return MembersOffsetsReply(
        {
            client_id: reply.offsets
            for client_id, reply in replies.items()
            if isinstance(reply, OffsetsReply)
        }
    )
