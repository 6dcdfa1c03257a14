"""File descriptors: the process's limit, and which of its connections may keep theirs.

A process without free descriptors cannot open the files of its store, so a part of the limit is
kept for them. A connection takes room from its acceptance on. If there is no room for another one,
the oldest connection that never sent a whole request is closed for it.
"""

from __future__ import annotations

import logging
import resource
import socket
from contextlib import suppress
from typing import Final

_LOG = logging.getLogger(__name__)
_RESERVE: Final = 384
"""Kept for the store: 200 queue files, the log's files, and what a start opens."""
_WANTED_SPARE: Final = 4_096
"""Descriptors beside those of admitted connections: gRPC accepts its own."""


class AcceptedSocket(socket.socket):
    """An accepted socket, which leaves its room when it is closed."""

    room: Room
    weight: int

    def close(self) -> None:
        if self.fileno() >= 0:
            self.room.leave(self)
        super().close()


class Room:
    """The connections of all ports of a broker."""

    def __init__(self, count_max: int, grpc_count_max: int | None = None) -> None:
        self._count_max = count_max
        self.grpc_count_max = count_max if grpc_count_max is None else grpc_count_max
        """Connections that gRPC may accept itself, beside those that are admitted here."""
        self._count = 0
        self._silent: dict[int, AcceptedSocket] = {}
        """The connections without a whole request so far, by descriptor, the oldest first."""

    def admit(self, accepted: socket.socket, weight: int = 1) -> AcceptedSocket | None:
        """The admitted socket; None, and it is closed, if there is no room.

        `weight` is the number of descriptors that the connection takes.
        """
        if self._count + weight > self._count_max and not self._evict():
            accepted.close()
            return None
        admitted = AcceptedSocket(fileno=accepted.detach())
        admitted.room, admitted.weight = self, weight
        self._count += weight
        self._silent[admitted.fileno()] = admitted
        return admitted

    def heard(self, descriptor: int) -> None:
        """A connection sent a whole request: it keeps its place."""
        self._silent.pop(descriptor, None)

    def leave(self, admitted: AcceptedSocket) -> None:
        self._count -= admitted.weight
        self._silent.pop(admitted.fileno(), None)

    def _evict(self) -> bool:
        for descriptor, oldest in self._silent.items():
            del self._silent[descriptor]
            with suppress(OSError):
                # Its transport reads the end of the stream, and closes.
                oldest.shutdown(socket.SHUT_RDWR)
            return True
        return False


def room_for(connections_max: int) -> Room:
    """Raise the process's limit of descriptors as far as needed, and return what it leaves."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections_max + _WANTED_SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if raised > soft:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
                soft = raised
    if soft == resource.RLIM_INFINITY:
        return Room(connections_max)
    left = soft - min(_RESERVE, soft // 2)
    grpc_count_max = min(connections_max, max(left - connections_max, left // 4))
    room = Room(min(connections_max, left - grpc_count_max), grpc_count_max)
    if room._count_max < connections_max:
        _LOG.warning(
            "the limit of %d descriptors leaves room for %d connections, and %d of gRPC, of "
            "connections_max=%d: raise `ulimit -n`",
            soft,
            room._count_max,
            grpc_count_max,
            connections_max,
        )
    return room
