"""The read limits of Spark 4.2 and later, and what stands in for them on 4.0 and 4.1."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:

        class ReadLimit:
            """Spark before 4.2 has no limits."""

        class ReadAllAvailable(ReadLimit):
            """All there is."""

        class ReadMaxRows(ReadLimit):
            """At most so many rows."""

            def __init__(self, max_rows: int) -> None:
                self.max_rows = max_rows

        class SupportsTriggerAvailableNow:
            """Spark before 4.2 runs AvailableNow as one batch."""


__all__ = ["ReadAllAvailable", "ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"]
