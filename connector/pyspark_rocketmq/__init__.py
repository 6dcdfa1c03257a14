"""Apache RocketMQ as a Spark data source: this import makes `format("rocketmq")` known to Spark.

Spark looks for `DefaultSource` in every `pyspark_*` package, and one failing import hides them all.
So the package imports that class alone; every other name is loaded at its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pyspark_rocketmq.source import RocketMQDataSource as DefaultSource

if TYPE_CHECKING:
    from pyspark_rocketmq.consumer_group.listener import OffsetCommitListener
    from pyspark_rocketmq.errors import (
        BadBodyError,
        DataLossError,
        GroupInUseError,
        OptionError,
        ReplayError,
        SchemaError,
        SinkRowError,
        SinkSchemaError,
        UnfinishedTransactionError,
        UnsupportedError,
        WriteIdError,
    )
    from pyspark_rocketmq.jobs.resend import as_new_messages
    from pyspark_rocketmq.monitoring.lag import Lag, LagListener, measure_group_lag, measure_lag
    from pyspark_rocketmq.monitoring.progress_display import show_progress
    from pyspark_rocketmq.read.pinned_offsets import PinnedOffsets, pin_offsets
    from pyspark_rocketmq.sink.deduplicate import drop_replays
    from pyspark_rocketmq.sink.transactional.recovery import answer_checks, finish_transactions
    from rocketmq_wire.errors import RocketMQError

__all__ = [
    "BadBodyError",
    "DataLossError",
    "DefaultSource",
    "GroupInUseError",
    "Lag",
    "LagListener",
    "OffsetCommitListener",
    "OptionError",
    "PinnedOffsets",
    "ReplayError",
    "RocketMQError",
    "SchemaError",
    "SinkRowError",
    "SinkSchemaError",
    "UnfinishedTransactionError",
    "UnsupportedError",
    "WriteIdError",
    "answer_checks",
    "as_new_messages",
    "drop_replays",
    "finish_transactions",
    "measure_group_lag",
    "measure_lag",
    "pin_offsets",
    "show_progress",
]

_MODULES = {
    "Lag": "pyspark_rocketmq.monitoring.lag",
    "LagListener": "pyspark_rocketmq.monitoring.lag",
    "OffsetCommitListener": "pyspark_rocketmq.consumer_group.listener",
    "PinnedOffsets": "pyspark_rocketmq.read.pinned_offsets",
    "RocketMQError": "rocketmq_wire.errors",
    "answer_checks": "pyspark_rocketmq.sink.transactional.recovery",
    "as_new_messages": "pyspark_rocketmq.jobs.resend",
    "drop_replays": "pyspark_rocketmq.sink.deduplicate",
    "finish_transactions": "pyspark_rocketmq.sink.transactional.recovery",
    "measure_group_lag": "pyspark_rocketmq.monitoring.lag",
    "measure_lag": "pyspark_rocketmq.monitoring.lag",
    "pin_offsets": "pyspark_rocketmq.read.pinned_offsets",
    "show_progress": "pyspark_rocketmq.monitoring.progress_display",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES.get(name, "pyspark_rocketmq.errors")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return __all__
