"""Apache RocketMQ as a Spark data source: this import makes `format("rocketmq")` known to Spark.

Spark looks for `DefaultSource` in every `pyspark_*` package, and one failing import hides them all.
So the package imports little; every other name is loaded at its first use. The import also makes
Spark look for the source in this Python (`session.choose_python`).
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

try:
    from pyspark_rocketmq.session import choose_python, restore_session
    from pyspark_rocketmq.source import RocketMQDataSource as DefaultSource
except ModuleNotFoundError as error:
    if error.name != "pyspark":
        raise
    raise ModuleNotFoundError(
        "pyspark_rocketmq needs the package pyspark, which is not installed. Install it by "
        "pip install 'pyspark-rocketmq[spark]'.",
        name="pyspark",
    ) from None

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
    from pyspark_rocketmq.monitoring.lag_chart import LagChart
    from pyspark_rocketmq.monitoring.progress_display import show_progress
    from pyspark_rocketmq.read.pinned_offsets import PinnedOffsets, pin_offsets
    from pyspark_rocketmq.sink.deduplicate import drop_replays
    from pyspark_rocketmq.sink.transactional.recovery import answer_checks, finish_transactions
    from rocketmq_wire.errors import RocketMQError

    __version__: str

__all__ = [
    "BadBodyError",
    "DataLossError",
    "DefaultSource",
    "GroupInUseError",
    "Lag",
    "LagChart",
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
    "restore_session",
    "show_progress",
]

_MODULES = {
    "Lag": "pyspark_rocketmq.monitoring.lag",
    "LagChart": "pyspark_rocketmq.monitoring.lag_chart",
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


choose_python()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.metadata.version("pyspark-rocketmq")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES.get(name, "pyspark_rocketmq.errors")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
