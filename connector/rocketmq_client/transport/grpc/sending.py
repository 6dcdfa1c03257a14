"""Batches of records over one stream of a connection: half the broker's work of a call for each.

Answers come in the order of the batches. If the stream ends, batches without an answer may have
been stored.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketmq_client.transport.grpc.connection import CallEnded, GrpcConnection
from rocketmq_wire.errors import (
    ConnectError,
    ConnectionLostError,
    DeadlineExceededError,
    RemoteProtocolError,
    RocketMQError,
    UnsupportedRequestError,
    WrongSettingsError,
)
from rocketmq_wire.grpc.bulk.mapping import SEND_RECORDS_STREAM_PATH
from rocketmq_wire.grpc.bulk.records import decode_send_outcome
from rocketmq_wire.model import Buffer
from rocketmq_wire.requests.contract import Reply

OnAnswer = Callable[[Reply | RocketMQError], None]

# A message over the broker's limit would end the stream for all: large ones get their own calls.
STREAMED_SIZE_MAX: Final = 4 * 1024 * 1024


@dataclass(slots=True)
class _Sent:
    on_answer: OnAnswer | None
    """None once the send was given up; its answer still comes in order."""
    started_at: float
    deadline_ms: int


class SendStream:
    """Sends batches over one stream at a time. Not thread-safe."""

    def __init__(self) -> None:
        self.call: int | None = None
        """The stream's number; None while none is open."""
        self._waiting: deque[_Sent] = deque()

    @property
    def is_idle(self) -> bool:
        """True if no batch waits for its answer."""
        return not any(sent.on_answer for sent in self._waiting)

    @property
    def deadline_ms(self) -> int | None:
        """The time when the first batch expires."""
        waiting = (sent.deadline_ms for sent in self._waiting if sent.on_answer)
        return min(waiting, default=None)

    def send(
        self,
        connection: GrpcConnection,
        message: bytes,
        on_answer: OnAnswer,
        *,
        now_ms: int,
        timeout_ms: int,
    ) -> None:
        """Send one batch, an encoded `SendRecords`."""
        sent = _Sent(on_answer, time.monotonic(), now_ms + timeout_ms)
        if self.call is None:
            self.call = connection.exchange(SEND_RECORDS_STREAM_PATH, message)
        else:
            connection.send(self.call, message)
        self._waiting.append(sent)

    def on_message(self, message: Buffer) -> None:
        """Take the next answer in. Raises RemoteProtocolError if no batch waits for one."""
        outcome = decode_send_outcome(message)
        if not self._waiting:
            raise RemoteProtocolError("a batch was answered that was not sent")
        sent = self._waiting.popleft()
        if sent.on_answer is not None:
            sent.on_answer(outcome)

    def on_end(self, connection: GrpcConnection, ended: CallEnded) -> None:
        """End every batch that waits, since the broker ended the stream."""
        error = connection.error_of(ended)
        # Any other error would claim to be about every batch that waits.
        if not isinstance(error, (ConnectError, UnsupportedRequestError, WrongSettingsError)):
            error = ConnectionLostError(connection.address, f"the stream of sends ended: {error}")
        self.fail(error)

    def expire(self, connection: GrpcConnection, now_ms: int) -> bool:
        """Give up batches that took too long; they may have been stored.

        True if no answer at all has come since one of them was sent.
        """
        is_silent = False
        for sent in self._waiting:
            if sent.on_answer is not None and now_ms >= sent.deadline_ms:
                on_answer, sent.on_answer = sent.on_answer, None
                waited_ms = (time.monotonic() - sent.started_at) * 1_000
                is_silent = is_silent or not connection.heard_since(sent.started_at)
                on_answer(DeadlineExceededError(connection.address, f"waited {waited_ms:.0f} ms"))
        return is_silent

    def fail(self, error: RocketMQError) -> None:
        """End the stream; every batch that waits ends with the error."""
        self.call = None
        waiting, self._waiting = self._waiting, deque()
        for sent in waiting:
            if sent.on_answer is not None:
                sent.on_answer(error)

    def forget(self) -> None:
        """End the stream and forget the batches that wait."""
        self.call = None
        self._waiting.clear()
