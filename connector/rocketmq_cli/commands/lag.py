"""`rmq lag`: how far a group is behind, once or repeatedly."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from rocketmq_cli.arguments import Verbs, add_verb
from rocketmq_cli.connection import add_connection_options, open_from
from rocketmq_cli.terminal.output import Record, add_json_option, moment, show, titles_of
from rocketmq_cli.usage import EXIT_EXCEEDED, EXIT_FAILED, UsageError, parse_duration_ms, report

if TYPE_CHECKING:
    from rocketmq_cli.groups import GroupOffsets
    from rocketmq_client.cluster import Cluster

_TITLES = titles_of(
    "topic", "queues", "lag", oldest="next unread message stored", seconds="seconds behind"
)


def add_parser(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "lag",
        _lag,
        "  rmq lag billing --watch 2s\n"
        "  rmq lag billing --max 10000 || alert     (exit code 3 above the maximum)",
        description="Shows how many messages a group has not committed and how old the next one "
        "is, one line a topic. `rmq group describe` shows every queue. Exit code 1: a broker did "
        "not answer, so that the lag may be larger, or --max is given and the group has committed "
        "nothing.",
    )
    parser.add_argument("group")
    parser.add_argument("--topic", help="only this topic")
    parser.add_argument(
        "--watch", metavar="TIME", help="repeat at this interval (a bare number: seconds)"
    )
    parser.add_argument("--max", type=int, metavar="N", help="exit code 3 if the lag is above N")
    add_json_option(parser)
    add_connection_options(parser)


def _lag(args: argparse.Namespace) -> int:
    from rocketmq_cli.groups import group_offsets, known_group

    pause_ms = None if args.watch is None else parse_duration_ms(args.watch, unit="s")
    if pause_ms is not None and pause_ms < 100:
        raise UsageError("--watch must be 100ms or more")
    with open_from(args) as cluster:
        if args.topic is not None:
            cluster.route(args.topic)  # Raises if the topic does not exist.
        while True:
            offsets = group_offsets(cluster, args.group, args.topic)
            if not offsets.queues and offsets.problem is None:
                known_group(cluster, args.group)
            _show(args, cluster, offsets)
            code = _exit_code(args, offsets)
            if pause_ms is None or code == EXIT_EXCEEDED:
                return code
            sys.stdout.flush()
            time.sleep(pause_ms / 1_000)


def _exit_code(args: argparse.Namespace, offsets: GroupOffsets) -> int:
    """Return the exit code, and report the reason if it is not 0."""
    total = sum(at.lag for at in offsets.queues.values())
    if offsets.problem is not None:
        report(str(offsets.problem))
    if args.max is None:
        return EXIT_FAILED if offsets.problem is not None else 0
    if total > args.max:
        report(f"lag {total:,} is above {args.max:,}")
        return EXIT_EXCEEDED
    if offsets.problem is not None:
        return EXIT_FAILED
    if not offsets.queues:
        where = "" if args.topic is None else f" in topic {args.topic}"
        report(f"group {args.group} has committed nothing{where}: its lag is unknown")
        return EXIT_FAILED
    return 0


def _show(args: argparse.Namespace, cluster: Cluster, offsets: GroupOffsets) -> None:
    found = offsets.queues
    missing = sorted(offsets.problem.missing) if offsets.problem is not None else []
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
                "seconds": _age_s(now_ms, oldest) if stored else 0.0,
                "unanswered": missing,
            }
        )
    show(records, _TITLES, as_json=args.json)
    if not records and not args.json and not missing:
        print(f"group {args.group} has committed nothing yet")


def _age_s(now_ms: int, stored_ms: int | None) -> float | None:
    return None if stored_ms is None else max(0.0, (now_ms - stored_ms) / 1_000)
