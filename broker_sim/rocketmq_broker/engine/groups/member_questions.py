"""What tools want to know of a group's members: which of them is asked what, and what that says.

The broker knows none of it. It passes the question on to the member and hands back the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from rocketmq_broker.engine.core import refusals
from rocketmq_broker.engine.core.outcomes import AskMembers, Member, Outcome, Peer
from rocketmq_broker.engine.groups.clients import Clients
from rocketmq_broker.storage.store import Store
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
    """The rules of what is asked of members."""

    def __init__(self, broker_name: str, *, clients: Clients, store: Store) -> None:
        self._broker_name, self._clients, self._store = broker_name, clients, store

    def rules(self) -> Mapping[type, Callable[..., Outcome]]:
        return {
            GetRunningInfo: self._running_info,
            ConsumeDirectly: self._consume_directly,
            GetMembersOffsets: self._progress,
        }

    def _running_info(self, request: GetRunningInfo, _: Peer, __: int) -> Outcome:
        member = self._member(request.group, request.client_id)
        return AskMembers((member,), request, _only_answer, passes_on=True)

    def _consume_directly(self, request: ConsumeDirectly, __: Peer, ___: int) -> Outcome:
        try:
            _, position = parse_offset_message_id(request.message_id)
        except RemoteProtocolError as error:
            raise refusals.message_id_illegal(str(error)) from error
        record = self._store.record_at(position)
        if record is None:
            raise refusals.record_missing(position)
        member = self._member(request.group, request.client_id)
        asked = replace(request, broker=self._broker_name, record=bytes(record))
        return AskMembers((member,), asked, _only_answer, passes_on=True)

    def _progress(self, request: GetMembersOffsets, _: Peer, __: int) -> Outcome:
        members = self._clients.consumer_peers(request.group)
        if not members:
            raise refusals.group_offline(request.group)
        wanted = tuple(
            Member(request.group, client_id, key)
            for client_id, key in members.items()
            if request.client_id in ("", client_id)
        )
        asked = GetClientOffsets(request.group, request.topic)
        return AskMembers(wanted, asked, _joined_progress)

    def _member(self, group: str, client_id: str) -> Member:
        key = self._clients.consumer_peers(group).get(client_id)
        if key is None:
            raise refusals.member_offline(group, client_id)
        return Member(group, client_id, key)


def _only_answer(answers: Mapping[str, Reply | BrokerError]) -> Reply:
    (answer,) = answers.values()
    if isinstance(answer, BrokerError):
        raise answer
    return answer


def _joined_progress(answers: Mapping[str, Reply | BrokerError]) -> Reply:
    # As RocketMQ does: whoever gives no answer is left out.
    return MembersOffsetsReply(
        {
            client_id: answer.offsets
            for client_id, answer in answers.items()
            if isinstance(answer, OffsetsReply)
        }
    )
