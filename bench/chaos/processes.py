"""The processes of a query, and of its broker: found, killed, paused."""

from __future__ import annotations

import contextlib
import random
import time
from typing import Final

import psutil

from bench.accounting.query import Query
from rocketmq_cli.support.broker_process import BrokerProcess

_DAEMON: Final = ["pyspark.daemon", "pyspark.worker"]
_RUNNER: Final = ["pyspark.sql.streaming.python_streaming_source_runner"]
_APPEARS_WITHIN_S: Final = 20.0
_ENDS_WITHIN_S: Final = 30.0
_POLL_S: Final = 0.01


class Processes:
    """The parts of one query that can be disturbed."""

    def __init__(self, query: Query, broker: BrokerProcess, chance: random.Random) -> None:
        self._query, self._broker, self._chance = query, broker, chance
        self.orphans = 0
        """Processes that outlived their killed driver."""

    def kill(self, part: str, down_s: float) -> None:
        """Kill a part at once. A broker stays away for `down_s` and comes back as it was."""
        if part == "broker":
            self._broker.kill()
            time.sleep(down_s)
            self._broker.start()
            return
        process = self._find(part)
        if part == "driver":
            self._kill_driver(process)
            return
        process.kill()
        if part == "runner":
            # Spark starts no other: the query ends with an error.
            self._query.expect_end()

    def pause(self, part: str, seconds: float) -> None:
        """Stop a part for a while, as a machine does that swaps or is moved."""
        process = self._find(part)
        process.suspend()
        time.sleep(seconds)
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()

    def _kill_driver(self, driver: psutil.Process) -> None:
        others = [process for process in self._query.processes() if process != driver]
        driver.kill()
        self._query.expect_end()
        _, left = psutil.wait_procs(others, timeout=_ENDS_WITHIN_S)
        self.orphans += len(left)
        for process in left:
            process.kill()

    def _find(self, part: str) -> psutil.Process:
        """A process of this part, waited for while Spark starts it."""
        if part == "broker":
            return psutil.Process(self._broker.pid)
        give_up_at = time.monotonic() + _APPEARS_WITHIN_S
        while time.monotonic() < give_up_at:
            self._query.wait_until(lambda: self._query.pid is not None)
            found = [one for one in self._query.processes() if self._part_of(one) == part]
            if found:
                return self._chance.choice(found)
            time.sleep(_POLL_S)
        raise TimeoutError(f"the query has no {part}")

    def _part_of(self, process: psutil.Process) -> str:
        try:
            command, parent = process.cmdline(), process.ppid()
        except psutil.Error:
            # It ended, or waits for the JVM to notice.
            return ""
        if process.pid == self._query.pid:
            return "driver"
        if command[-1:] == _RUNNER:
            return "runner"
        if command[-2:] != _DAEMON:
            return ""
        # The workers of a killed daemon serve on without a parent.
        return "daemon" if parent == self._query.pid else "worker"
