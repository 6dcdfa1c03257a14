"""What the engine decides about a request; the servers carry it out.

`Answer` is sent at once. `AfterSync` is sent once the log is durable up to `position`, so an
acknowledged message is on disk. `Hold` is a pull that waits for its queue to grow: the server
resumes it when the queue grew, and with `is_final=True` when `expires_at_ms` has come.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketmq_wire.model import QueueId
from rocketmq_wire.requests import PullMessages, Reply


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


Outcome = Answer | AfterSync | Hold


@dataclass(frozen=True, slots=True)
class Peer:
    """Who asks: one connection. `key` tells connections apart."""

    key: int
    host: str
    port: int
    local_host: str = ""
    """The address by which the peer reached us; empty if unknown."""
