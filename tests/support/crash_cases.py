"""Small histories of a store, each with the density of its crash states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from rocketmq_broker.storage.settings import FlushMode, StoreConfig
from support.crash_files import Density
from support.storage_histories import TINY, History

ASYNC = replace(TINY, flush=FlushMode.ASYNC)
WIDE = replace(TINY, segment_size=4096)
USUAL = Density()
DENSE = Density(samples=70, tears=14)
FEW = Density(subset_bits=4, samples=6, tears=2)


def few_sends(history: History) -> None:
    """So small that every subset of its unsynced writes can be tried."""
    history.put("orders", 0, b"a")
    history.put("orders", 0, b"b", b"c")


def zeros_in_properties(history: History) -> None:
    """Behind the mark such records count as torn: only records before it are safe."""
    history.tags = "r\x00d"
    history.put("orders", 0, b"a")
    history.put("orders", 0, b"b")


def sends(history: History) -> None:
    """Over several queues and files of the log; some batches span two."""
    history.put("orders", 0, b"a")
    history.send("orders", 1, b"b", b"c")
    history.put("bills", 0, b"d")
    history.put("orders", 0, b"e" * 200, b"f" * 100)
    history.put("orders", 1, b"g" * 300)
    history.send("bills", 0, b"h")
    history.put("orders", 0, b"i" * 150, b"j" * 150)
    history.send("orders", 0, b"k")


def large_batches(history: History) -> None:
    """Writes of several sectors."""
    history.put("orders", 0, *[bytes([65 + count]) * 150 for count in range(6)])
    history.send("orders", 1, *[bytes([97 + count]) * 200 for count in range(8)])
    history.sync()
    history.send("bills", 0, *[bytes([48 + count]) * 120 for count in range(9)])


def checkpoints(history: History) -> None:
    """Derived files are trusted up to a checkpoint."""
    for count in range(3):
        history.put("orders", 0, b"a%d" % count)
        history.put("orders", 1, b"b%d" % count, b"c%d" % count)
        history.index()
        history.store.checkpoint()
    history.put("bills", 0, b"d")
    history.send("orders", 0, b"e")


def closing(history: History) -> None:
    """A clean end."""
    history.put("orders", 0, b"a")
    history.put("bills", 0, b"b")
    history.index()
    history.store.close()


def deletions(history: History) -> None:
    """A topic is deleted and created again, twice, with checkpoints between."""
    history.create("orders")
    history.create("bills")
    history.put("orders", 0, b"old-a", b"old-b")
    history.put("bills", 0, b"kept")
    history.store.checkpoint()
    history.send("orders", 0, b"old-c")
    history.delete("orders")
    history.create("orders")
    history.put("orders", 0, b"new-a")
    history.store.checkpoint()
    history.put("orders", 1, b"new-b")
    history.delete("orders")
    history.create("orders")
    history.put("orders", 0, b"third")


def retention(history: History) -> None:
    """Old files of the log, then of the queues, are deleted."""
    for count in range(5):
        history.put("orders", 0, b"%d" % count * 250)
        history.put("bills", 0, b"%d" % count * 100)
        if count == 2:
            history.put("orders", 1, b"expires")
            history.store.checkpoint()
    history.clean()
    history.put("orders", 0, b"after")
    history.clean()


def asynchronous(history: History) -> None:
    """Visible at once, safe after the next flush."""
    for count in range(6):
        history.send("orders", count % 2, b"%d" % count * 60)
        history.store.publish()
        if count % 2:
            history.sync()
    history.store.checkpoint()
    history.send("bills", 0, b"last")
    history.store.publish()


def send_more(history: History) -> None:
    """Records as large as those that the crash may have left behind."""
    history.put("orders", 0, b"z")
    history.send("orders", 1, b"y")
    history.store.checkpoint()


@dataclass(frozen=True)
class Case:
    """A history, and the least number of its distinct disk states that are tried."""

    run: Callable[[History], None]
    states_min: int
    density: Density = USUAL
    config: StoreConfig = TINY


def sends_together(history: History) -> None:
    """Several sends in one write; some of them synced before others of their queue."""
    history.put("orders", 0, b"a")
    history.send_together("orders", (0, [b"b"]), (1, [b"c", b"d"]), (0, [b"e"]))
    history.sync()
    history.send_together("orders", (1, [b"f"]), (0, [b"g"]))
    history.put("orders", 1, b"h")


CASES = {
    "few_sends": Case(few_sends, 390, Density(subset_bits=12, tears=150)),
    "zeros_in_properties": Case(zeros_in_properties, 170, Density(tears=15)),
    "sends": Case(sends, 2_950, DENSE),
    "sends_together": Case(sends_together, 800, Density(tears=60), WIDE),
    "large_batches": Case(large_batches, 2_000, Density(samples=40, tears=60), WIDE),
    "checkpoints": Case(checkpoints, 1_450, Density(subset_bits=9, samples=250, tears=50)),
    "closing": Case(closing, 650, Density(subset_bits=10, samples=150, tears=60)),
    "deletions": Case(deletions, 1_450, Density(subset_bits=9, samples=300, tears=50)),
    "retention": Case(retention, 2_650, DENSE),
    "asynchronous": Case(asynchronous, 2_000, Density(samples=100, tears=14), ASYNC),
}


def live(case: Case) -> History:
    """The case's history, run to its end."""
    history = History(config=case.config)
    case.run(history)
    return history
