"""The queries that are disturbed, and the count of what they did."""

from __future__ import annotations

import random
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.accounting.ledger import Numbers, Tally, account
from bench.accounting.query import Query
from bench.accounting.sender import Sender
from bench.accounting.sink_files import read_rows, read_unlisted_rows
from bench.accounting.submitted import ROOT, spark_submit
from bench.accounting.writer import TRANSACTIONAL, writer_command
from bench.accounting.written import count_rows, rows_of
from bench.chaos.site import GRPC, TCP, Site
from bench.load import NUMBER_SIZE, QUEUES, create_topic, load_topic
from rocketmq_client.cluster import open_cluster
from rocketmq_wire.errors import raise_first

BODY_SIZE: Final = 100
SPACING: Final = 10**9
"""A body's number is its queue's index times this, plus its number in the queue."""
_IDLE_S: Final = 35.0
"""Longer than popped messages stay invisible, and a broker needs to notice."""
_GROUP: Final = "chaos"
_ATTEMPTS: Final = 4
_IN_READS: Final = {"discoveryIntervalMs": "1s"}
_MODES: Final = {
    "read": {"pullTimeoutMs": "5s", **_IN_READS},
    "group": {"pullTimeoutMs": "5s", "joinGroup": "true", **_IN_READS},
    "pop": {"consumeMode": "pop", "invisibleTimeMs": "20s"},
}


@dataclass(frozen=True, slots=True)
class Outcome:
    is_clean: bool
    figures: dict[str, int]
    examples: Sequence[str] = ()


class Subject(ABC):
    """A query with what it works on. `query` runs between `prepare` and `finish`."""

    query: Query

    @abstractmethod
    def prepare(self) -> None:
        """Make what the query reads or writes."""

    @abstractmethod
    def finish(self) -> None:
        """Bring the query to a point where what it did can be counted, and end it."""

    @abstractmethod
    def close(self) -> None:
        """End everything."""

    @abstractmethod
    def count(self, *, is_control: bool) -> Outcome:
        """Hold what the query did against what it should have done.

        A control counts what a reader would see who does not recognise replays.
        """

    def begin_again(self) -> None:
        """Throw the query's work away, so that its next run starts as the first one did."""
        raise NotImplementedError


class Reading(Subject):
    """A query from a topic into parquet files, while messages arrive."""

    def __init__(
        self,
        site: Site,
        directory: Path,
        chance: random.Random,
        transports: Sequence[str],
        *,
        mode: str,
        messages: int,
        batch: int,
    ) -> None:
        self.query = Query(directory, self._command)
        self._site, self._directory, self._chance = site, directory, chance
        self._transports = cycle(transports)
        self._mode, self._messages, self._batch = mode, messages, batch
        self._topic = f"chaos-{mode}"
        self._output = directory / "output"
        self._is_last_run = False
        self._started_ms = 0
        self._sender = Sender(
            site.settings(TCP),
            self._topic,
            first=messages // QUEUES + 1,
            spacing=SPACING,
            # Every popped message is acknowledged by itself.
            pause_s=10.0 if mode == "pop" else 0.2,
        )

    def prepare(self) -> None:
        self._started_ms = int(time.time() * 1_000) - 60_000
        topic, site = self._topic, self._site
        load_topic(site.settings(GRPC), topic, self._messages, BODY_SIZE, spacing=SPACING)
        if self._mode == "pop":
            # Over gRPC a group without committed offsets begins at the newest message.
            with open_cluster(site.settings(TCP)) as cluster:
                raise_first(cluster.commit(_GROUP, dict.fromkeys(cluster.queues(topic), 0)))
        self._sender.start()

    def _command(self) -> list[str]:
        transport = next(self._transports)
        options = {**_MODES[self._mode], **self._site.options(transport)}
        batch = self._chance.randint(self._batch // 2, self._batch * 3 // 2)
        if self._mode == "read" and self._messages:
            options["startingTimestamp"] = str(self._started_ms)
        starting = "latest" if self._mode == "pop" else "earliest"
        flag = "--name-server" if transport == TCP else "--endpoints"
        script = ROOT / "spark_jobs" / "stream_to_parquet.py"
        trigger = "available-now" if self._is_last_run else "0 seconds"
        return [
            *spark_submit(script, self._directory / "spark", attempts=_ATTEMPTS),
            *(flag, options.pop(transport), "--topic", self._topic, "--group", _GROUP),
            *("--output", str(self._output), "--checkpoint", str(self.query.checkpoint)),
            *("--starting-offsets", starting, "--trigger", trigger),
            *("--max-offsets-per-trigger", str(batch if not self._is_last_run else batch * 10)),
            *("--max-partitions", str(self._chance.choice((1, 2, 8)))),
            *(word for pair in options.items() for word in ("--option", "=".join(pair))),
        ]

    def begin_again(self) -> None:
        self.query.kill()
        for folder in (self.query.checkpoint, self._output):
            shutil.rmtree(folder, ignore_errors=True)

    def finish(self) -> None:
        self._sender.end()
        if self._mode == "pop":
            # A run with AvailableNow leaves messages that are invisible.
            self.query.wait_until_idle(_IDLE_S)
            self.query.stop()
            return
        self.query.stop()
        self._is_last_run = True
        self.query.finish()

    def close(self) -> None:
        self.query.kill()
        self._sender.close()

    def count(self, *, is_control: bool) -> Outcome:
        rows = (read_unlisted_rows if is_control else read_rows)(self._output, ["queueId", "body"])
        read, wrong = numbers_of(rows, is_moved=self._mode == "pop")
        tally = account(self._sent(), _joined(self._sender.unknown), read)
        tally.wrong = wrong
        figures = {
            "rows": tally.read,
            "lost": tally.missing,
            "repeated": tally.duplicate,
            "reordered": tally.out_of_order,
            "misread": tally.wrong + tally.unexpected,
            "unknown sends": tally.unknown,
        }
        examples = tally.examples if not self._is_kept(tally) else ()
        return Outcome(self._is_kept(tally), figures, examples)

    def _is_kept(self, tally: Tally) -> bool:
        """Popped messages, and those of a group whose member died, come at least once."""
        return tally.is_clean if self._mode == "read" else tally.is_complete

    def _sent(self) -> dict[int, Numbers]:
        each, rest = divmod(self._messages, QUEUES)
        sent = _joined(self._sender.acknowledged)
        loaded = {queue: np.arange(each + (queue < rest)) for queue in range(QUEUES)}
        none: Numbers = np.empty(0, np.int64)
        return {
            queue: np.concatenate([numbers, sent.get(queue, none)])
            for queue, numbers in loaded.items()
        }


class Writing(Subject):
    """A query that writes numbers into a topic, in either delivery."""

    def __init__(
        self,
        site: Site,
        directory: Path,
        transports: Sequence[str],
        *,
        delivery: str,
        batch: int,
        is_plain: bool = False,
    ) -> None:
        self.query = Query(directory, self._command)
        self._site, self._directory = site, directory
        self._transports = cycle(transports)
        self._delivery, self._batch, self._is_plain = delivery, batch, is_plain
        self._topic = f"chaos-{delivery}"

    def prepare(self) -> None:
        create_topic(self._site.settings(TCP), self._topic)

    def _command(self) -> list[str]:
        options = {"topic": self._topic, "delivery": self._delivery}
        options |= self._site.options(next(self._transports))
        return writer_command(
            self._directory, options, self._batch, is_plain=self._is_plain, attempts=_ATTEMPTS
        )

    def finish(self) -> None:
        self.query.wait(finished=self.query.planned())
        self.query.kill()

    def close(self) -> None:
        self.query.kill()

    def count(self, *, is_control: bool) -> Outcome:
        wanted = self.query.finished() * self._batch
        with open_cluster(self._site.settings(TCP)) as cluster:
            count = count_rows(rows_of(cluster, self._topic), wanted)
        figures = {
            "rows": wanted,
            "lost": len(count.lost),
            "repeated": len(count.repeated),
            "not recognised": len(count.distinct),
        }
        examples = [
            f"{name}: {numbers[:5]}"
            for name, numbers in (("lost", count.lost), ("not recognised", count.distinct))
            if numbers
        ]
        promised = TRANSACTIONAL if is_control else self._delivery
        return Outcome(count.is_clean(promised), figures, examples)


def numbers_of(rows: pa.Table, *, is_moved: bool) -> tuple[dict[int, Numbers], int]:
    """The messages' numbers by queue, in the order of the rows, and how many rows are wrong.

    Messages that were popped and not acknowledged come again from another queue: they are moved.
    """
    pattern = rf"^[0-9]{{{NUMBER_SIZE}}}x{{{BODY_SIZE - NUMBER_SIZE}}}$"
    right = rows.filter(pc.match_substring_regex(rows["body"], pattern))
    digits = pc.cast(pc.binary_slice(right["body"], 0, NUMBER_SIZE), pa.string())
    numbers = pc.cast(digits, pa.int64()).to_numpy()
    queues = numbers // SPACING
    wrong = len(rows) - len(right)
    if not is_moved:
        wrong += int((queues != right["queueId"].to_numpy()).sum())
    return {int(queue): numbers[queues == queue] % SPACING for queue in np.unique(queues)}, wrong


def _joined(parts: dict[int, list[Numbers]]) -> dict[int, Numbers]:
    return {queue: np.concatenate(numbers) for queue, numbers in parts.items()}
