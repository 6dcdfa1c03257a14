"""`rmq lag`: how far a group is behind, once or again and again."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from rocketmq_cli.connection import add_connection_options, open_from
from rocketmq_cli.terminal.output import Record, add_json_option, moment, show
from rocketmq_cli.usage import EXIT_EXCEEDED, EXIT_FAILED, UsageError, report

if TYPE_CHECKING:
    from rocketmq_cli.groups.lag import GroupOffsets
    from rocketmq_client.cluster import Cluster

_TITLES = {
    "topic": "topic",
    "queues": "queues",
    "lag": "lag",
    "oldest": "next unread message stored",
    "seconds": "seconds behind",
}


def add_parser(verbs: argparse._SubParsersAction[Any]) -> None:
    """Add `lag`."""
    parser = verbs.add_parser(
        "lag",
        help="how far a group is behind, once or again and again",
        description="Shows how many messages a group has not committed, and how old the next one "
        "is, a line a topic. `rmq group describe` shows every queue. Exit code 1: some broker did "
        "not answer, so there may be more, or the group that is to keep a maximum has committed "
        "nothing.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n"
        "  rmq lag billing --watch 2s\n"
        "  rmq lag billing --max 10000 || alert     (exit code 3 above the maximum)",
    )
    parser.add_argument("group")
    parser.add_argument("--topic", help="only this topic")
    parser.add_argument(
        "--watch", metavar="TIME", help="again every so often (a bare number: seconds)"
    )
    parser.add_argument("--max", type=int, metavar="N", help="exit code 3 when the lag is above N")
    add_json_option(parser)
    add_connection_options(parser)
    parser.set_defaults(run=_lag)


def _lag(args: argparse.Namespace) -> int:
    from rocketmq_cli.groups.lag import group_offsets, known_group
    from rocketmq_cli.times import parse_duration_ms

    pause_ms = None if args.watch is None else parse_duration_ms(args.watch, unit="s")
    if pause_ms is not None and pause_ms < 100:
        raise UsageError("--watch must be 100ms or more")
    with open_from(args) as cluster:
        if args.topic is not None:
            cluster.route(args.topic)  # Raises for one that does not exist.
        while True:
            places = group_offsets(cluster, args.group, args.topic)
            if not places.queues and places.problem is None:
                known_group(cluster, args.group)
            _show(args, cluster, places)
            code = _verdict(args, places)
            if pause_ms is None or code == EXIT_EXCEEDED:
                return code
            sys.stdout.flush()
            time.sleep(pause_ms / 1_000)


def _verdict(args: argparse.Namespace, places: GroupOffsets) -> int:
    """The exit code, with the reason on standard error when it is not 0."""
    total = sum(at.lag for at in places.queues.values())
    if places.problem is not None:
        report(str(places.problem))
    if args.max is None:
        return EXIT_FAILED if places.problem is not None else 0
    if total > args.max:
        report(f"lag {total:,} is above {args.max:,}")
        return EXIT_EXCEEDED
    if places.problem is not None:
        return EXIT_FAILED
    if not places.queues:
        where = "" if args.topic is None else f" in topic {args.topic}"
        report(f"group {args.group} has committed nothing{where}: its lag is not known")
        return EXIT_FAILED
    return 0


def _show(args: argparse.Namespace, cluster: Cluster, places: GroupOffsets) -> None:
    found = places.queues
    missing = sorted(places.problem.missing) if places.problem is not None else []
    now_ms = time.time_ns() // 1_000_000
    unread = {queue: at.consumer_offset for queue, at in found.items() if at.lag}
    times = cluster.store_times_at(unread) if unread else {}
    records: list[Record] = []
    for topic in sorted({queue.topic for queue in found}):
        queues = [queue for queue in found if queue.topic == topic]
        stored = [times.get(queue) for queue in queues if queue in unread]
        oldest = min((at for at in stored if at is not None), default=None)
        records.append(
            {
                "time": moment(now_ms),
                "group": args.group,
                "topic": topic,
                "queues": len(queues),
                "lag": sum(found[queue].lag for queue in queues),
                "oldest": moment(oldest),
                "seconds": 0.0 if not stored else _age_s(now_ms, oldest),
                "unanswered": missing,
            }
        )
    show(records, _TITLES, as_json=args.json)
    if not records and not args.json and not missing:
        print(f"group {args.group} has committed nothing yet")


def _age_s(now_ms: int, stored_ms: int | None) -> float | None:
    return None if stored_ms is None else max(0.0, (now_ms - stored_ms) / 1_000)
