"""A proxy that breaks chosen calls at a chosen point, over either protocol."""

from __future__ import annotations

import contextlib
import enum
import random
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from bench.chaos.framing import Framing, Unit
from pytest_rocketmq.faults import FaultProxy

_CHUNK: Final = 256 * 1024
_DELAY_S: Final = 1.5

Pair = tuple[socket.socket, socket.socket]


class Fault(enum.Enum):
    """What becomes of a call and its connection."""

    BEFORE_REQUEST = "reset before the request"
    IN_REQUEST = "reset amid the request"
    BEFORE_ANSWER = "reset between request and answer"
    IN_ANSWER = "reset amid the answer"
    DELAY = "a delayed answer"
    BLACK_HOLE = "a silent connection"
    GARBAGE = "a garbled answer"


_AT_REQUEST: Final = frozenset({Fault.BEFORE_REQUEST, Fault.IN_REQUEST, Fault.BLACK_HOLE})


class _CutError(Exception):
    """The connection ends here."""


@dataclass(slots=True)
class _Link:
    """One connection: the calls whose answers are waited for, and whether it fell silent."""

    waiting: dict[int, tuple[str, Fault]] = field(default_factory=dict)
    is_silent: bool = False


class CallProxy(FaultProxy):
    """Forwards to `target`; `arm` has it break the next call of a name."""

    def __init__(self, target: str, framing: type[Framing], chance: random.Random) -> None:
        super().__init__(target)
        self.calls: Counter[str] = Counter()
        """How often each call was asked."""
        self.met: Counter[tuple[str, Fault]] = Counter()
        """How often each fault struck."""
        self._framing = framing
        self._chance = chance
        self._armed: list[tuple[str, Fault]] = []
        self._links: dict[Pair, _Link] = {}
        self._state = threading.Lock()

    def arm(self, name: str, fault: Fault) -> None:
        """Break the next call of this name; several are broken one after the other."""
        with self._state:
            self._armed.append((name, fault))

    def disarm(self) -> None:
        """Forget the faults that no call has met."""
        with self._state:
            self._armed.clear()

    def _carry(self, pair: Pair, is_answer: bool) -> None:
        with self._state:
            link = self._links.setdefault(pair, _Link())
        source, sink = reversed(pair) if is_answer else pair
        framing = self._framing(is_answer=is_answer)
        with contextlib.suppress(OSError, _CutError):
            while data := source.recv(_CHUNK):
                for unit in framing.feed(data):
                    self._forward(unit, link, sink, is_answer=is_answer)
        self._break(pair)
        with self._state:
            self._links.pop(pair, None)

    def _forward(self, unit: Unit, link: _Link, sink: socket.socket, *, is_answer: bool) -> None:
        fault = self._take(unit, link, is_answer=is_answer)
        if link.is_silent:
            return
        if fault in (Fault.BEFORE_REQUEST, Fault.BEFORE_ANSWER):
            raise _CutError
        if fault in (Fault.IN_REQUEST, Fault.IN_ANSWER):
            sink.sendall(unit.data[: self._chance.randrange(1, len(unit.data))])
            raise _CutError
        data = unit.data
        if fault is Fault.DELAY:
            time.sleep(_DELAY_S)
        elif fault is Fault.GARBAGE:
            data = data[: unit.head_size] + self._chance.randbytes(len(data) - unit.head_size)
        sink.sendall(data)

    def _take(self, unit: Unit, link: _Link, *, is_answer: bool) -> Fault | None:
        """The fault that strikes this unit."""
        if unit.call is None:
            return None
        with self._state:
            if is_answer and not unit.name:
                name, fault = link.waiting.pop(unit.call, ("", None))
            elif not is_answer and unit.name:
                self.calls[unit.name] += 1
                name, fault = self._next(unit.name)
                if fault is not None and fault not in _AT_REQUEST:
                    link.waiting[unit.call] = name, fault
                    return None
            else:
                return None
            if fault is not None:
                self.met[name, fault] += 1
            link.is_silent |= fault is Fault.BLACK_HOLE
            return fault

    def _next(self, name: str) -> tuple[str, Fault | None]:
        for index, (wanted, fault) in enumerate(self._armed):
            if wanted == name:
                del self._armed[index]
                return name, fault
        return name, None
