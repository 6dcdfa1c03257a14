"""A job's command line -> the source's options: what every job that reads topics has in common."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql.streaming import DataStreamWriter

from pyspark_rocketmq.option_table import DEFINITIONS
from rocketmq_wire.errors import RocketMQError


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the cluster, and `--option`."""
    cluster = parser.add_mutually_exclusive_group(required=True)
    cluster.add_argument("--name-server", metavar="HOST:PORT[;...]")
    cluster.add_argument("--endpoints", metavar="HOST:PORT", help="gRPC instead")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        type=_key_and_value,
        metavar="KEY=VALUE",
        help="any other option of the source; may be repeated",
    )


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the cluster, the topics, the group and `--option`."""
    add_cluster_arguments(parser)
    parser.add_argument("--topic", required=True, help="several are separated by commas")
    parser.add_argument("--group", help="consumer group whose offsets at the broker shall follow")


def add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the checkpoint, where to begin, and when batches are made and how large."""
    parser.add_argument("--checkpoint", required=True, help="folder of the query's checkpoint")
    parser.add_argument(
        "--starting-offsets",
        default="earliest",
        help="where a query without a checkpoint begins: earliest (default), latest, group, JSON",
    )
    parser.add_argument("--max-offsets-per-trigger", type=int, metavar="N")
    parser.add_argument("--max-partitions", type=int, metavar="N", help="tasks of a batch at most")
    add_trigger_argument(parser)


def add_trigger_argument(parser: argparse.ArgumentParser, usual: str = "10 seconds") -> None:
    """Add when batches are made."""
    parser.add_argument(
        "--trigger",
        default=usual,
        metavar="INTERVAL|available-now",
        help=f"a batch every interval, or all that is there and then end (default: {usual})",
    )


def stream_options(args: argparse.Namespace, **named: object) -> dict[str, str]:
    """`source_options` of a stream: those of `add_stream_arguments` too."""
    return source_options(
        args,
        startingOffsets=args.starting_offsets,
        maxOffsetsPerTrigger=args.max_offsets_per_trigger,
        maxPartitions=args.max_partitions,
        **named,
    )


def triggered(writer: DataStreamWriter, args: argparse.Namespace) -> DataStreamWriter:
    """The writer with the trigger that was asked for."""
    if args.trigger == "available-now":
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=args.trigger)


def positive(text: str) -> float:
    """A number above zero, for `type=`."""
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return value


def source_options(args: argparse.Namespace, **named: object) -> dict[str, str]:
    """The source's options: those of `add_source_arguments`, the job's own, then `--option`s.

    What is None is left out, and an `--option` beats what has a name of its own here.
    """
    options = {
        "nameServer": args.name_server,
        "endpoints": args.endpoints,
        "subscribe": getattr(args, "topic", None),
        "group": getattr(args, "group", None),
        **named,
    }
    others = dict(args.option)
    replaced = {key.lower() for key in others}
    return {
        key: str(value)
        for key, value in options.items()
        if value is not None and key.lower() not in replaced
    } | others


def connection_of(options: Mapping[str, str]) -> dict[str, str]:
    """Of a read's options those that say where the cluster is and who asks: for a write."""
    names = {
        spelling.lower()
        for definition in DEFINITIONS
        if definition.group == "connect"
        for spelling in (definition.name, *definition.aliases)
    }
    return {key: text for key, text in options.items() if key.lower() in names}


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """End the job with an error of ours as its only words: it says what happened and what to do."""
    try:
        yield
    except RocketMQError as error:
        raise SystemExit(str(error)) from None


def _key_and_value(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise argparse.ArgumentTypeError(f"an option is KEY=VALUE, got {text!r}")
    return key, value
