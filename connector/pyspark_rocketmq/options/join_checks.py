"""What a stream that joins its group must be given, and must not: pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options.kinds import PerQueue

if TYPE_CHECKING:
    from pyspark_rocketmq.options.parse import ReadOptions

STRATEGIES: Final = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")
"""Those that need to know nothing but the members and the queues."""


def check_join(options: ReadOptions) -> None:
    """Raise OptionError for what does not go together with sharing queues."""
    if not options.join_group:
        if "allocateStrategy" in options.given:
            raise OptionError("allocateStrategy", "has no effect without joinGroup", "CONFLICT")
        return
    if options.group is None:
        raise OptionError("joinGroup", "needs the option 'group': which one", "MISSING")
    if options.endpoints is not None:
        raise OptionError("joinGroup", "needs 'nameServer': gRPC knows no such groups", "CONFLICT")
    if options.subscribe is None:
        raise OptionError("joinGroup", "needs 'subscribe': members share whole topics", "CONFLICT")
    if options.commit_offsets != "true":
        raise OptionError(
            "commitOffsets",
            f"= {options.commit_offsets} excludes joinGroup: by its progress a queue is handed on",
            "CONFLICT",
        )
    if (
        isinstance(options.starting_offsets, PerQueue)
        or options.starting_offsets_by_timestamp is not None
    ):
        raise OptionError(
            "startingOffsets",
            "cannot name queues with joinGroup: which ones a member has changes",
            "CONFLICT",
        )
    if options.starting_offsets == "group:error":
        raise OptionError(
            "startingOffsets",
            "= group:error excludes joinGroup: a member must begin somewhere; say "
            "group:earliest or group:latest",
            "CONFLICT",
        )
