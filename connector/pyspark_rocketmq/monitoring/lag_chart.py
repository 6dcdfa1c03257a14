"""The lag of a streaming query over time, as a chart in a notebook."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark_rocketmq.monitoring.lag import Lag, measure_lag
from rocketmq_client.line_chart import Point, line_chart

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

# An hour, measured four times a second.
_POINTS_MAX: Final = 14_400


class LagChart:
    """The lag of a streaming query over time; a notebook shows it as a line chart.

    `measure()` adds a point. With `options`, those of the read's connection (nameServer or
    endpoints), the lag is of now, and the chart shows seconds, too; without, the lag is as of the
    query's last batch.

    Args:
        query: The streaming query to measure.
        options: The options of its read; None: the lag as of its last batch, without seconds.
    """

    def __init__(self, query: StreamingQuery, options: Mapping[str, str] | None = None) -> None:
        self.messages: deque[Point] = deque(maxlen=_POINTS_MAX)
        """Time and lag in messages of each measurement, oldest first."""
        self.seconds: deque[Point] = deque(maxlen=_POINTS_MAX)
        """Time and lag in seconds, without measurements that could not tell."""
        self._query = query
        self._options = options

    def measure(self) -> Lag | None:
        """Measure the lag and add it to the chart; None before the query's first batch."""
        progress = self._query.lastProgress
        if progress is None:
            return None
        lag = measure_lag(progress, self._options)
        now_ms = time.time_ns() // 1_000_000
        self.messages.append(Point(now_ms, lag.messages))
        if self._options is not None and lag.seconds is not None:
            self.seconds.append(Point(now_ms, lag.seconds))
        return lag

    def _repr_html_(self) -> str:
        """Render the chart; notebooks call this."""
        charts = [line_chart("messages behind", list(self.messages))]
        if self.seconds:
            charts.append(line_chart("seconds behind", list(self.seconds)))
        return "".join(charts)
