"""Downloads ranges through PullRecords streams: drives the stream's state, reopens what broke.

A download asks for nothing while the caller holds the generator suspended. Bytes that the broker
still sends wait in the sockets and in gRPC, up to the stream's window.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Final

from rocketmq_client.download import fresh_bounds
from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_client.download.range_stream import RangeStream
from rocketmq_client.retry import Backoff
from rocketmq_client.settings import ConnectionSettings
from rocketmq_client.transport.contract import Transport
from rocketmq_client.transport.grpc.connection import Call, Channels, next_event
from rocketmq_client.transport.net.clock import ActiveClock, OutageLog
from rocketmq_wire.errors import DeadlineExceededError, RocketMQError, TransportError
from rocketmq_wire.grpc.bulk.mapping import PULL_RECORDS_PATH
from rocketmq_wire.grpc.bulk.records import PULL_RECORDS, decode_chunk
from rocketmq_wire.model import OffsetRange, QueueId

_logger = logging.getLogger(__name__)

# A download looks at its clocks at least this often.
_TURN_MS_MAX: Final = 1_000


class Download:
    """At most one stream at a time, on a connection of its own."""

    def __init__(
        self,
        transport: Transport,
        settings: ConnectionSettings,
        channels: Channels,
        clock: ActiveClock,
        ranges: Sequence[OffsetRange],
        spec: ReadSpec,
    ) -> None:
        """`transport` asks for fresh bounds; `channels` opens the connection."""
        self._transport = transport
        self._channels = channels
        self._clock = clock
        self._spec = spec
        retry = settings.request_retry.within(spec.limits.outage_ms)
        self._stream = RangeStream(ranges, spec, backoff=Backoff(retry))
        self._call: Call | None = None
        """The open stream."""
        self._is_untaken = False
        """True while the caller has a chunk; the next one is asked for when it comes back."""
        self._generation = channels.generation
        self._heard_ms = 0
        """When the stream was opened, or its last chunk came."""
        self._outage_log = OutageLog(_logger, spec.limits.outage_ms)

    def chunks(self) -> Iterator[RangeChunk]:
        """Every range's chunks, in the order given."""
        self._clock.enter()
        try:
            while not self._stream.is_finished:
                chunk = self._next_chunk()
                if chunk is None:
                    self._outage_log.log_wait(self._now_ms(), self._stream.waits_for)
                    continue
                self._outage_log.end_wait()
                if self._stream.is_finished:
                    self._release()
                self._clock.leave()
                try:
                    yield chunk
                finally:
                    self._clock.enter()
        finally:
            # Megabytes may be on their way for nothing: the connection goes with the stream.
            self._drop()
            self._clock.leave()

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
            return self._turn(self._call or self._open())
        except TransportError as error:
            self._drop()
            self._stream.on_failure(error, self._now_ms(), heard_ms=self._heard_ms)
            self._outage_log.log(error, self._now_ms())
            return None

    def _open(self) -> Call:
        request = self._stream.next_stream(self._now_ms())
        self._is_untaken = False
        # A new inbox: nothing of an earlier stream is taken for this one's.
        connection = self._channels.open_stream(SimpleQueue(), self._stream.window_size)
        # No time-out: the caller may hold the generator suspended for as long as it likes.
        self._call = connection.stream(PULL_RECORDS_PATH, PULL_RECORDS.encode(request))
        self._heard_ms = self._now_ms()
        return self._call

    def _turn(self, call: Call) -> RangeChunk | None:
        if self._is_untaken:
            self._is_untaken = False
            call.taken()
        event = next_event(call.connection.inbox, min(self._wait_ms(), _TURN_MS_MAX))
        now_ms = self._now_ms()
        if event is not None and event.message is not None:
            self._heard_ms = now_ms
            self._is_untaken = True
            self._outage_log.log_recovery(now_ms)
            return self._stream.on_chunk(decode_chunk(event.message), now_ms)
        if event is not None:
            self._on_end(call, now_ms)
        elif not self._wait_ms():
            silent_ms = now_ms - self._heard_ms
            raise DeadlineExceededError(
                call.connection.address, f"no chunk came for {silent_ms} ms"
            )
        return None

    def _wait_ms(self) -> int:
        silent_ms = self._now_ms() - self._heard_ms
        return max(0, self._spec.limits.pull_timeout_ms - silent_ms)

    def _on_end(self, call: Call, now_ms: int) -> None:
        self._call = None
        error = call.error()
        if error is None:
            self._channels.give_back(call.connection, self._generation)
            self._stream.on_end(now_ms)
            return
        call.connection.close()
        self._stream.on_failure(error, now_ms, heard_ms=self._heard_ms)
        self._outage_log.log(error, now_ms)

    def _settle_doubt(self, queue: QueueId) -> RangeChunk | None:
        answers = self._transport.call_many(
            fresh_bounds.requests_for(queue), timeout_ms=fresh_bounds.TIMEOUT_MS
        )
        found = fresh_bounds.read_answers(queue, *answers)
        if isinstance(found, RocketMQError):
            self._stream.on_bounds_failure(found, self._now_ms())
            return None
        bounds, standing = found
        return self._stream.on_bounds(bounds, standing, self._now_ms())

    def _release(self) -> None:
        """Let the connection serve the next download, for everything came."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()
            self._channels.give_back(call.connection, self._generation)

    def _drop(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.connection.close()

    def _now_ms(self) -> int:
        return self._clock.now_ms()
