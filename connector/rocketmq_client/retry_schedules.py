"""The retry schedule of every wait for a cluster, with its reason.

ARCHITECTURE.md has a table of what follows from these in the seconds of an outage.
"""

from __future__ import annotations

from typing import Final

from rocketmq_client.retry import RetryPolicy


def _every(delay_ms: int, limit_ms: int | None = None) -> RetryPolicy:
    return RetryPolicy(delay_ms, delay_ms, jitter=0, limit_ms=limit_ms)


REQUEST: Final = RetryPolicy(100, 3_000)
"""Requests of `Cluster`, pulls and messages sent back; users set it (`retry.delayMs` and
`retry.maxDelayMs`). A broker that restarts refuses connections for some seconds."""
REQUEST_TRIES_MAX: Final = 4
"""Tries of one call to `Cluster`, which together last for one request time-out at most."""
SEND: Final = RetryPolicy(50, 2_000)
"""Sends to one queue. A busy broker takes the next one some milliseconds later, and behind a
restarted one a queue must not idle for long: its rows are in memory."""
END_HALF_MESSAGE: Final = _every(100)
"""Ends of half messages, up to 512 at once: one pause serves all of them."""
PLAN: Final = _every(1_000)
"""Scans of the cluster before a read, within `connectTimeoutMs`: a user waits for the answer. Each
scan repeats its requests itself."""
TASK: Final = _every(1_000)
"""What a task asks before its download or its sends. As patient as they are: `retry.outageMs`."""
DECISION: Final = _every(500)
"""Look-ups and records of the transactional commit, each of which is several requests."""
DECISION_ROUTE: Final = _every(200, limit_ms=20_000)
"""Looks at the route of a new decision topic: brokers report it to their name server in their own
time, which is seconds."""
DECISION_SHOWN: Final = _every(20)
"""Looks at a record that was just stored. Brokers show it milliseconds later, busy ones seconds."""
CHECK_ANSWERS: Final = _every(500)
"""Looks at half messages while brokers may ask about them, which they do in their own time."""
OFFSET_COMMIT: Final = _every(1_000)
"""Commits of a group's offsets. Nothing waits for them, and the next one replaces the last."""
END_OFFSET: Final = RetryPolicy(200, 5_000)
"""Requests for a queue's end while a query waits for messages. No limit: it waits for ever."""
REPLICA: Final = RetryPolicy(30_000, 480_000, jitter=0)
"""Pulls from a replica that failed. Each try costs seconds, and its master serves meanwhile."""
PRODUCER_HEARTBEAT: Final = _every(1_000)
"""Heartbeats of a producer group before the first broker has taken one."""
SAMPLE_LIMIT_MS: Final = 1_000
"""The limit of a sample of message sizes: a plan waits for it, and can do without."""
