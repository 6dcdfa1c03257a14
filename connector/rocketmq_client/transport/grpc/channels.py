"""The connections of one gRPC transport: made to the first endpoint that can be reached."""

from __future__ import annotations

import os
from functools import partial

from rocketmq_client.settings import ConnectionSettings, split_addresses
from rocketmq_client.transport.grpc.connection import GrpcConnection, Inbox, connect_to_first


class Channels:
    """Connects, and keeps one idle connection for the next download. Not thread-safe."""

    def __init__(self, settings: ConnectionSettings) -> None:
        """Raises ValueError for endpoints that are no addresses."""
        self._settings = settings
        self._addresses = split_addresses(settings.endpoints or "")
        if not self._addresses:
            raise ValueError(f"endpoints names no address: {settings.endpoints!r}")
        self._process_id = os.getpid()
        self._idle: GrpcConnection | None = None
        self.generation = 0
        """How often the transport was closed."""

    def connect(self, inbox: Inbox, receive_window: int) -> GrpcConnection:
        """Open a connection. Raises ConnectError and what its settings are wrong about."""
        connect = partial(
            GrpcConnection,
            inbox=inbox,
            connect_timeout_ms=self._settings.connect_timeout_ms,
            security=self._settings.security,
            receive_window=receive_window,
        )
        connection, self._addresses = connect_to_first(self._addresses, connect)
        return connection

    def open_stream(self, inbox: Inbox, receive_window: int) -> GrpcConnection:
        """Return a connection for one stream, whose window must not be shared with calls."""
        connection, self._idle = self._idle, None
        if connection is not None:
            if not connection.is_stale and connection.receive_window == receive_window:
                connection.inbox = inbox
                return connection
            connection.close()
        return self.connect(inbox, receive_window)

    def give_back(self, connection: GrpcConnection, generation: int) -> None:
        """Keep a stream's connection for the next stream, unless the transport was closed since."""
        is_same = generation == self.generation and self._process_id == os.getpid()
        if is_same and self._idle is None:
            self._idle = connection
        else:
            connection.close()

    def close(self) -> None:
        """Close the idle connection; those of streams are closed when they are given back."""
        if self._idle is not None:
            self._idle.close()
        self._idle = None
        self._process_id = os.getpid()
        self.generation += 1
