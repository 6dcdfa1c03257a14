"""What the engine decides about a request, and the rules by which it decides.

A server sends an `Answer` at once, and an `AfterSync` once the log is durable up to `position`: so
an acknowledged message is on disk. A `Hold` is a pull that waits for its queue to grow: the server
resumes it when the queue grew, and with `is_final=True` at `expires_at_ms`. A `HoldPop` is a pop
that waits. A server answers `AskMembers` once members of a group have replied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.contract import Done, Reply, Request
from rocketmq_wire.requests.messages import PullMessages
from rocketmq_wire.requests.permissions import AccessRight, Permission, resources_of
from rocketmq_wire.requests.pop import AwaitMessages, PopMessages

Q = TypeVar("Q", bound=Request[Any])


@dataclass(frozen=True, slots=True)
class Answer:
    reply: Reply


DONE = Answer(Done())


@dataclass(frozen=True, slots=True)
class AfterSync:
    reply: Reply
    position: int
    """Byte position in the commit log."""


@dataclass(frozen=True, slots=True)
class Hold:
    queue: QueueId
    start: int
    """The pull waits for a message at this offset or behind it."""
    expires_at_ms: int
    request: PullMessages
    """The pull to repeat: behind the examined messages, without the commit that is done."""


@dataclass(frozen=True, slots=True)
class HoldPop:
    """A pop, or a NOTIFICATION request, that waits for messages."""

    group: str
    queue: QueueId
    """Index -1: any queue of the topic. Messages in the group's retry topic count, too."""
    expires_at_ms: int
    request: PopMessages | AwaitMessages


@dataclass(frozen=True, slots=True)
class Member:
    """A client online, and the connection that reaches it."""

    group: str
    client_id: str
    peer_key: int


@dataclass(frozen=True, slots=True)
class AskMembers:
    members: tuple[Member, ...]
    request: Request[Reply]
    """The request that each member gets."""
    combine: Callable[[Mapping[str, Reply | BrokerError]], Reply]
    """Combines the members' replies, by client id, into one. Raises BrokerError."""
    passes_on: bool = False
    """True: the server relays the replies unread (`RelayedReply`)."""


@dataclass(frozen=True, slots=True)
class CountHeldPops:
    """A question for the number of a group's held pops of a queue; the server holds them."""

    group: str
    queue: QueueId


Outcome = Answer | AfterSync | Hold | HoldPop | AskMembers | CountHeldPops


class Sender(Protocol):
    """The account that signed a request."""

    @property
    def access_key(self) -> str: ...

    def may(self, permissions: Sequence[Permission]) -> bool: ...

    def require(self, permissions: Sequence[Permission]) -> None:
        """Raises NotAuthorizedError if the account lacks one of the permissions."""
        ...


@dataclass(frozen=True, slots=True)
class Peer:
    """The connection that a request came by, and who signed it."""

    key: int
    """Unique among the connections; negative for gRPC."""
    host: str
    port: int
    local_host: str = ""
    """The broker's address that the peer connected to; empty if unknown."""
    sender: Sender | None = field(default=None, compare=False)
    """None if the sender may do everything."""

    @property
    def reaches_all_brokers(self) -> bool:
        """False over gRPC: all requests of such a client go to this broker."""
        return self.key >= 0

    @property
    def access_key(self) -> str:
        """The sender's; empty if it may do everything."""
        return self.sender.access_key if self.sender is not None else ""

    def require(self, right: AccessRight, topic: str) -> None:
        """Check the right to a topic that the request does not name itself.

        Raises NotAuthorizedError.
        """
        if self.sender is not None:
            self.sender.require(right.on(resources_of((topic,))))


@dataclass(frozen=True, slots=True)
class Rule(Generic[Q]):
    """Decides about one type of request."""

    request: type[Q]
    decide: Callable[[Q, Peer, int], Outcome]
    """Takes the request, its connection and the time. Raises BrokerError to refuse."""


def answer_rule(request: type[Q], reply: Callable[[Q], Reply]) -> Rule[Q]:
    """A rule that answers at once and needs neither the connection nor the time."""
    return Rule(request, lambda asked, *_: Answer(reply(asked)))


def done_rule(request: type[Q], act: Callable[[Q], None]) -> Rule[Q]:
    """A rule that acts at once and answers without a value."""

    def decide(asked: Q, _: Peer, __: int) -> Outcome:
        act(asked)
        return DONE

    return Rule(request, decide)


def timed_rule(request: type[Q], decide: Callable[[Q, int], Outcome]) -> Rule[Q]:
    """A rule that needs the time, not the connection."""
    return Rule(request, lambda asked, _, now_ms: decide(asked, now_ms))
