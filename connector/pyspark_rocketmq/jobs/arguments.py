"""A job's command line -> options of the source or sink."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from pyspark.sql.streaming import DataStreamWriter

from pyspark_rocketmq.options.parse import spellings_of
from pyspark_rocketmq.options.tables import (
    CONNECTION_DEFINITIONS,
    SENDING_OPTIONS,
    SINK_DEFINITIONS,
)

_AT_ONCE: Final = "available-now"
_UNITS_US: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
# Spark takes fractions only of seconds, and 32 bits for a number of days.
_PART: Final = rf"([0-9]{{1,8}}(?:\.[0-9]{{1,6}}(?=\s+second))?)\s+({'|'.join(_UNITS_US)})s?\b"
_LENGTH: Final = re.compile(rf"(?:interval\s+)?{_PART}(?:\s+{_PART})*", re.IGNORECASE)
# Spark counts microseconds in 64 bits.
_INTERVAL_US_MAX: Final = 36_500 * _UNITS_US["day"]


class JobParser(argparse.ArgumentParser):
    def __init__(self, prog: str | None = None, **settings: Any) -> None:
        super().__init__(prog, allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help.\n")


def add_cluster_arguments(parser: argparse.ArgumentParser) -> None:
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
    add_cluster_arguments(parser)
    parser.add_argument("--topic", required=True, help="several are separated by commas")
    parser.add_argument("--group", help="consumer group whose offsets are committed")


def add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", required=True, help="folder of the query's checkpoint")
    parser.add_argument(
        "--starting-offsets",
        default="earliest",
        help="start of a query without a checkpoint: earliest (default), latest, group, JSON",
    )
    parser.add_argument("--max-offsets-per-trigger", type=count, metavar="N")
    parser.add_argument(
        "--max-partitions", type=count, metavar="N", help="largest number of tasks of a batch"
    )
    add_trigger_argument(parser)


def add_trigger_argument(parser: argparse.ArgumentParser, usual: str = "10 seconds") -> None:
    parser.add_argument(
        "--trigger",
        default=usual,
        type=_trigger,
        metavar="INTERVAL|available-now",
        help=f"a batch every interval, or read what is there and end (default: {usual})",
    )


def stream_options(args: argparse.Namespace, **named: object) -> dict[str, str]:
    """`source_options` of a stream, with those of `add_stream_arguments`."""
    return source_options(
        args,
        startingOffsets=args.starting_offsets,
        maxOffsetsPerTrigger=args.max_offsets_per_trigger,
        maxPartitions=args.max_partitions,
        **named,
    )


def ends(args: argparse.Namespace) -> bool:
    """True if the trigger ends the query by itself."""
    return bool(args.trigger == _AT_ONCE)


def triggered(writer: DataStreamWriter, args: argparse.Namespace) -> DataStreamWriter:
    if ends(args):
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=args.trigger)


def positive(text: str) -> float:
    """A number above zero, for `type=`."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return value


def count(text: str) -> int:
    """A whole number from 1 on, for `type=`."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {text}")
    return value


def interval(text: str) -> str:
    """A duration as Spark takes it, for `type=`."""
    microseconds_of(text)
    return text


def period(text: str) -> str:
    """A duration above zero, for `type=`."""
    if not microseconds_of(text):
        raise argparse.ArgumentTypeError(f"must be above 0, got {text!r}")
    return text


def microseconds_of(text: str) -> float:
    """A duration in microseconds. Raises ArgumentTypeError."""
    if _LENGTH.fullmatch(text.strip()) is None:
        raise argparse.ArgumentTypeError(
            f"no duration: {text!r}, write '10 seconds', '1 minute' or '1 day 12 hours'"
        )
    parts: list[tuple[str, str]] = re.findall(_PART, text, re.IGNORECASE)
    total = sum(float(number) * _UNITS_US[unit.lower()] for number, unit in parts)
    if total > _INTERVAL_US_MAX:
        raise argparse.ArgumentTypeError(f"longer than a hundred years: {text!r}")
    return total


def source_options(args: argparse.Namespace, **named: object) -> dict[str, str]:
    """The source's options: those of `add_source_arguments`, the job's own, then `--option`s.

    Leaves out what is None. An `--option` overrides the argument of the same name.
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
    """The connection options of a read, for a write to the same cluster."""
    names = spellings_of(CONNECTION_DEFINITIONS)
    return {key: text for key, text in options.items() if key.lower() in names}


def take_sending(args: argparse.Namespace, **usual: str) -> dict[str, str]:
    """Move the options of sending out of a reading job's `--option`s; `usual` are defaults."""
    names = spellings_of(each for each in SINK_DEFINITIONS if each.name in SENDING_OPTIONS)
    sending = {key: text for key, text in args.option if key.lower() in names}
    args.option = [(key, text) for key, text in args.option if key not in sending]
    given = {key.lower() for key in sending}
    return {key: text for key, text in usual.items() if key.lower() not in given} | sending


def _trigger(text: str) -> str:
    return text if text == _AT_ONCE else interval(text)


def _key_and_value(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise argparse.ArgumentTypeError(f"an option is KEY=VALUE, got {text!r}")
    return key, value
