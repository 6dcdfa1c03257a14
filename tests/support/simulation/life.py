"""One run of the simulation: a broker, its disk, network and clients, and what happens to them.

The seed decides everything: a run with the same seed and number of operations repeats each step.
"""

from __future__ import annotations

import hashlib
import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice

from rocketmq_broker.config import config_from
from rocketmq_broker.storage.errors import DamagedStoreError, StorageError
from rocketmq_broker.storage.settings import FlushMode, StoreConfig
from support.engines import NOW_MS, STORE_HOST
from support.message_checker import Checker, Kind, Queue, Violation
from support.simulation.clients import (
    QUEUE_COUNT,
    WORKERS,
    Administrator,
    Client,
    Producer,
    Reader,
    Worker,
)
from support.simulation.disk import EndedProcessError, PowerCutError, SimulatedDisk
from support.simulation.loop import VirtualLoop
from support.simulation.network import Network
from support.simulation.process import Process, SimulatedWall

TOPICS = ("orders", "bills")
_PAUSES_MS = (0, 0, 1, 5, 20, 100, 300, 1_500)
_FILLERS = ((0, 0, 20, 200), (0, 0, 20, 200, 2_000), (2_000,))
_SYNCS_SECONDS = ((0.0005, 0.002, 0.01), (0.002, 0.05, 0.3))
"""How long syncs take on a fast and on a slow disk."""
_CUTS = (
    "",
    "",
    "sync commitlog/",
    "sync commitlog/",
    "sync durable.mark",
    "rename config/",
    "sync ",
)
"""The changes at which the power is cut; the empty one is any change."""
_SLOW_SYNC_SECONDS = 0.3
_HOUR_MS = 3_600_000
_NOTES_MAX = 40
_QUIET_MS = 9_000
"""Longer than any delay, and than a broken connection lives on."""
_CHECK_ROUNDS = 4
_PULLS_MAX = 300


class Life:
    """A broker's life, and the checks of its promises."""

    def __init__(
        self, seed: int, operations: int, scene: Sequence[tuple[str, float]] | None = None
    ) -> None:
        """Instead of operations by chance, `scene` repeats these, each with a pause in ms.

        Its disk is slow, so that much is not on it yet if the power is cut.
        """
        self.seed = seed
        self.chance = chance = random.Random(seed)
        self.loop = VirtualLoop(
            lambda: chance.choice((0.0, 0.001, 0.01, 0.1)), (PowerCutError, EndedProcessError)
        )
        self.wall = SimulatedWall(self.loop, NOW_MS)
        self.checker = Checker()
        self.network = Network(self.loop, chance)
        self.disk = SimulatedDisk()
        self.process: Process | None = None
        self.notes: deque[str] = deque(maxlen=_NOTES_MAX)
        """The last operations."""
        self.counts: Counter[str] = Counter()
        self._digest = hashlib.sha256()
        self._operations = operations
        self._scene = scene
        self._body_count = 0
        self._fillers = chance.choice(_FILLERS)
        self._config = config_from(
            {
                "auto_create_topic": False,
                "commit_needs_group": False,
                "progress_flush_ms": 200 if scene else chance.choice((200, 1_000)),
                "transaction_timeout_ms": 1_000,
                "transaction_check_interval_ms": 1_000,
                "transaction_check_max": 1_000,
            }
        )
        self._store_config = StoreConfig(
            FlushMode.SYNC,
            STORE_HOST,
            segment_size=chance.choice((4_096, 16_384)),
            queue_file_entries=16,
            index_slot_count=16,
            index_entry_count=64,
            checksum_range_size=chance.choice((700, 5_000)),
            verified_size=chance.choice((0, 1 << 20)),
            retention_ms=chance.choice((20_000, 72 * _HOUR_MS, 72 * _HOUR_MS)),
            early_size_max=1,
        )
        syncs = (_SLOW_SYNC_SECONDS,) if scene else chance.choice(_SYNCS_SECONDS)
        self._syncs_seconds = syncs
        self._producers = [Producer(self, f"p{index}") for index in range(2)]
        self._reader = Reader(self)
        self._workers = [Worker(self) for _ in range(2)]
        self._administrator = Administrator(self)
        self.is_ending = False
        """True if clients answer whatever they are asked."""
        self._starts_at = 0.0
        """The time at which the broker starts again."""

    # --- what clients use -----------------------------------------------------------------------

    def now_ms(self) -> int:
        """The time of the broker; of the wall clock while there is none."""
        return self.process.clock.now_ms() if self.process is not None else self.wall.now_ms()

    def body(self) -> bytes:
        """A body that no other message has."""
        self._body_count += 1
        number = self._body_count
        return b"%d:" % number + random.Random(number).randbytes(self.chance.choice(self._fillers))

    def key(self) -> str:
        return f"K{self._body_count}-{self.chance.getrandbits(32)}"

    # --- the run --------------------------------------------------------------------------------

    def run(self) -> str:
        """Run to the end; returns a digest of all that happened. Raises Violation."""
        logging.disable(logging.CRITICAL)
        try:
            self._start()
            for topic in TOPICS:
                self.checker.deleting.add(topic)
                self._administrator.create(topic)
            self._pass(500)
            for name, pause_ms in self._plan():
                self._note(name)
                _OPERATIONS[name][1](self)
                self._pass(pause_ms)
            self._finish()
        finally:
            logging.disable(logging.NOTSET)
            if self.process is not None:
                self.process.end()
                self.loop.run_for(0)
            self.loop.close()
        return self._digest.hexdigest()

    def _plan(self) -> Iterator[tuple[str, float]]:
        if self._scene is not None:
            yield from islice(cycle(self._scene), self._operations)
            return
        weights = [weight for weight, _ in _OPERATIONS.values()]
        for name in self.chance.choices(list(_OPERATIONS), weights, k=self._operations):
            yield name, self.chance.choice(_PAUSES_MS)

    def _note(self, name: str) -> None:
        self.counts[name] += 1
        self.notes.append(f"{self.loop.seconds:.4f} s: {name}")
        self._digest.update(f"{self.loop.seconds!r} {name} {self.chance.random()!r}".encode())

    def _pass(self, ms: float) -> None:
        """Let time pass; a broker that ended meanwhile starts again."""
        end = self.loop.seconds + ms / 1_000
        while True:
            if self.process is None and self.loop.seconds >= self._starts_at:
                self._start()
            stop = end if self.process is not None else min(end, self._starts_at)
            try:
                self.loop.run_for(max(0.0, stop - self.loop.seconds) * 1_000)
            except PowerCutError as cut:
                self._note(f"power cut at {cut}")
                self._died(is_power_cut=True)
            self.checker.may_expire(self.wall.now_ms() - self._store_config.retention_ms)
            if self.loop.errors:
                raise self.loop.errors[0]
            if self.loop.seconds >= end - 1e-9:
                return

    def _start(self) -> None:
        disk = self.disk
        try:
            self.process = Process(
                self.loop, self.wall, disk, self._config, self._store_config, self._sync_seconds
            )
        except PowerCutError as cut:
            self._note(f"power cut while it starts, at {cut}")
            self._died(is_power_cut=True)
        except StorageError as error:
            is_damage = isinstance(error, DamagedStoreError)
            if is_damage or (disk.fault is None and not disk.is_full):
                raise Violation(Kind.LOST, f"the broker does not start: {error}") from error
            self._note(f"does not start: {error}")
            self._died(is_power_cut=False)

    def _sync_seconds(self) -> tuple[float, float]:
        """How long a sync takes before and after the disk has the log."""
        seconds = self.chance.choice(self._syncs_seconds)
        return (seconds, 0.0) if self.chance.random() < 0.5 else (0.0, seconds)

    def _died(self, *, is_power_cut: bool) -> None:
        """The process has ended; it starts again later."""
        self._end_process()
        self.checker.crash()
        self.disk = (
            self.disk.after_power_cut(self.chance) if is_power_cut else self.disk.after_kill()
        )
        self._starts_at = self.loop.seconds + self.chance.choice((0, 0.05, 1.0))
        if self.chance.random() < 0.15:
            self._cut_power_soon()

    def _end_process(self) -> None:
        self.network.cut_all()
        if self.process is not None:
            self.process.end()
        self.process = None

    def _queue(self) -> Queue:
        topic = self.chance.choice(TOPICS)
        return self.checker.queue(topic, self.chance.randrange(QUEUE_COUNT))

    # --- operations -----------------------------------------------------------------------------

    def _send(self) -> None:
        self.chance.choice(self._producers).send(self._queue())

    def _send_later(self) -> None:
        self.chance.choice(self._producers).send_later(self._queue())

    def _send_batch(self) -> None:
        self.chance.choice(self._producers).send_batch(self._queue())

    def _send_half(self) -> None:
        self.chance.choice(self._producers).send_half(self._queue())

    def _pull(self) -> None:
        self._reader.pull(self._queue(), waits=self.chance.random() < 0.3)

    def _commit(self) -> None:
        self._reader.commit(self._queue())

    def _look_up(self) -> None:
        self._reader.look_up(self._queue())

    def _pop(self) -> None:
        self.chance.choice(self._workers).pop(
            self._queue(), poll_ms=self.chance.choice((0, 0, 500))
        )

    def _acknowledge(self) -> None:
        self.chance.choice(self._workers).acknowledge(self.chance.choice((1, 2, 8)))

    def _renew(self) -> None:
        self.chance.choice(self._workers).renew()

    def _forget(self) -> None:
        self.chance.choice(self._workers).forget()

    def _recreate(self) -> None:
        topic = self.chance.choice(TOPICS)
        if topic not in self.checker.deleting:
            self._administrator.recreate(topic)

    def _wait(self) -> None:
        self._pass(self.chance.choice((1_000, 3_000, 6_000)))

    def _cut_power(self) -> None:
        if self.process is not None:
            self._died(is_power_cut=True)

    def _cut_power_soon(self) -> None:
        if not self.disk.will_be_cut:
            what = self.chance.choice(_CUTS)
            self.disk.cut_power_at(what, self.chance.randint(1, 4 if what else 60))

    def _kill(self) -> None:
        if self.process is not None:
            self._died(is_power_cut=False)

    def _restart(self) -> None:
        """Stop in order, and start again."""
        if self.process is None:
            return
        try:
            self.process.stop()
        except PowerCutError as cut:
            self._note(f"power cut while it stops, at {cut}")
            self._died(is_power_cut=True)
        except StorageError as error:
            self._note(f"does not stop in order: {error}")
            self._died(is_power_cut=False)
        else:
            self._end_process()
            self.disk = self.disk.after_kill()
            self._starts_at = self.loop.seconds + self.chance.choice((0, 0.05, 1.0))

    def _fill_disk(self) -> None:
        self.disk.is_full = True

    def _relieve_disk(self) -> None:
        self.disk.is_full = False
        self._set_used(0.5)

    def _overfill_disk(self) -> None:
        """The disk is so full that retention deletes early."""
        self._set_used(0.95)

    def _set_used(self, ratio: float) -> None:
        self.checker.disk_is_too_full(ratio > self._store_config.disk_used_ratio_max)
        self.disk.used_ratio = ratio

    def _break_disk(self) -> None:
        self.disk.refuse(self.chance.randint(1, 30), is_half_done=self.chance.random() < 0.5)

    def _step_clock(self) -> None:
        self.wall.stepped_ms += self.chance.choice((-_HOUR_MS, -5_000, -500, 500, 5_000, 60_000))

    def _cut_connection(self) -> None:
        clients: list[Client] = [
            *self._producers,
            self._reader,
            *self._workers,
            self._administrator,
        ]
        self.chance.choice(clients).cut()

    def _stall_network(self) -> None:
        self.network.stalls_until = self.loop.seconds + self.chance.choice((0.1, 0.5, 1.5))

    def _repair(self) -> None:
        """An operator restarts a broker that takes no writes any more."""
        if self.process is not None and self.process.takes_no_writes:
            self._died(is_power_cut=False)

    # --- the end --------------------------------------------------------------------------------

    def _finish(self) -> None:
        """Remove every fault, let everything end, read all queues, and drain the group."""
        self._relieve_disk()
        self.disk.cut_power_at("", 0)
        self.disk.refuse(0)
        self._repair()
        self.chance.choice((self._cut_power, self._kill, self._restart, lambda: None))()
        self._pass(2_000)
        self.disk.cut_power_at("", 0)
        self._repair()
        self._pass(_QUIET_MS)
        queues = self._final_queues()
        self._checked("messages", lambda: self.checker.finish(self._read_all(queues)))
        self._drain(queues)

    def _final_queues(self) -> list[Queue]:
        self.is_ending = True
        for _ in range(_CHECK_ROUNDS):
            for producer in self._producers:
                # The broker asks only producers that are connected.
                producer.can_ask()
            self._pass(1_000)
        for _ in range(_CHECK_ROUNDS):
            if self.checker.deleting:
                self._pass(_QUIET_MS)
        if self.checker.deleting:
            raise Violation(Kind.LOST, f"{self.checker.deleting} cannot be created again")
        return [self.checker.queue(topic, i) for topic in TOPICS for i in range(QUEUE_COUNT)]

    def _checked(self, what: str, check: Callable[[], None]) -> None:
        self._note(f"check of {what}")
        check()

    def _read_all(self, queues: list[Queue]) -> dict[Queue, tuple[int, int]]:
        """Read every queue from its beginning to its end; returns their bounds."""
        self._reader.following.clear()
        self._reader.ended.clear()
        for _ in range(_PULLS_MAX):
            left = [queue for queue in queues if queue not in self._reader.ended]
            if not left:
                break
            for queue in left:
                self._reader.pull(queue)
            self._pass(40)
        else:
            raise Violation(Kind.LOST, f"{left[0]} cannot be read to its end")
        return dict(self._reader.ended)

    def _drain(self, queues: list[Queue]) -> None:
        """Pop and acknowledge until no message came for longer than any is invisible."""
        worker = self._workers[0]
        for each in self._workers:
            each.forget()
        self._pass(5_000)
        worker.drained = set()
        idle = 0
        while idle < 3:
            count = worker.count
            for queue in queues[::QUEUE_COUNT]:
                worker.pop(queue)
            self._pass(100)
            if worker.count > count:
                idle = 0
            else:
                idle += 1
                self._pass(2_000)
        bounds = self._read_all(queues)
        drained = worker.drained
        self._checked("pops", lambda: self.checker.finish_group(WORKERS, bounds, drained))


_OPERATIONS: dict[str, tuple[float, Callable[[Life], None]]] = {
    "send": (15, Life._send),
    "send later": (7, Life._send_later),
    "send a batch": (8, Life._send_batch),
    "begin a transaction": (6, Life._send_half),
    "pull": (14, Life._pull),
    "commit": (3, Life._commit),
    "look up": (2, Life._look_up),
    "pop": (12, Life._pop),
    "acknowledge": (8, Life._acknowledge),
    "renew": (3, Life._renew),
    "forget": (1, Life._forget),
    "wait": (3, Life._wait),
    "recreate a topic": (0.7, Life._recreate),
    "cut the power": (0.7, Life._cut_power),
    "cut the power soon": (1.2, Life._cut_power_soon),
    "kill": (0.7, Life._kill),
    "restart": (0.7, Life._restart),
    "fill the disk": (0.7, Life._fill_disk),
    "overfill the disk": (0.2, Life._overfill_disk),
    "relieve the disk": (3, Life._relieve_disk),
    "break the disk": (0.7, Life._break_disk),
    "step the clock": (1, Life._step_clock),
    "cut a connection": (2, Life._cut_connection),
    "stall the network": (1, Life._stall_network),
    "repair": (4, Life._repair),
}
