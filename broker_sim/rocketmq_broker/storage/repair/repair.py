"""Repairs a store that the broker refuses: sets damage aside, and leaves holes in its place.

    1. the damaged bytes are copied into a folder of their own, below `quarantine`
    2. the plan is stored: from here on no broker starts, and a repair carries on with this plan
    3. blank records are written over the damage, holes noted, checksums and mark written anew
    4. consume queues and key index are left to the next start, which reads the whole log
    5. the report joins the copies, and the plan goes

A crash anywhere is followed by the same repair: before 2 from the same bytes, later by the plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rocketmq_broker.storage.adoption.adopt import is_written_by_rocketmq
from rocketmq_broker.storage.disk.config_files import CONFIG_DIRECTORY
from rocketmq_broker.storage.disk.files import File, Files, join, read_file, write_file
from rocketmq_broker.storage.errors import StorageError
from rocketmq_broker.storage.log.durable_mark import MARK_NAME, write_first_mark
from rocketmq_broker.storage.log.log_checksums import LOG_CHECKSUMS_NAME
from rocketmq_broker.storage.log.segment import LOG_DIRECTORY
from rocketmq_broker.storage.queues.consume_queue import QUEUE_DIRECTORY
from rocketmq_broker.storage.queues.derived import DERIVED_NAME, Derived, save_derived
from rocketmq_broker.storage.queues.lost_messages import save_holes
from rocketmq_broker.storage.recovery.recover import ABORT_NAME
from rocketmq_broker.storage.repair.damage_survey import Said, survey_damage
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
    progress: Said | None = None,
) -> RepairPlan:
    """What a repair would do; changes nothing. The caller holds the store's lock.

    With `rebuilds_queues` it does something also where only queues are damaged.

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
    plan = survey_damage(
        files, _next_folder(files), keeps_unproven=keeps_unproven, progress=progress
    )
    if plan.is_empty and rebuilds_queues:
        return replace(plan, rewritten=(QUEUE_DIRECTORY,))
    return plan


def carry_out(files: Files, plan: RepairPlan, progress: Said | None = None) -> None:
    """Do what the plan says; afterwards the broker starts. The caller holds the store's lock."""
    say: Callable[[str], None] = progress or (lambda _: None)
    if PLAN_NAME not in files.names(""):
        _set_aside(files, plan, say)
        write_file(files, PLAN_NAME, plan.encode())
    _blank_out(files, plan, say)
    files.make_directory(CONFIG_DIRECTORY)
    if plan.holes:
        save_holes(files, plan.holes)
    write_file(files, LOG_CHECKSUMS_NAME, b"".join(seal.encode() for seal in plan.seals))
    write_first_mark(files, plan.mark)
    # Whatever queues and index there are is not looked at any more: the log says it all.
    ends = {(topic, index): Bounds(end, end) for topic, index, end in plan.ends}
    log_start = plan.mark.log_start
    derived = Derived(log_start, plan.store_ms, bounds=ends, is_rebuilding=True)
    save_derived(files, derived)
    # What lies behind a mark that was found anew may be torn: the start is to cut it.
    files.open(ABORT_NAME, create=True).close()
    files.sync_directory("")
    text = json.dumps(plan.report(), ensure_ascii=False, indent=2)
    write_file(files, join(plan.folder, REPORT_NAME), text.encode())
    files.unlink(PLAN_NAME)
    files.sync_directory("")


def _next_folder(files: Files) -> str:
    """The first folder that no finished repair has used."""
    number = 1
    while REPORT_NAME in files.names(join(QUARANTINE_DIRECTORY, f"{number:04d}")):
        number += 1
    return join(QUARANTINE_DIRECTORY, f"{number:04d}")


def _set_aside(files: Files, plan: RepairPlan, say: Callable[[str], None]) -> None:
    files.make_directory(QUARANTINE_DIRECTORY)
    files.make_directory(plan.folder)
    files.sync_directory("")
    files.sync_directory(QUARANTINE_DIRECTORY)
    for stretch in plan.damaged_ranges:
        if not stretch.is_missing:
            say(f"copying {stretch.size:,} bytes of {stretch.file}")
            _copy_stretch(files, plan, stretch)
    # Small, and what they said may matter to whoever looks at the damage later.
    for name in (MARK_NAME, LOG_CHECKSUMS_NAME, DERIVED_NAME):
        data = read_file(files, name)
        if data is not None:
            write_file(files, join(plan.folder, name), data)
    files.sync_directory(plan.folder)


def copy_name(stretch: DamagedRange, segment_size: int) -> str:
    """The copy of a stretch: its file, where in it, and how long."""
    base = stretch.file.rpartition("/")[2]
    return f"commitlog-{base}-{stretch.position % segment_size}-{stretch.size}"


def _copy_stretch(files: Files, plan: RepairPlan, stretch: DamagedRange) -> None:
    source = files.open(stretch.file)
    size = plan.mark.segment_size
    copy = files.open(join(plan.folder, copy_name(stretch, size)), create=True)
    try:
        begin, done = stretch.position % size, 0
        copy.resize(0)
        while done < stretch.size:
            # Less where the file is too short.
            data = source.pread(min(_COPY_SIZE, stretch.size - done), begin + done)
            if not data:
                break
            copy.pwrite(data, done)
            done += len(data)
        copy.sync()
    finally:
        source.close()
        copy.close()


def _blank_out(files: Files, plan: RepairPlan, say: Callable[[str], None]) -> None:
    files.make_directory(LOG_DIRECTORY)
    size = plan.mark.segment_size
    for stretch in plan.damaged_ranges:
        say(f"writing over {stretch.size:,} bytes of {stretch.file}")
        file = files.open(stretch.file, create=True)
        try:
            if file.size() != size:
                file.resize(size)
            data = stretch.blank(size)
            file.pwrite(data, stretch.position % size)
            file.sync()
        finally:
            file.close()
    files.sync_directory(LOG_DIRECTORY)
