"""Repairs a store that the broker refuses: sets damage aside, and leaves holes in the queues.

    1. copy the damaged bytes into a new folder below `quarantine`
    2. store the plan: until step 5 no broker starts, and a repair continues this plan
    3. write blank records over the damage; store the holes, the log checksums and the mark
    4. leave consume queues and key index to the next start, which reads the whole log
    5. add the report to the copies, and remove the plan

After a crash the same repair follows: before step 2 from the same bytes, later from the plan.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import Final

from rocketmq_broker.storage.adoption.adopt import is_written_by_rocketmq
from rocketmq_broker.storage.disk.config_files import CONFIG_DIRECTORY
from rocketmq_broker.storage.disk.files import File, Files, join, read_file, write_file
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.log.commit_log import LOG_DIRECTORY
from rocketmq_broker.storage.log.durability import (
    LOG_CHECKSUMS_NAME,
    MARK_NAME,
    write_first_mark,
    write_log_checksums,
)
from rocketmq_broker.storage.queues.consume_queue import QUEUE_DIRECTORY
from rocketmq_broker.storage.queues.derived import DERIVED_NAME, Derived, save_derived
from rocketmq_broker.storage.queues.lost_messages import save_holes
from rocketmq_broker.storage.recovery.recover import ABORT_NAME
from rocketmq_broker.storage.repair.damage_survey import survey_damage
from rocketmq_broker.storage.repair.log_files import Say, silent
from rocketmq_broker.storage.repair.repair_plan import (
    QUARANTINE_DIRECTORY,
    DamagedRange,
    RepairPlan,
    load_plan,
)
from rocketmq_broker.storage.settings import PLAN_NAME
from rocketmq_wire.model import Bounds

REPORT_NAME: Final = "report.json"
_COPY_SIZE: Final = 8 * 1024 * 1024


def plan_repair(
    files: Files,
    lock: File,
    *,
    keeps_unproven: bool = False,
    rebuilds_queues: bool = False,
    say: Say = silent,
) -> RepairPlan:
    """Plan a repair; changes nothing. The caller holds the store's lock.

    With `rebuilds_queues` the plan is not empty even if only queues are damaged.

    Raises:
        StorageError: it is not this broker's store, or its configuration cannot be read.
    """
    unfinished = load_plan(files)
    if unfinished is not None:
        return unfinished
    if is_written_by_rocketmq(files, has_lock_word=lock.size() > 0):
        reason = (
            "this store was last written by RocketMQ itself, and only what this broker has "
            "checksums of can be repaired: put the damaged files back from a backup or a replica"
        )
        raise StorageError(LOG_DIRECTORY, 0, reason)
    plan = survey_damage(files, _next_folder(files), keeps_unproven=keeps_unproven, say=say)
    if plan.is_empty and rebuilds_queues:
        return replace(plan, rewritten=(QUEUE_DIRECTORY,))
    return plan


def carry_out(files: Files, plan: RepairPlan, say: Say = silent) -> None:
    """Carry out a plan; then the broker starts again. The caller holds the store's lock."""
    if PLAN_NAME not in files.names(""):
        _set_aside(files, plan, say)
        write_file(files, PLAN_NAME, plan.encode())
    _blank_out(files, plan, say)
    files.make_directory(CONFIG_DIRECTORY)
    if plan.holes:
        save_holes(files, plan.holes)
    write_log_checksums(files, plan.checksums)
    write_first_mark(files, plan.mark)
    # The next start ignores the files of queues and index: the log has all messages.
    ends = {(topic, index): Bounds(end, end) for topic, index, end in plan.ends}
    log_start = plan.mark.log_start
    derived = Derived(log_start, plan.store_ms, bounds=ends, is_rebuilding=True)
    save_derived(files, derived)
    # Bytes behind an estimated mark may be torn: the next start must cut them.
    files.open(ABORT_NAME, create=True).close()
    files.sync_directory("")
    text = json.dumps(plan.report(), ensure_ascii=False, indent=2)
    write_file(files, join(plan.folder, REPORT_NAME), text.encode())
    files.unlink(PLAN_NAME)
    files.sync_directory("")


def _next_folder(files: Files) -> str:
    """The first folder without a finished repair."""
    number = 1
    while REPORT_NAME in files.names(join(QUARANTINE_DIRECTORY, f"{number:04d}")):
        number += 1
    return join(QUARANTINE_DIRECTORY, f"{number:04d}")


def _set_aside(files: Files, plan: RepairPlan, say: Say) -> None:
    files.make_directory(QUARANTINE_DIRECTORY)
    files.make_directory(plan.folder)
    files.sync_directory("")
    files.sync_directory(QUARANTINE_DIRECTORY)
    for damage in plan.damaged_ranges:
        if not damage.is_missing:
            say(f"copying {damage.size:,} bytes of {damage.file}")
            _copy(files, plan, damage)
    # They are small, and may help to explain the damage later.
    for name in (MARK_NAME, LOG_CHECKSUMS_NAME, DERIVED_NAME):
        data = read_file(files, name)
        if data is not None:
            write_file(files, join(plan.folder, name), data)
    files.sync_directory(plan.folder)


def _copy(files: Files, plan: RepairPlan, damage: DamagedRange) -> None:
    begin, done = damage.position % plan.mark.segment_size, 0
    base = damage.file.rpartition("/")[2]
    name = join(plan.folder, f"commitlog-{base}-{begin}-{damage.size}")
    with closing(files.open(damage.file)) as source, closing(files.open(name, create=True)) as copy:
        copy.resize(0)
        while done < damage.size:
            # A file that is too short returns less.
            data = source.pread(min(_COPY_SIZE, damage.size - done), begin + done)
            if not data:
                break
            copy.pwrite(data, done)
            done += len(data)
        copy.sync()


def _blank_out(files: Files, plan: RepairPlan, say: Say) -> None:
    files.make_directory(LOG_DIRECTORY)
    size = plan.mark.segment_size
    for damage in plan.damaged_ranges:
        say(f"writing over {damage.size:,} bytes of {damage.file}")
        with closing(files.open(damage.file, create=True)) as file:
            if file.size() != size:
                file.resize(size)
            file.pwrite(damage.blank(size), damage.position % size)
            file.sync()
    files.sync_directory(LOG_DIRECTORY)
