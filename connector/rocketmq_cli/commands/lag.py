"""`rmq lag`: how far a group, or every group, is behind, once or repeatedly."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rocketmq_cli.arguments import Verbs, add_verb
from rocketmq_cli.connection import add_connection_options, open_from
from rocketmq_cli.terminal.output import (
    Record,
    add_json_option,
    cell_text,
    format_table,
    moment,
    show,
    titles_of,
)
from rocketmq_cli.usage import EXIT_EXCEEDED, EXIT_FAILED, UsageError, parse_duration_ms, report

if TYPE_CHECKING:
    from rocketmq_cli.groups import GroupOffsets
    from rocketmq_client.cluster import Cluster

_TITLES = titles_of(
    "topic", "queues", "lag", oldest="next unread message stored", seconds="seconds behind"
)
_ALL_TITLES = titles_of("group") | _TITLES
# Cursor to the top left, then clear what is below.
_REDRAW = "\x1b[H\x1b[J"


def add_parser(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "lag",
        _lag,
        "  rmq lag                                  every group, the worst first\n"
        "  rmq lag billing --watch 2s\n"
        "  rmq lag billing --max 10000 || alert     (exit code 3 above the maximum)",
        description="Shows how many messages a group has not committed and how old the next one "
        "is, one line a topic. Without a group and without a profile's group it shows "
        "every one that `rmq group list` lists. "
        "Exit code 1: a broker did not answer, so that the lag may be larger, or --max is given "
        "and the group has committed nothing.",
    )
    parser.add_argument(
        "group", metavar="GROUP", nargs="?", help="default: the profile's, or every group"
    )
    parser.add_argument("--all", action="store_true", help="every group, the worst first")
    parser.add_argument("--topic", help="only this topic")
    parser.add_argument(
        "--watch", metavar="TIME", help="repeat at this interval (a bare number: seconds)"
    )
    parser.add_argument("--max", type=int, metavar="N", help="exit code 3 if the lag is above N")
    add_json_option(parser)
    add_connection_options(parser)


def _lag(args: argparse.Namespace) -> int:
    pause_ms = None if args.watch is None else parse_duration_ms(args.watch, unit="s")
    if pause_ms is not None and pause_ms < 100:
        raise UsageError("--watch must be 100ms or more")
    if args.all and args.group is not None:
        raise UsageError("--all shows every group: leave out the name of one")
    with open_from(args) as cluster:
        args.is_named = args.group is not None
        if not args.all:
            args.group = args.group or args.profile_group
        if args.topic is not None:
            cluster.route(args.topic)  # Raises if the topic does not exist.
        is_first = True
        while True:
            found, silent = _offsets(args, cluster)
            records = _records(cluster, found)
            if pause_ms is None or args.json:
                _show(args, records, found)
            else:
                _show_frame(args, records, found, is_first=is_first)
            code = _exit_code(args, found, silent)
            if pause_ms is None or code == EXIT_EXCEEDED:
                return code
            is_first = False
            sys.stdout.flush()
            time.sleep(pause_ms / 1_000)


def _offsets(
    args: argparse.Namespace, cluster: Cluster
) -> tuple[dict[str, GroupOffsets], dict[str, str]]:
    """The offsets of each group, and the brokers that did not list their groups."""
    from rocketmq_cli.groups import group_offsets, is_system_group, known_group, listed_groups

    if args.group is None:
        groups, missing = listed_groups(cluster)
        wanted = [name for name in groups if not is_system_group(name)]
        found = {name: group_offsets(cluster, name, args.topic) for name in wanted}
        return found, {broker: str(error) for broker, error in missing.items()}
    offsets = group_offsets(cluster, args.group, args.topic)
    args.elsewhere = []
    if not offsets.queues and offsets.problem is None:
        known_group(cluster, args.group)
        if args.topic is not None:
            others = group_offsets(cluster, args.group).queues
            args.elsewhere = sorted({queue.topic for queue in others})
    return {args.group: offsets}, {}


def _exit_code(
    args: argparse.Namespace, found: Mapping[str, GroupOffsets], silent: Mapping[str, str]
) -> int:
    """Return the exit code, and report the reasons if it is not 0."""
    code = 0
    problems = [each.problem for each in found.values() if each.problem is not None]
    if problems and args.group is not None:
        code = EXIT_FAILED
        report(str(problems[0]))
    elif problems or silent:
        code = EXIT_FAILED
        brokers = {name: why for problem in problems for name, why in problem.missing.items()}
        for name, why in sorted({**silent, **brokers}.items()):
            report(f"{name} did not report its offsets, so that lags may be larger: {why}")
    if args.max is None:
        return code
    for group, offsets in found.items():
        total = sum(at.lag for at in offsets.queues.values())
        if total > args.max:
            report(f"lag {total:,} of group {group} is above {args.max:,}")
            return EXIT_EXCEEDED
    if not code and args.group is not None and not found[args.group].queues:
        where = "" if args.topic is None else f" in topic {args.topic}"
        report(f"group {args.group} has committed nothing{where}: its lag is unknown")
        return EXIT_FAILED
    return code


def _records(cluster: Cluster, found: Mapping[str, GroupOffsets]) -> list[Record]:
    """The lag of every group by topic, the largest first."""
    records: list[tuple[int, float, Record]] = []
    for group, (queues, problem) in found.items():
        unread = {queue: at.consumer_offset for queue, at in queues.items() if at.lag}
        times = cluster.store_times_at(unread) if unread else {}
        now_ms = time.time_ns() // 1_000_000
        for topic in sorted({queue.topic for queue in queues}):
            own = [queue for queue in queues if queue.topic == topic]
            stored = [times.get(queue) for queue in own if queue in unread]
            oldest = min((at for at in stored if at is not None), default=None)
            lag = sum(queues[queue].lag for queue in own)
            seconds = _age_s(now_ms, oldest) if stored else 0.0
            record: Record = {
                "time": moment(now_ms),
                "group": group,
                "topic": topic,
                "queues": len(own),
                "lag": lag,
                "oldest": moment(oldest),
                "seconds": seconds,
                "unanswered": sorted(problem.missing) if problem is not None else [],
            }
            records.append((lag, seconds or 0.0, record))
    if len(found) > 1:
        records.sort(key=lambda row: row[:2], reverse=True)
    return [record for *_, record in records]


def _show(
    args: argparse.Namespace, records: Sequence[Record], found: Mapping[str, GroupOffsets]
) -> None:
    show(records, _TITLES if args.is_named else _ALL_TITLES, as_json=args.json)
    if not records and not args.json and not any(each.problem for each in found.values()):
        print(_nothing(args))


def _nothing(args: argparse.Namespace) -> str:
    if args.group is None:
        return "no group has committed anything"
    if args.topic is None:
        return f"group {args.group} has committed nothing yet"
    others = f", but in {', '.join(args.elsewhere)}" if args.elsewhere else ""
    return f"group {args.group} has committed nothing in topic {args.topic}{others}"


def _show_frame(
    args: argparse.Namespace,
    records: Sequence[Record],
    found: Mapping[str, GroupOffsets],
    *,
    is_first: bool,
) -> None:
    """Show a repetition: it replaces the last one at a terminal and follows it in a pipe."""
    if sys.stdout.isatty():
        clock = cell_text(moment(time.time_ns() // 1_000_000))
        print(f"{_REDRAW}every {args.watch}: lag of {args.group or 'every group'}  {clock}\n")
        _show(args, records, found)
        return
    titles = {"time": "time", **(_TITLES if args.is_named else _ALL_TITLES)}
    rows = [[cell_text(record[name]) for name in titles] for record in records]
    lines = format_table(tuple(titles.values()), rows).splitlines()
    for line in lines if is_first else lines[1:]:
        print(line)


def _age_s(now_ms: int, stored_ms: int | None) -> float | None:
    return None if stored_ms is None else max(0.0, (now_ms - stored_ms) / 1_000)
