"""Downloads, decodes and prints ranges of queues, up to a count of messages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping

import pyarrow as pa

from rocketmq_arrow.decode.decoder import DecodeOptions, Decoder
from rocketmq_arrow.source_columns import arrow_schema
from rocketmq_cli.errors import MessagesGoneError
from rocketmq_cli.messages.records import require_whole
from rocketmq_cli.messages.rendering import JSON_FIELDS, Format, json_lines
from rocketmq_cli.terminal.progress import CountLine
from rocketmq_cli.usage import UsageError, report, visible_bytes
from rocketmq_client.cluster import Cluster
from rocketmq_client.download.contract import RangeChunk, ReadSpec
from rocketmq_wire.errors import SqlSyntaxError
from rocketmq_wire.filters.sql92 import parse_selector
from rocketmq_wire.filters.tags import TagExpression, separator_problem
from rocketmq_wire.model import OffsetRange, QueueId, Subscription

GROUP = "rmq-tail"


class Printer:
    """Prints messages with the filter, the format and the count of the command line."""

    def __init__(self, args: argparse.Namespace) -> None:
        if problem := separator_problem(args.tags):
            raise UsageError(f"--tags {problem}")
        expression = TagExpression.parse(args.tags)
        self._subscription = Subscription(args.tags)
        if args.sql is not None:
            self._subscription = Subscription(_selector(args.sql), "SQL92")
        self.left: int | None = args.count
        """The number of messages still to print; None for all."""
        self.is_whole = True
        """False if messages were missing, which was reported."""
        shape = None if args.json else Format(args.format)
        self._render = json_lines if shape is None else shape.render
        self._decoder: Decoder = Decoder(
            DecodeOptions(
                schema=arrow_schema(tuple(JSON_FIELDS) if shape is None else shape.columns),
                tags=None if expression.matches_all else expression.tags,
            )
        )

    @property
    def is_done(self) -> bool:
        return bool(self.left == 0)

    def print_between(
        self,
        cluster: Cluster,
        positions: dict[QueueId, int],
        ends: Mapping[QueueId, int],
        line: CountLine | None = None,
    ) -> None:
        """Print the messages from positions to ends, and advance the positions."""
        ranges = [
            OffsetRange(queue, start, ends[queue])
            for queue, start in sorted(positions.items())
            if ends[queue] > start
        ]
        if not ranges or self.is_done:
            return
        out = sys.stdout.buffer
        is_terminal = sys.stdout.isatty()
        for chunk in cluster.read_ranges(ranges, ReadSpec(GROUP, self._subscription)):
            count = printed = 0
            for batch in self._batches(chunk):
                count += batch.num_rows
                if self.left is not None:
                    batch = batch.slice(0, self.left)
                    self.left -= batch.num_rows
                for piece in self._render(batch):
                    out.write(visible_bytes(bytes(piece)) if is_terminal else piece)
                printed += batch.num_rows
            if line is not None:
                line.add(printed, chunk.end - chunk.start)
            positions[chunk.queue] = chunk.end
            self._compare(chunk, count)
            if self.is_done:
                break
        out.flush()

    def _compare(self, chunk: RangeChunk, count: int) -> None:
        try:
            require_whole(chunk, count)
        except MessagesGoneError as error:
            # The other messages are printed.
            self.is_whole = False
            report(str(error))

    def _batches(self, chunk: RangeChunk) -> Iterable[pa.RecordBatch]:
        return self._decoder.decode(chunk.queue, chunk.start, chunk.end, chunk.body, chunk.sizes)


def _selector(text: str) -> str:
    """Check an SQL92 expression. Raises UsageError: brokers ignore one that they cannot parse."""
    try:
        problem = parse_selector(text).problem
    except SqlSyntaxError as error:
        raise UsageError(f"--sql: {error}") from error
    if problem is not None:
        raise UsageError(f"--sql {problem}")
    return text
