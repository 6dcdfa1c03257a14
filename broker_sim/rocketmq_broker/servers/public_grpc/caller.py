"""The caller of a call of the public service: its identity, its rights, its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rocketmq_broker.engine.core.outcomes import Peer
from rocketmq_broker.security.guard import Guard, SigningAccount
from rocketmq_broker.servers.public_grpc.lookup import Lookup
from rocketmq_broker.servers.public_grpc.renewals import Renewals
from rocketmq_broker.servers.public_grpc.sessions import Sessions
from rocketmq_broker.servers.shell.shell import EngineShell
from rocketmq_wire.codes import PublicCode
from rocketmq_wire.errors import BrokerError, PublicRefusal
from rocketmq_wire.grpc.public.status import make_status
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.stubs import public

R = TypeVar("R", bound=Reply)
CLIENT_ID = "x-mq-client-id"
CLIENT_VERSION = "x-mq-client-version"


@dataclass(slots=True)
class Service:
    """What all calls share."""

    shell: EngineShell
    guard: Guard | None
    lookup: Lookup
    sessions: Sessions
    renewals: Renewals
    unwritten: set[tuple[str, str, str]] = field(default_factory=set)
    """Session, group and handle of messages whose reply is being written."""
    handing_back: set[asyncio.Task[None]] = field(default_factory=set)
    own_port: int = 0
    """The port in routes for clients that do not say how they reached the broker."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The client of one call."""

    client_id: str
    peer: Peer
    metadata: Mapping[str, str]
    seconds_left: float | None
    """The seconds to the call's deadline; None without a deadline."""
    now_ms: int
    sender: SigningAccount | None
    service: Service

    @property
    def session_key(self) -> str:
        """The name of the client's session, which belongs to its account: ids are no secret."""
        if self.sender is None:
            return self.client_id
        return f"{self.client_id} of {self.sender.access_key!r}"

    async def ask(self, request: Request[R]) -> R:
        """Do a request if the client has the right to it. Raises BrokerError, PublicRefusal."""
        self.check_right(request)
        return await self.service.shell.ask(request, self.peer)

    def check_right(self, request: Request[R]) -> None:
        """Check the client's right to a request. Raises PublicRefusal (40100)."""
        guard = self.service.guard
        if guard is not None:
            try:
                guard.check_right(self.sender, request)
            except BrokerError as error:
                raise PublicRefusal(PublicCode.UNAUTHORIZED, error.remark) from error


def identified(
    guard: Guard | None, peer: Peer, metadata: Mapping[str, str]
) -> SigningAccount | None:
    """The caller's account; None if it may do everything. Raises PublicRefusal (40100, 40017)."""
    if not metadata.get(CLIENT_ID):
        raise PublicRefusal(PublicCode.CLIENT_ID_REQUIRED, f"the header {CLIENT_ID} is missing")
    if guard is None:
        return None
    try:
        return guard.identify_call(peer.host, metadata)
    except BrokerError as error:
        raise PublicRefusal(PublicCode.UNAUTHORIZED, error.remark) from error


def ok_reply(call: str, **fields: Any) -> Any:
    return public.message_class(f"{call}Response")(status=make_status(PublicCode.OK), **fields)
