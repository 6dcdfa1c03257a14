"""What the engine decides about a request; the servers carry it out.

`Answer` is sent at once. `AfterSync` is sent once the log is durable up to `position`, so an
acknowledged message is on disk. `Hold` is a pull that waits for its queue to grow: the server
resumes it when the queue grew, and with `is_final=True` when `expires_at_ms` has come.
`AskMembers` is answered once members of a group have said something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rocketmq_wire.errors import BrokerError
from rocketmq_wire.model import QueueId
from rocketmq_wire.requests.contract import Reply, Request
from rocketmq_wire.requests.messages import PullMessages
from rocketmq_wire.requests.pop import AwaitMessages, PopMessages


@dataclass(frozen=True, slots=True)
class Answer:
    reply: Reply


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
    """What to ask when it is over: the pull behind what was examined, its commit done."""


@dataclass(frozen=True, slots=True)
class Member:
    """A client online, and the connection by which it is reached."""

    group: str
    client_id: str
    peer_key: int


@dataclass(frozen=True, slots=True)
class AskMembers:
    members: tuple[Member, ...]
    request: Request[Reply]
    """What each of them is asked."""
    combine: Callable[[Mapping[str, Reply | BrokerError]], Reply]
    """What their answers, by client id, mean together. Raises BrokerError."""
    passes_on: bool = False
    """The answers are handed on as they come (`RelayedReply`), never read."""


@dataclass(frozen=True, slots=True)
class HoldPop:
    """A pop, or the question whether one would find something, that waits for messages."""

    group: str
    queue: QueueId
    """Index -1: any queue of the topic. The group's retry topic of it counts, too."""
    expires_at_ms: int
    request: PopMessages | AwaitMessages


Outcome = Answer | AfterSync | Hold | HoldPop | AskMembers


@dataclass(frozen=True, slots=True)
class Peer:
    """Who asks: one connection. `key` tells connections apart."""

    key: int
    host: str
    port: int
    local_host: str = ""
    """The address by which the peer reached us; empty if unknown."""
