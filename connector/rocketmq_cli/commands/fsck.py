"""`rmq fsck`: verifies a stopped broker's data directory, and repairs a damaged one."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rocketmq_cli.arguments import Verbs, add_verb
from rocketmq_cli.usage import EXIT_FAILED, UsageError
from rocketmq_wire.plural import plural

if TYPE_CHECKING:
    from rocketmq_broker.storage.errors import ConfigFileError
    from rocketmq_broker.storage.repair.inspection import Inspection
    from rocketmq_broker.storage.repair.repair_plan import RepairPlan

_LINES_MAX = 200
_EXAMPLES = """\
  rmq fsck /var/lib/rocketmq              show damage, and what a repair would lose
  rmq fsck /var/lib/rocketmq --repair     set the damage aside, so that the broker starts
  rmq fsck /var/lib/rocketmq --json | jq .repair.lost

exit codes: 0 everything is sound, or was repaired; 1 something is damaged, or could not be
repaired; 2 the command line is wrong
"""


def add_parser(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "fsck",
        run,
        _EXAMPLES,
        description="Verifies the data directory of a stopped broker: the log's checksums, every "
        "message in a consume queue, and the configuration files. With --repair it copies damaged "
        "parts of the store into a folder below DIR/quarantine, with a report, and removes them "
        "from the store, so that the broker starts. Every intact message keeps its offset; "
        "the offsets of lost messages stay empty, and readers are notified.",
    )
    parser.add_argument("directory", metavar="DIR", help="the broker's data_dir")
    parser.add_argument("--repair", action="store_true", help="set damage aside")
    parser.add_argument(
        "--keep-unproven",
        action="store_true",
        help="if a checksum differs and the damaged message cannot be identified, keep all "
        "messages that it covers (a header or property may be wrong) instead of removing them",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    from rocketmq_broker.storage.disk.config_files import damaged_configs
    from rocketmq_broker.storage.disk.files import OsFiles
    from rocketmq_broker.storage.recovery.recover import LOCK_NAME
    from rocketmq_broker.storage.repair.inspection import inspect
    from rocketmq_broker.storage.repair.repair import carry_out, plan_repair
    from rocketmq_broker.storage.settings import PLAN_NAME
    from rocketmq_cli.terminal.progress import StatusLine

    if not Path(args.directory).exists():
        raise UsageError(f"{args.directory} does not exist")
    if not (Path(args.directory) / "commitlog").is_dir():
        raise UsageError(f"{args.directory} is no broker's data directory: it has no commitlog")
    files = OsFiles(args.directory)
    line = StatusLine()
    lock = files.lock(LOCK_NAME)
    plan: RepairPlan | None = None
    try:
        found = inspect(files, line.say)
        configs = damaged_configs(files)
        is_unfinished = PLAN_NAME in files.names("")
        # RocketMQ's own store is verified by the start that adopts it.
        if is_unfinished or (found.has_own_files and not found.is_sound):
            plan = plan_repair(
                files,
                lock,
                keeps_unproven=args.keep_unproven,
                rebuilds_queues=bool(found.damaged or found.damaged_queues),
                say=line.say,
            )
            if args.repair and not plan.is_empty:
                carry_out(files, plan, line.say)
    finally:
        line.close()
        lock.close()
    is_repaired = bool(args.repair and plan is not None and not plan.is_empty)
    result = _Result(args.directory, found, plan, configs, is_repaired)
    if args.json:
        print(json.dumps(_as_json(result), ensure_ascii=False))
    else:
        _print(result)
    return 0 if (result.is_sound or is_repaired) and not configs else EXIT_FAILED


class _Result(NamedTuple):
    """A verified directory, with the plan of its repair if it is damaged."""

    directory: str
    found: Inspection
    plan: RepairPlan | None
    configs: list[ConfigFileError]
    is_repaired: bool

    @property
    def is_sound(self) -> bool:
        """True if the messages are sound; a configuration file may be damaged."""
        return self.found.is_sound and self.plan is None


def _as_json(result: _Result) -> dict[str, object]:
    found, plan, configs = result.found, result.plan, result.configs
    return {
        "sound": result.is_sound and not configs,
        "logStart": found.log_start,
        "logEnd": found.log_end,
        "verifiedBytes": found.verified_size,
        "messages": None if found.is_rebuilding else found.message_count,
        "queues": None if found.is_rebuilding else found.queue_count,
        "rebuilding": found.is_rebuilding,
        "problems": found.problems,
        "configs": [{"file": each.file, "reason": each.reason} for each in configs],
        "damaged": [
            {"topic": topic, "queue": index, "start": start, "end": end}
            for (topic, index), ranges in sorted(found.damaged.items())
            for start, end in ranges
        ],
        "repaired": result.is_repaired,
        "repair": None if plan is None or plan.is_empty else plan.report(),
    }


def _print(result: _Result) -> None:
    from rocketmq_broker.storage.repair.inspection import describe

    directory, found, plan, configs, is_repaired = result
    print(f"log        {found.log_start} to {found.log_end}")
    print(f"checksums  {found.verified_size:,} bytes compared")
    if found.is_rebuilding:
        print("queues     rebuilt from the log at the next start, which counts the messages")
    else:
        print(f"messages   {found.message_count:,} in {plural(found.queue_count, 'queue')}")
    if not found.has_mark and not found.has_own_files:
        print("mark       none: RocketMQ's own store, which the next start verifies and adopts")
    for each in configs:
        # A repair has no source to restore them from.
        print(f"config     {each}")
    if result.is_sound:
        _print_sound(directory, found, configs)
        return
    lines = [f"damage     {problem}" for problem in found.problems]
    lines += [f"damaged    {line}" for line in describe(found.damaged)]
    _print_some(lines)
    if plan is None or plan.is_empty:
        print(
            "Nothing was changed. Restore the damaged files from a backup or a replica; "
            "all other messages are still in this directory."
        )
        return
    _print_some(_repair_lines(plan))
    if is_repaired:
        print(
            f"Repaired. The damaged bytes and a report are in {directory}/{plan.folder}. The next "
            "start rebuilds the queues from the log."
        )
        return
    print(
        "Nothing was changed. Restore the damaged files from a backup or a replica if you can. "
        f"`rmq fsck {directory} --repair` {_offer(plan)}"
    )


def _print_sound(directory: str, found: Inspection, configs: list[ConfigFileError]) -> None:
    from rocketmq_broker.storage.repair.repair_plan import QUARANTINE_DIRECTORY

    if configs:
        print("All messages are sound.")
    elif found.is_rebuilding:
        was_repaired = (Path(directory) / QUARANTINE_DIRECTORY).is_dir()
        print(f"{'Repaired: the' if was_repaired else 'The'} log is sound.")
    else:
        print("Everything is sound.")


def _offer(plan: RepairPlan) -> str:
    """The effect of a repair on the messages."""
    if plan.lost_count or plan.unattributed_size:
        return (
            "sets the damage aside and gives up the messages that are listed as lost; all others "
            "stay where they are."
        )
    return "loses no message: all of them are in the log."


def _repair_lines(plan: RepairPlan) -> list[str]:
    from rocketmq_broker.storage.repair.inspection import describe

    size = plan.mark.segment_size
    lines = [
        f"set aside  {each.file} byte={each.position % size} length={each.size}: {each.reason}"
        for each in plan.damaged_ranges
    ]
    lines += [f"rewritten  {name}: {_rewritten(name)}" for name in plan.rewritten]
    lines += [f"lost       {line}" for line in describe(plan.lost_by_queue())]
    lines.append(f"in all     {plural(plan.lost_count, 'message')} lost")
    if plan.unattributed_size:
        lines.append(
            f"unknown    {plan.unattributed_size:,} bytes of damage may hold messages of any "
            "queue; each of these queues continues behind as many offsets as fit into them"
        )
    if plan.unproven_count:
        lines.append(
            f"unverified {plural(plan.unproven_count, 'message')} kept: body and position are"
            " sound, the other fields have no checksum any more"
        )
    return lines


def _rewritten(name: str) -> str:
    from rocketmq_broker.storage.queues.consume_queue import QUEUE_DIRECTORY

    if name == QUEUE_DIRECTORY:
        return "by the next start, from the log"
    return "by the repair, from the rest of the store"


def _print_some(lines: list[str]) -> None:
    for line in lines[:_LINES_MAX]:
        print(line)
    if len(lines) > _LINES_MAX:
        print(f"and {plural(len(lines) - _LINES_MAX, 'line')} more")
