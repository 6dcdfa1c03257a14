"""Which pulls of a download's many ranges are sent next: pure.

The foremost range comes first, for its chunks are what the reader waits for; what it leaves of the
limits goes to the next one. So every range gets its turn, at the latest when it is the foremost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from rocketmq_client.download.contract import ReadLimits
from rocketmq_client.download.fetch_window import AHEAD_BYTES_MAX, FetchWindow
from rocketmq_client.download.in_flight_pulls import Pull

# Under way at one broker, so on one connection, whatever the number of ranges: eight queues with
# sixteen each. Hundreds gain nothing over that, and a broker works off some sixteen at a time, for
# all its clients: the others' would wait behind them.
PULLS_PER_BROKER_MAX: Final = 128


def due_pulls(
    windows: Sequence[FetchWindow], limits: ReadLimits, now_ms: int
) -> Iterator[tuple[FetchWindow, Pull]]:
    """Pulls to send now, the foremost range's first; each is under way once it is given."""
    bytes_free = min(limits.bytes_max, 2 * AHEAD_BYTES_MAX)
    bytes_free -= sum(window.outstanding_bytes for window in windows)
    in_flight_max = max(PULLS_PER_BROKER_MAX, limits.pulls_in_flight)
    in_flight: defaultdict[str, int] = defaultdict(int)
    # A few ranges cannot have too many, and this is asked for every few answers.
    if len(windows) * limits.pulls_in_flight > in_flight_max:
        for window in windows:
            in_flight[window.wanted.queue.broker] += window.in_flight
    is_urgent = True
    for window in windows:
        broker = window.wanted.queue.broker
        while in_flight[broker] < in_flight_max and not window.is_covered:
            before = window.outstanding_bytes
            pull = window.next_pull(now_ms, bytes_free=bytes_free, is_urgent=is_urgent)
            if pull is None:
                break
            bytes_free -= window.outstanding_bytes - before
            in_flight[broker] += pull.times
            yield window, pull
        is_urgent = False
