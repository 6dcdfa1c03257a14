"""`python -m bench.accounting.writing`: writes through killed drivers, then counts every row.

A query writes numbers into a topic, in either delivery. Its driver, its workers and all are killed
again and again at moments that chance picks within a batch; of transactional ones every second kill
comes when the batch is decided and being committed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from bench.accounting.query import Query
from bench.accounting.writer import TRANSACTIONAL, begun_path, writer_command
from bench.accounting.written import Count, Decisions, count_rows, rows_of
from rocketmq_cli.support.broker_process import BrokerProcess
from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import TopicConfig

_QUEUES = 4
_ROWS: Final = {"at-least-once": 20_000, TRANSACTIONAL: 2_000}
"""Rows in a batch: enough that a batch mostly writes."""
_WHOLE_S: Final = 10.0
"""A decided batch is whole so soon after the restart, Spark's own start included."""


@dataclass(slots=True)
class Restarts:
    """How long the query needed after its kills, in seconds."""

    first_batch_s: list[float] = field(default_factory=list)
    whole_s: list[float] = field(default_factory=list)
    """Since its process started, for each decided batch that a kill had cut short."""
    whole_since_query_s: list[float] = field(default_factory=list)
    """The same without Spark's own start."""

    def late(self, limit_s: float) -> list[float]:
        """What took longer, of the restarts that a decided batch waited for."""
        return [seconds for seconds in self.whole_s if seconds > limit_s]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./run accounting-writes", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--short", action="store_const", const=2, dest="kills", help="2 kills")
    parser.add_argument("--delivery", choices=_ROWS, help="only this one, not both")
    parser.add_argument("--plain", action="store_true", help="the sink's steps without Spark")
    parser.add_argument("--rows", type=int, help=f"rows in a batch, not {_ROWS}")
    parser.add_argument(
        "--whole-within",
        type=float,
        default=_WHOLE_S,
        metavar="SECONDS",
        help="what a decided batch may take from the restart on, with Spark's start (%(default)g)",
    )
    parser.add_argument("--seed", type=int, default=None, help="repeat a run's random choices")
    parser.add_argument("--name-server", default=None, help="a cluster, not a broker of its own")
    args = parser.parse_args(argv)
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)
    say(f"seed {seed}")
    is_clean = True
    for delivery in _ROWS if args.delivery is None else (args.delivery,):
        directory = Path(tempfile.mkdtemp(prefix="rocketmq-accounting-writes-"))
        try:
            with contextlib.ExitStack() as stack:
                where = args.name_server
                if where is None:
                    where = stack.enter_context(BrokerProcess(directory / "broker")).name_server
                cluster = stack.enter_context(
                    open_cluster(ConnectionSettings(name_servers=(where,)))
                )
                run = _Run(directory, where, cluster, delivery, args, random.Random(seed))
                is_clean &= run.whole()
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    print("accounting: no row is lost or late" if is_clean else "accounting: FAILED")
    return 0 if is_clean else 1


class _Run:
    """One delivery's kills, and what is in the topic in the end."""

    def __init__(
        self,
        directory: Path,
        where: str,
        cluster: Cluster,
        delivery: str,
        args: argparse.Namespace,
        chance: random.Random,
    ) -> None:
        self._cluster, self._delivery, self._chance = cluster, delivery, chance
        self._rows, self._kills = args.rows or _ROWS[delivery], args.kills
        self._whole_within_s = args.whole_within
        self._topic = f"accounting-writes-{chance.randrange(1 << 30)}"
        options = {"nameServer": where, "topic": self._topic, "delivery": delivery}
        self._decisions: Decisions | None = None
        if delivery == TRANSACTIONAL:
            options["decisionTopic"] = f"{self._topic}-decisions"
            self._decisions = Decisions(cluster, options["decisionTopic"])
        command = writer_command(directory, options, self._rows, is_plain=args.plain)
        self._writer = Query(directory, lambda: command)
        self._begun_path = begun_path(directory)
        self._restarts = Restarts()

    def whole(self) -> bool:
        """Kill, restart, finish and count; True if the rows are as promised."""
        self._cluster.create_topic(TopicConfig(self._topic, _QUEUES, _QUEUES))
        if self._decisions is not None:
            self._cluster.create_topic(TopicConfig(f"{self._topic}-decisions", 2, 2))
        writer = self._writer
        try:
            for kill in range(self._kills):
                self._restart()
                is_decided = self._decisions is not None and kill % 2 == 1
                batch_s = self._kill_within_a_batch(is_decided=is_decided)
                say(
                    f"{self._delivery}: kill {kill + 1}: {writer.finished()} batches finished, "
                    f"{writer.planned()} planned, a batch takes {batch_s:.1f} s"
                )
            planned = writer.planned()
            self._restart()
            writer.wait(finished=planned)
        finally:
            writer.kill()
        wanted = writer.finished() * self._rows
        count = count_rows(rows_of(self._cluster, self._topic), wanted)
        self._report(count, wanted)
        is_on_time = not self._restarts.late(self._whole_within_s)
        return count.is_clean(self._delivery) and is_on_time and not writer.failures

    def _restart(self) -> None:
        writer, before = self._writer, self._writer.finished()
        decisions = self._decisions
        cut = [] if decisions is None else decisions.cut()
        writer.start()
        if decisions is not None:
            for decision in cut:
                writer.wait_until(partial(decisions.is_whole, decision))
                now = time.time()
                self._restarts.whole_s.append(round(now - writer.started_at, 1))
                self._restarts.whole_since_query_s.append(
                    round(now - self._begun_path.stat().st_mtime, 1)
                )
        writer.wait(finished=before + 1)
        self._restarts.first_batch_s.append(round(time.time() - writer.started_at, 1))

    def _kill_within_a_batch(self, *, is_decided: bool) -> float:
        """How long the batch took that was measured before the one that is cut short."""
        writer = self._writer
        writer.wait(planned=writer.planned() + 1)
        begun = time.monotonic()
        decided_s = self._wait_for_decision() if is_decided else 0.0
        writer.wait(finished=writer.planned())
        batch_s = min(time.monotonic() - begun, 60.0)
        writer.wait(planned=writer.planned() + 1)
        if is_decided:
            self._wait_for_decision()
        time.sleep(self._chance.uniform(0, max(batch_s - decided_s, 0.01)))
        writer.kill()
        return batch_s

    def _wait_for_decision(self) -> float:
        """Wait until the batch under way is decided; how long that took."""
        decisions, begun = self._decisions, time.monotonic()
        assert decisions is not None
        before = decisions.count()
        self._writer.wait_until(lambda: decisions.count() > before)
        return time.monotonic() - begun

    def _report(self, count: Count, wanted: int) -> None:
        restarts = self._restarts
        late = restarts.late(self._whole_within_s)
        for name, numbers in (("lost", count.lost), ("repeated", count.repeated), ("late", late)):
            if numbers:
                say(f"{name}: {numbers[:10]}")
        figures = {
            "accounting": f"writes, {self._delivery}",
            "kills": self._kills,
            "failed runs": len(self._writer.failures),
            "rows": wanted,
            "lost": len(count.lost),
            "repeated": len(count.repeated),
            "repeated, and drop_replays leaves more than one": len(count.distinct),
            "first batch after a start, s": restarts.first_batch_s,
        }
        if self._decisions is not None:
            figures["decided batches whole after the restart, s"] = restarts.whole_s
            figures[f"later than {self._whole_within_s:g} s"] = len(late)
            figures["the same without Spark's start, s"] = restarts.whole_since_query_s
        print(json.dumps(figures))
        limit_s = self._whole_within_s
        print(summary(self._delivery, self._kills, wanted, count, restarts, limit_s))


def summary(
    delivery: str,
    kills: int,
    wanted: int,
    count: Count,
    restarts: Restarts,
    limit_s: float = _WHOLE_S,
) -> str:
    """A run in a line."""
    words = [f"{kills} kills", f"{len(count.lost)} of {wanted:,} rows lost"]
    words.append(f"{len(count.repeated):,} repeated")
    if delivery == TRANSACTIONAL and restarts.whole_s:
        words.append(
            f"{len(restarts.whole_s)} decided batches were cut short, each whole within "
            f"{max(restarts.whole_s)} s of the restart and "
            f"{max(restarts.whole_since_query_s)} s of the query's own start "
            f"({len(restarts.late(limit_s))} later than {limit_s:g} s)"
        )
    elif delivery == TRANSACTIONAL:
        words.append("no decided batch was cut short")
    else:
        words.append(f"{len(count.distinct)} of them beyond what drop_replays tells")
    return f"accounting: {delivery}: {', '.join(words)}"


def say(text: str) -> None:
    print(f"accounting: {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
