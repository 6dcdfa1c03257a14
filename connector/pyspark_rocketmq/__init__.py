"""Apache RocketMQ as a Spark data source: importing this is all that `format("rocketmq")` needs.

Spark looks for `DefaultSource` in every `pyspark_*` package, and one failing import hides them all:
everything but that class is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pyspark_rocketmq.source import RocketMQDataSource as DefaultSource

if TYPE_CHECKING:
    from pyspark_rocketmq.consumer_group.listener import OffsetCommitListener
    from pyspark_rocketmq.jobs.resend import as_new_messages
    from pyspark_rocketmq.monitoring.lag import Lag, LagListener, measure_group_lag, measure_lag
    from pyspark_rocketmq.monitoring.progress_display import show_progress
    from pyspark_rocketmq.read.pinned_offsets import PinnedOffsets, pin_offsets
    from pyspark_rocketmq.sink.deduplicate import drop_replays
    from pyspark_rocketmq.sink.transactional.recovery import answer_checks, finish_transactions

_LAZY = {
    "as_new_messages": "pyspark_rocketmq.jobs.resend",
    "drop_replays": "pyspark_rocketmq.sink.deduplicate",
    "OffsetCommitListener": "pyspark_rocketmq.consumer_group.listener",
    "Lag": "pyspark_rocketmq.monitoring.lag",
    "LagListener": "pyspark_rocketmq.monitoring.lag",
    "PinnedOffsets": "pyspark_rocketmq.read.pinned_offsets",
    "measure_group_lag": "pyspark_rocketmq.monitoring.lag",
    "measure_lag": "pyspark_rocketmq.monitoring.lag",
    "pin_offsets": "pyspark_rocketmq.read.pinned_offsets",
    "show_progress": "pyspark_rocketmq.monitoring.progress_display",
    "answer_checks": "pyspark_rocketmq.sink.transactional.recovery",
    "finish_transactions": "pyspark_rocketmq.sink.transactional.recovery",
}

__all__ = [
    "DefaultSource",
    "Lag",
    "LagListener",
    "OffsetCommitListener",
    "PinnedOffsets",
    "answer_checks",
    "as_new_messages",
    "drop_replays",
    "finish_transactions",
    "measure_group_lag",
    "measure_lag",
    "pin_offsets",
    "show_progress",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
