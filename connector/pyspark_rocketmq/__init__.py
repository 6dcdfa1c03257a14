"""Apache RocketMQ as a Spark data source: importing this is all that `format("rocketmq")` needs.

Spark looks for `DefaultSource` in every `pyspark_*` package, and one failing import hides them all:
everything but that class is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pyspark_rocketmq.source import RocketMQDataSource as DefaultSource

if TYPE_CHECKING:
    from pyspark_rocketmq.lag import Lag, LagListener, measure_group_lag, measure_lag
    from pyspark_rocketmq.listener import GroupProgressListener
    from pyspark_rocketmq.pinning import PinnedOffsets, pin_offsets
    from pyspark_rocketmq.progress_display import show_progress
    from pyspark_rocketmq.resending import as_sent_anew
    from pyspark_rocketmq.sink_replays import drop_replays
    from pyspark_rocketmq.transactions import answer_checks, finish_transactions

_LAZY = {
    "as_sent_anew": "pyspark_rocketmq.resending",
    "drop_replays": "pyspark_rocketmq.sink_replays",
    "GroupProgressListener": "pyspark_rocketmq.listener",
    "Lag": "pyspark_rocketmq.lag",
    "LagListener": "pyspark_rocketmq.lag",
    "PinnedOffsets": "pyspark_rocketmq.pinning",
    "measure_group_lag": "pyspark_rocketmq.lag",
    "measure_lag": "pyspark_rocketmq.lag",
    "pin_offsets": "pyspark_rocketmq.pinning",
    "show_progress": "pyspark_rocketmq.progress_display",
    "answer_checks": "pyspark_rocketmq.transactions",
    "finish_transactions": "pyspark_rocketmq.transactions",
}

__all__ = [
    "DefaultSource",
    "GroupProgressListener",
    "Lag",
    "LagListener",
    "PinnedOffsets",
    "answer_checks",
    "as_sent_anew",
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
