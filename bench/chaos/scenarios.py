"""What is disturbed, how often and how: the table of all scenarios, and the run of one."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from bench.accounting.writer import TRANSACTIONAL
from bench.chaos.call_proxy import Fault
from bench.chaos.processes import Processes
from bench.chaos.site import GRPC, TCP, Site
from bench.chaos.subjects import Outcome, Reading, Subject, Writing

AT_LEAST_ONCE: Final = "at-least-once"
_DOWN_S_MAX: Final = 1.0
_FAULT_MET_WITHIN_S: Final = 45.0
"""Members of a group send a heartbeat each 30 s."""
_SEARCH: Final = {TCP: "SEARCH_OFFSET_BY_TIMESTAMP", GRPC: "GetOffsets"}
# A start does not wait for a cluster that is silent, or no cluster.
_FAULTS_OF_A_START: Final = tuple(
    fault for fault in Fault if fault not in (Fault.BLACK_HOLE, Fault.GARBAGE)
)
_FAULTS_OF_A_START_COUNT: Final = 3
_GARBLED: Final = "RemoteProtocolError"
_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    about: str
    subject: str
    """A mode of `Reading`, or a delivery of `Writing`."""
    steps: dict[str, int] = field(default_factory=dict)
    """What is done to the query, and how often; each step waits for the batch after the last."""
    calls: tuple[str, ...] = ()
    """Requests, each of which meets every fault."""
    transports: tuple[str, ...] = (TCP, GRPC)
    """Those of the query's runs, in turn."""
    messages: int = 0
    batch: int = 4_000
    pause_s: tuple[float, float] = (5.0, 20.0)
    every_s: float | None = None
    """Steps come by the clock, whatever the query does."""
    is_plain: bool = False
    """The sink's steps without Spark."""


@dataclass(slots=True)
class Result:
    scenario: Scenario
    outcome: Outcome
    done: Counter[str]
    missed: list[str]
    """Faults that no call met."""
    failures: list[str]
    refused: int
    """Runs that ended because an answer was garbled, and said so."""
    calls: Counter[str]
    """What the query asked through the proxies."""
    orphans: int
    seconds: float

    @property
    def is_clean(self) -> bool:
        return self.outcome.is_clean and not (self.failures or self.orphans or self.missed)

    def figures(self) -> dict[str, object]:
        """All of it, for JSON."""
        return {
            "clean": self.is_clean,
            **self.outcome.figures,
            "failed runs": len(self.failures),
            "runs that refused a garbled answer": self.refused,
            "orphans": self.orphans,
            "faults not met": len(self.missed),
            "calls": dict(sorted(self.calls.items())),
            "done": dict(sorted(self.done.items())),
            "seconds": self.seconds,
        }

    def line(self) -> str:
        """The most of it, for people."""
        figures = [f"{count:,} {name}" for name, count in self.outcome.figures.items()]
        figures.append(f"{len(self.failures)} failed runs")
        return f"{sum(self.done.values()):>4} disturbances, {', '.join(figures)}"


class Run:
    """One scenario: its broker, its query, and what is done to it, all drawn from one seed."""

    def __init__(self, scenario: Scenario, site: Site, directory: Path, seed: int) -> None:
        self._scenario, self._site = scenario, site
        self._chance = random.Random(seed)
        self.subject = self._make_subject(directory)
        query = self.subject.query
        self._processes = Processes(query, site.broker, random.Random(seed))
        self._missed: list[str] = []
        self._done: Counter[str] = Counter()

    def _make_subject(self, directory: Path) -> Subject:
        scenario, site = self._scenario, self._site
        if scenario.subject in (AT_LEAST_ONCE, TRANSACTIONAL):
            return Writing(
                site,
                directory,
                scenario.transports,
                delivery=scenario.subject,
                batch=scenario.batch,
                is_plain=scenario.is_plain,
            )
        return Reading(
            site,
            directory,
            random.Random(self._chance.random()),
            scenario.transports,
            mode=scenario.subject,
            messages=scenario.messages,
            batch=scenario.batch,
        )

    def whole(self, *, is_control: bool = False) -> Result:
        """Disturb, finish and count."""
        began, subject = time.monotonic(), self.subject
        try:
            subject.prepare()
            steps = self._steps()
            for number, (name, step) in enumerate(steps, 1):
                self._await_turn()
                say(f"{self._scenario.name} {number}/{len(steps)}: {name}")
                step()
                self._done[name] += 1
            say(f"{self._scenario.name}: finishing")
            subject.finish()
        finally:
            subject.close()
        outcome = subject.count(is_control=is_control)
        seconds = time.monotonic() - began
        is_garbled = any(Fault.GARBAGE.value in name for name in self._done)
        failures = subject.query.failures
        unexpected = [said for said in failures if not (is_garbled and _GARBLED in said)]
        return Result(
            self._scenario,
            outcome,
            self._done,
            self._missed,
            unexpected,
            len(failures) - len(unexpected),
            sum((proxy.calls for proxy in self._site.proxies.values()), Counter()),
            self._processes.orphans,
            round(seconds, 1),
        )

    def _await_turn(self) -> None:
        query, every_s = self.subject.query, self._scenario.every_s
        if every_s is None or not query.finished():
            query.wait(finished=query.finished() + self._chance.randint(1, 2))
        time.sleep(self._chance.uniform(0, 0.5) if every_s is None else every_s)

    def _steps(self) -> list[tuple[str, Callable[[], None]]]:
        steps: list[tuple[str, Callable[[], None]]] = []
        for name, times in self._scenario.steps.items():
            steps += [(name, self._step(name))] * times
        for call in self._scenario.calls:
            steps += [
                (f"{fault.value} of {call}", partial(self._break_call, call, fault))
                for fault in Fault
            ]
        self._chance.shuffle(steps)
        return steps

    def _step(self, name: str) -> Callable[[], None]:
        verb, _, part = name.partition(" ")
        if verb == "kill":
            return lambda: self._processes.kill(part, self._chance.uniform(0, _DOWN_S_MAX))
        if verb == "pause":
            pause_s = self._scenario.pause_s
            return lambda: self._processes.pause(part, self._chance.uniform(*pause_s))
        if verb == "stop":
            return self.subject.query.stop
        assert verb == "search"
        return self._break_searches

    def _break_call(self, name: str, fault: Fault) -> None:
        """Break the next call of a name, and wait until it was there."""
        (transport,) = self._scenario.transports
        proxy = self._site.proxies[transport]
        before, give_up_at = proxy.met[name, fault], time.monotonic() + _FAULT_MET_WITHIN_S
        proxy.arm(name, fault)
        while proxy.met[name, fault] == before:
            if time.monotonic() > give_up_at:
                proxy.disarm()
                self._missed.append(f"{name}: {fault.value}")
                return
            time.sleep(_POLL_S)

    def _break_searches(self) -> None:
        """Begin again, and break the searches by time that only a query's first start makes."""
        (transport,) = self._scenario.transports
        for fault in self._chance.sample(_FAULTS_OF_A_START, _FAULTS_OF_A_START_COUNT):
            self._site.proxies[transport].arm(_SEARCH[transport], fault)
        self.subject.begin_again()


def say(text: str) -> None:
    print(f"chaos: {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
