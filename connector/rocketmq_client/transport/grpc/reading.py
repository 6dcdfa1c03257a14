"""Downloads ranges through PullRecords streams: drives the stream's state, reopens what broke.

Nothing is asked for while the caller holds the generator suspended. What the broker may send
meanwhile waits in the sockets and in gRPC, up to the stream's window.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from rocketmq_client.download import fresh_bounds
from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_client.download.range_stream import RangeStream
from rocketmq_client.retry import Backoff
from rocketmq_client.transport.grpc.connection import (
    CallEnded,
    GrpcConnection,
    Inbox,
    MessageReceived,
    next_event,
)
from rocketmq_wire.errors import DeadlineExceededError, RocketMQError, TransportError
from rocketmq_wire.grpc.bulk.mapping import PULL_RECORDS_PATH
from rocketmq_wire.grpc.bulk.records import decode_chunk, encode_pull_records
from rocketmq_wire.model import OffsetRange, QueueId

if TYPE_CHECKING:
    from rocketmq_client.transport.grpc.transport import GrpcTransport

_logger = logging.getLogger(__name__)

# Nothing of a download waits longer than this without looking at its clocks.
_TURN_MS_MAX: Final = 1_000


class Reading:
    """One download: at most one stream at a time, on a connection of its own."""

    def __init__(
        self, transport: GrpcTransport, ranges: Sequence[OffsetRange], spec: ReadSpec
    ) -> None:
        self._transport = transport
        self._spec = spec
        self._stream = RangeStream(
            ranges,
            spec,
            backoff=Backoff(transport.settings.request_retry.within(spec.limits.outage_ms)),
        )
        self._reader: GrpcConnection | None = None
        self._inbox: Inbox = SimpleQueue()
        self._call = 0
        self._untaken: MessageReceived | None = None
        """The chunk that the caller has; the next one is asked for when it comes back."""
        self._closings = transport.closings
        self._heard_ms = 0
        """When the stream was opened, or its last chunk came."""
        self._is_awaited = False
        """The broker is away, and said to be."""
        self._awaited_ms = 0

    def chunks(self) -> Iterator[RangeChunk]:
        """Every range's chunks, in the order given."""
        clock = self._transport.clock
        clock.enter()
        try:
            while not self._stream.is_finished:
                chunk = self._next_chunk()
                if chunk is None:
                    continue
                if self._stream.is_finished:
                    self._release()
                clock.leave()
                try:
                    yield chunk
                finally:
                    clock.enter()
        finally:
            # Megabytes may be on their way for nothing: the connection goes with the stream.
            self._drop()
            clock.leave()

    def _next_chunk(self) -> RangeChunk | None:
        """The next chunk, or None after one turn of waiting."""
        if self._stream.is_over:
            self._drop()
        delay_ms = self._stream.delay_ms(self._now_ms())
        if delay_ms:
            time.sleep(min(delay_ms, _TURN_MS_MAX) / 1_000)
            return None
        queue = self._stream.doubted_queue
        if queue is not None:
            return self._settle_doubt(queue)
        try:
            return self._turn(self._reader or self._open())
        except TransportError as error:
            self._drop()
            self._stream.on_failure(error, self._now_ms(), heard_ms=self._heard_ms)
            self._say_awaited(error)
            return None

    def _open(self) -> GrpcConnection:
        request = self._stream.next_stream(self._now_ms())
        # A new inbox: nothing of an earlier stream is taken for this one's.
        self._inbox, self._untaken = SimpleQueue(), None
        reader = self._transport.take_reader(self._inbox, self._stream.window_size)
        self._reader = reader
        # No time-out: the caller may hold the generator suspended for as long as it likes.
        self._call = reader.stream(PULL_RECORDS_PATH, [encode_pull_records(request)])
        self._heard_ms = self._now_ms()
        return reader

    def _turn(self, reader: GrpcConnection) -> RangeChunk | None:
        untaken, self._untaken = self._untaken, None
        if untaken is not None:
            reader.taken(untaken)
        event = next_event(self._inbox, self._wait_ms())
        now_ms = self._now_ms()
        if isinstance(event, MessageReceived):
            self._heard_ms, self._untaken = now_ms, event
            self._say_back(now_ms)
            return self._stream.on_chunk(decode_chunk(event.message), now_ms)
        if isinstance(event, CallEnded):
            self._on_end(reader, event, now_ms)
        elif not self._wait_ms():
            silent_ms = now_ms - self._heard_ms
            raise DeadlineExceededError(reader.address, f"no chunk came for {silent_ms} ms")
        return None

    def _wait_ms(self) -> int:
        silent_ms = self._now_ms() - self._heard_ms
        return max(0, self._spec.limits.pull_timeout_ms - silent_ms)

    def _on_end(self, reader: GrpcConnection, event: CallEnded, now_ms: int) -> None:
        self._reader = None
        error = reader.error_of(event)
        if error is None:
            self._transport.give_back(reader, self._closings)
            self._stream.on_end(now_ms)
            return
        reader.close()
        self._stream.on_failure(error, now_ms, heard_ms=self._heard_ms)
        self._say_awaited(error)

    def _say_awaited(self, error: RocketMQError) -> None:
        """Say once for each outage that the download waits, and for how long."""
        if isinstance(error, TransportError) and not self._is_awaited:
            self._is_awaited, self._awaited_ms = True, self._now_ms()
            outage_s = self._spec.limits.outage_ms / 1_000
            _logger.warning("waiting for the broker for up to %.0f s: %s", outage_s, error)

    def _say_back(self, now_ms: int) -> None:
        """Say that the outage is over which was told of."""
        if self._is_awaited:
            self._is_awaited = False
            seconds = (now_ms - self._awaited_ms) / 1_000
            _logger.warning("the broker answers again after %.1f s, the download goes on", seconds)

    def _settle_doubt(self, queue: QueueId) -> RangeChunk | None:
        answers = self._transport.call_many(
            fresh_bounds.questions(queue), timeout_ms=fresh_bounds.TIMEOUT_MS
        )
        found = fresh_bounds.read_answers(queue, *answers)
        if isinstance(found, RocketMQError):
            self._stream.on_bounds_failure(found, self._now_ms())
            return None
        bounds, standing = found
        return self._stream.on_bounds(bounds, standing, self._now_ms())

    def _release(self) -> None:
        """Everything came: the connection may serve the next download."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel(self._call)
            self._transport.give_back(reader, self._closings)

    def _drop(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _now_ms(self) -> int:
        return self._transport.clock.now_ms()
