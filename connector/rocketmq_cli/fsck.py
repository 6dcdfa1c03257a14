"""`rmq fsck`: verifies a stopped broker's data directory, and changes nothing in it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rocketmq_cli.usage import UsageError

_EXIT_DAMAGED = 1
_LINES_MAX = 200


def add_parser(verbs: argparse._SubParsersAction[Any]) -> None:
    """Lists the verb."""
    parser = verbs.add_parser(
        "fsck",
        help="verify a broker's data directory",
        description=(
            "Verifies the data directory of a stopped broker: the log's checksums, and every "
            "message that a queue lists. Damaged messages are named by topic, queue and offset. "
            "Nothing is changed. Exit code 1 says that something is damaged."
        ),
    )
    parser.add_argument("directory", metavar="DIR", help="the broker's data_dir")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Verify and report."""
    from rocketmq_broker_sim.storage.files import OsFiles
    from rocketmq_broker_sim.storage.inspection import describe, inspect
    from rocketmq_broker_sim.storage.recovery import LOCK_NAME

    if not (Path(args.directory) / "commitlog").is_dir():
        raise UsageError(f"{args.directory} is no broker's data directory: it has no commitlog")
    files = OsFiles(args.directory)
    lock = files.lock(LOCK_NAME)
    try:
        found = inspect(files)
    finally:
        lock.close()
    print(f"log        {found.log_start} to {found.log_end}")
    print(f"checksums  {found.verified_size} bytes compared")
    print(f"messages   {found.message_count} in {found.queue_count} queues")
    if not found.has_mark:
        print("mark       none: RocketMQ's own store, which the next start verifies and adopts")
    if found.is_sound:
        print("Everything is sound.")
        return 0
    lines = [f"damage     {problem}" for problem in found.problems]
    lines += [f"damaged    {line}" for line in describe(found.damaged)]
    for line in lines[:_LINES_MAX]:
        print(line)
    if len(lines) > _LINES_MAX:
        print(f"and {len(lines) - _LINES_MAX} lines more")
    print(
        "Nothing was changed. Put the damaged files back from a backup or a replica; "
        "all other messages are still in this directory."
    )
    return _EXIT_DAMAGED
