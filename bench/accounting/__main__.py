"""`python -m bench.accounting`: reads into parquet through kills, then counts every message.

Every start of the reader uses the other transport than the one before.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.accounting.ledger import Numbers, Tally, account
from bench.accounting.reader import Reader
from bench.accounting.sender import Sender
from bench.accounting.sink_files import read_rows
from bench.load import NUMBER_SIZE, QUEUES, create_topic, load_topic
from rocketmq_cli.support.broker_process import BrokerProcess
from rocketmq_client.settings import ConnectionSettings

_BODY_SIZE = 100
_DRAIN_TIMEOUT_S = 600.0
_DOWN_S = 2.0
_STARTS_MAX = 5

Way = tuple[str, str]
"""The option of the reader that leads to the broker, and its value."""


@dataclass(frozen=True, slots=True)
class Size:
    messages: int
    steps: tuple[str, ...]
    """What happens while the loaded messages are read; every step but a broker kill ends a run."""
    sending_s: float


FULL = Size(
    2_000_000,
    (
        *("kill broker", "stop", "kill driver", "stop"),
        *("kill broker", "kill driver", "stop"),
    ),
    15.0,
)
SHORT = Size(50_000, ("kill broker", "kill driver", "stop"), 4.0)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./run accounting", description=__doc__)
    parser.add_argument("--short", action="store_true", help="50,000 messages and fewer kills")
    parser.add_argument("--seed", type=int, default=None, help="repeat a run's random choices")
    args = parser.parse_args(argv)
    size = SHORT if args.short else FULL
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(1 << 31)
    say(f"seed {seed}")
    chance = random.Random(seed)
    directory = Path(tempfile.mkdtemp(prefix="rocketmq-accounting-"))
    try:
        with BrokerProcess(directory / "broker") as broker:
            tallies = {
                "loaded first": _loaded_first(broker, directory / "first", size, chance),
                "while sending": _while_sending(broker, directory / "sending", size, chance),
            }
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for name, tally in tallies.items():
        for example in tally.examples:
            say(f"{name}: {example}")
        print(json.dumps({"accounting": name, "clean": tally.is_clean, "result": str(tally)}))
    is_clean = all(tally.is_clean for tally in tallies.values())
    print("accounting: every message once and in order" if is_clean else "accounting: FAILED")
    return 0 if is_clean else 1


def _loaded_first(
    broker: BrokerProcess, directory: Path, size: Size, chance: random.Random
) -> Tally:
    directory.mkdir()
    topic = "accounting-loaded"
    say(f"loading {size.messages:,} messages")
    load_topic(_settings(broker), topic, size.messages, _BODY_SIZE)
    reader = Reader(directory, topic)
    ways = _ways(broker)
    try:
        for step in size.steps:
            _read_some(reader, ways, size, chance)
            time.sleep(chance.uniform(0, 0.5))
            say(f"{step} after {len(reader.finished_batches())} batches")
            _take(step, broker, reader, down_s=chance.uniform(0, _DOWN_S))
        _drain(reader, ways, limit=size.messages // 10)
    finally:
        reader.kill()
    each, rest = divmod(size.messages, QUEUES)
    sent = {queue: np.arange(each + (queue < rest)) for queue in range(QUEUES)}
    return account(sent, {}, _numbers_read(reader))


def _ways(broker: BrokerProcess) -> Iterator[Way]:
    """The transports in turn: every start resumes from a checkpoint that the other one wrote."""
    return itertools.cycle(
        [("--name-server", broker.name_server), ("--endpoints", broker.endpoints)]
    )


def _read_some(reader: Reader, ways: Iterator[Way], size: Size, chance: random.Random) -> None:
    """Finish a batch or two of a run that continues."""
    for _ in range(_STARTS_MAX):
        if reader.has_ended:
            limit = chance.randint(size.messages // 100, size.messages // 25)
            tasks = chance.choice((1, 2, 8))
            way = next(ways)
            say(f"reader starts over {way[0]}, {limit:,} messages a batch, {tasks} tasks")
            reader.start(way, limit=limit, tasks=tasks)
        reader.wait_for_batches(chance.randint(1, 2))
        if not reader.has_ended:
            return
        say("Spark was too slow to start its Python process: once more")
    raise RuntimeError("Spark could not start its Python process")


def _while_sending(
    broker: BrokerProcess, directory: Path, size: Size, chance: random.Random
) -> Tally:
    directory.mkdir()
    topic = "accounting-sending"
    create_topic(_settings(broker), topic)
    reader = Reader(directory, topic)
    ways = _ways(broker)
    sender = Sender(ConnectionSettings(name_servers=(broker.name_server,)), topic)
    try:
        sender.start()
        say("reading while a producer sends")
        _read_some(reader, ways, size, chance)
        time.sleep(size.sending_s / 2 + chance.random())
        say(f"kill broker after {sender.sent:,} messages")
        _take("kill broker", broker, reader, down_s=_DOWN_S)
        time.sleep(size.sending_s / 2)
        sender.end()
        reader.stop()
        _drain(reader, ways, limit=100_000)
    finally:
        reader.kill()
    return account(_joined(sender.acknowledged), _joined(sender.unknown), _numbers_read(reader))


def _take(step: str, broker: BrokerProcess, reader: Reader, *, down_s: float) -> None:
    if step == "kill broker":
        broker.kill()
        time.sleep(down_s)
        broker.start()
    elif step == "kill driver":
        reader.kill()
    else:
        assert step == "stop"
        reader.stop()


def _drain(reader: Reader, ways: Iterator[Way], *, limit: int) -> None:
    """Read the rest in a last run that ends by itself."""
    if not reader.has_ended:
        reader.stop()
    for _ in range(_STARTS_MAX):
        way = next(ways)
        say(f"reading the rest over {way[0]}")
        reader.start(way, limit=limit, tasks=2, available_now=True)
        if reader.wait(timeout_s=_DRAIN_TIMEOUT_S):
            return
    raise RuntimeError("Spark could not start its Python process")


def _numbers_read(reader: Reader) -> dict[int, Numbers]:
    """The messages' numbers by queue, in the order in which they were written."""
    rows = read_rows(reader.output, ["queueId", "body"])
    numbers = pc.cast(
        pc.cast(pc.binary_slice(rows["body"], 0, NUMBER_SIZE), pa.string()), pa.int64()
    ).to_numpy()
    queues = rows["queueId"].to_numpy()
    return {int(queue): numbers[queues == queue] for queue in np.unique(queues)}


def _joined(parts: dict[int, list[Numbers]]) -> dict[int, Numbers]:
    return {queue: np.concatenate(numbers) for queue, numbers in parts.items()}


def _settings(broker: BrokerProcess) -> ConnectionSettings:
    return ConnectionSettings(endpoints=broker.endpoints)


def say(text: str) -> None:
    print(f"accounting: {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    # After SIGTERM it still stops what it started and leaves nothing behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main())
