"""What a read writes into the log on demand; `option_table` has the other options."""

from __future__ import annotations

from typing import Final

from pyspark_rocketmq.options.definition import READ, OptionDefinition
from pyspark_rocketmq.options.kinds import Flag

LOG_DEFINITIONS: Final = (
    OptionDefinition(
        "logBatches",
        Flag(),
        False,
        READ,
        "log",
        "Write a line for every batch to the driver's standard error: how many messages of which "
        "topics it reads, before filters.",
    ),
)
