"""Five members of one group: ours, Java's and a Spark query; killed and added, nothing is lost."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import QueueId
from support.consuming import Topic
from support.real_cluster import fetch_jars
from support.real_cluster.java import program_arguments

_TESTS = Path(__file__).parents[1]
_JAVA_MEMBER = _TESTS / "real" / "java" / "Member.java"
_OURS = _TESTS / "support" / "member_process.py"
_VERSION = "5.3.3"
_GROUP = "mixed"
_CONSUME_SECONDS = 300.0
"""A dead query's locks take a minute to lapse, and a new one half a minute to start."""
pytestmark = pytest.mark.timeout(700)


@dataclass
class Member:
    """A process in the group, and where it writes what it gets."""

    kind: str
    process: subprocess.Popen[bytes]
    output: Path
    is_killed: bool = False
    """While others went on: its progress was stored up to five seconds before."""

    def consumed(self) -> Counter[tuple[int, int]]:
        files = sorted(self.output.glob("batches/*.txt")) if self.output.is_dir() else [self.output]
        found: Counter[tuple[int, int]] = Counter()
        for file in files:
            for line in file.read_text(errors="replace").splitlines():
                words = line.split()
                # What was being written when it was killed is cut off, and was not consumed.
                if self.kind != "java" and len(words) == 2:
                    found[int(words[0]), int(words[1])] += 1
                elif words[:1] == ["GOT"] and len(words) == 6:
                    found[int(words[4]), int(words[5])] += 1
        return found


class Members:
    """Starts and kills them."""

    def __init__(self, name_server: str, topic: str, folder: Path) -> None:
        self._where, self._folder = (name_server, topic), folder
        self._numbers = itertools.count()
        self.alive: list[Member] = []
        self.all: list[Member] = []
        self.query_folder = folder / "query"
        self.query_folder.mkdir()

    def add(self, kind: str) -> None:
        number = next(self._numbers)
        output = self.query_folder if kind == "query" else self._folder / f"{kind}-{number}.txt"
        if kind == "java":
            home = self._folder / f"java-{number}"
            home.mkdir()
            command = ["java", *program_arguments(_VERSION, _JAVA_MEMBER, home)]
            command += [*self._where, _GROUP, "3600"]
        else:
            command = [sys.executable, str(_OURS), kind, *self._where, _GROUP, str(output)]
            if kind != "query":
                output.touch()
        log = (self._folder / f"{kind}-{number}.log").open("wb")
        with log, contextlib.ExitStack() as stack:
            out = stack.enter_context(output.open("wb")) if kind == "java" else log
            process = subprocess.Popen(
                command,
                stdout=out,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=self._folder,
                env={**os.environ, "PYTHONPATH": str(_TESTS), "PYSPARK_PYTHON": sys.executable},
            )
        member = Member(kind, process, output)
        self.alive.append(member)
        if kind != "query" or all(known.kind != "query" for known in self.all):
            self.all.append(member)

    def kill(self, member: Member) -> None:
        """With everything that it started, at once."""
        self.alive.remove(member)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(member.process.pid, signal.SIGKILL)
        member.process.wait(30)

    def replace_one(self, topic: Topic, chance: random.Random, *, is_query: bool) -> int:
        """Kill a member and add another of its kind; returns how many offsets it had not stored."""
        if is_query:
            leaving = next(m for m in self.alive if m.kind == "query")
        else:
            leaving = chance.choice([m for m in self.alive if m.kind != "query"])
        unstored = self.unstored_of(leaving, topic)
        self.kill(leaving)
        for known in self.all:
            known.is_killed = known.is_killed or known.output == leaving.output
        self.add(leaving.kind)
        return unstored

    def unstored_of(self, leaving: Member, topic: Topic) -> int:
        """What comes again when it is killed: all of its queues that is not stored."""
        latest: dict[int, tuple[int, Member]] = {}
        for member in self.all:
            for index, offset in member.consumed():
                if offset >= latest.get(index, (-1, member))[0]:
                    latest[index] = offset, member
        own = {index for index, (_, member) in latest.items() if member.output == leaving.output}
        stored, ends = topic.committed(_GROUP), topic.ends()
        return sum(end - (stored[q] or 0) for q, end in ends.items() if q.index in own)

    def owners(self, before: Mapping[QueueId, int]) -> dict[int, set[Path]]:
        """Who was given what is not before these offsets, by queue."""
        found: dict[int, set[Path]] = {}
        starts = {queue.index: offset for queue, offset in before.items()}
        for member in self.all:
            for index, offset in member.consumed():
                if offset >= starts[index]:
                    found.setdefault(index, set()).add(member.output)
        return found

    def repeats(self) -> tuple[int, int]:
        """Deliveries beyond the first: those of offsets that a killed member had, and the others.

        A query's folder goes over from a killed one to the next: what it repeats is counted there.
        """
        killed: set[tuple[int, int]] = set()
        for member in self.all:
            if member.is_killed:
                killed |= member.consumed().keys()
        repeats = [
            (delivery, count - 1) for delivery, count in self.consumed().items() if count > 1
        ]
        after_kills = sum(count for delivery, count in repeats if delivery in killed)
        return after_kills, sum(count for _, count in repeats) - after_kills

    def consumed(self) -> Counter[tuple[int, int]]:
        return sum((member.consumed() for member in self.all), Counter())


@pytest.fixture
def connection() -> Iterator[ConnectionSettings]:
    with Broker(config_from({"flush": "memory", "grpc": False})) as broker:
        yield ConnectionSettings(name_servers=(broker.name_server,))


def await_consumed(topic: Topic) -> None:
    """Wait until everything is consumed and committed."""
    end = time.monotonic() + _CONSUME_SECONDS
    while topic.committed(_GROUP) != topic.ends():
        assert time.monotonic() < end, f"{topic.committed(_GROUP)} of {topic.ends()}"
        time.sleep(0.5)


def rest(members: Members, topic: Topic) -> int:
    """Until queues stay where they are, by who is given what is sent; how much that was."""
    end, sent = time.monotonic() + _CONSUME_SECONDS, 0
    before: dict[int, set[Path]] = {}
    while True:
        bounds = topic.ends()
        sent += len(topic.send(48))
        await_consumed(topic)
        owners = members.owners(bounds)
        if owners == before and all(len(paths) == 1 for paths in owners.values()):
            return sent
        before = owners
        assert time.monotonic() < end, f"queues still move: {owners}"


@pytest.mark.parametrize(
    ("seconds", "kills_the_query"), [pytest.param(120, True, marks=pytest.mark.long), (20, False)]
)
def test_members_killed_and_added_lose_nothing(
    connection: ConnectionSettings,
    tmp_path: Path,
    seconds: int,
    kills_the_query: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fetch_jars(_VERSION)
    chance, topic = random.Random(seconds), Topic(connection, "mixed", 12)
    members = Members(connection.name_servers[0], topic.name, tmp_path)
    sent = 0
    try:
        for kind in ("push", "poll", "java", "push", "query"):
            members.add(kind)
        end = time.monotonic() + _CONSUME_SECONDS
        while not any(members.query_folder.glob("batches/*.txt")):
            assert time.monotonic() < end, (tmp_path / "query-4.log").read_text()[-2_000:]
            sent += len(topic.send(24))
            time.sleep(0.5)
        began, killed, unstored = time.monotonic(), 0, 0
        while time.monotonic() < began + seconds:
            sent += len(topic.send(240))
            time.sleep(0.5)
            if time.monotonic() > began + 6 * (killed + 1):
                killed += 1
                unstored += members.replace_one(
                    topic, chance, is_query=kills_the_query and killed in (5, 12)
                )
        await_consumed(topic)
        sent += rest(members, topic)
        resting = topic.ends()
        sent += len(topic.send(240))
        await_consumed(topic)
    finally:
        for member in tuple(members.alive):
            members.kill(member)
    found = members.consumed()
    after_kills, handed_over = members.repeats()
    ends_of = {queue.index: offset for queue, offset in resting.items()}
    wanted = {(q.index, n) for q, end_at in topic.ends().items() for n in range(end_at)}
    repeated = sum(found.values()) - len(found)
    by_kind = Counter({m.kind: 0 for m in members.all})
    for member in members.all:
        by_kind[member.kind] += sum(member.consumed().values())
    with capsys.disabled():
        print(
            f"\nsent {sent}, killed {killed}, by kind {dict(by_kind)}, repeated {repeated}: "
            f"{after_kills} of what killed members had, {handed_over} when queues moved, "
            f"{unstored} were not stored at kills"
        )
    assert len(wanted) == sent
    assert not wanted - set(found), f"lost: {sorted(wanted - set(found))[:10]}"
    assert all(by_kind.values()), "every kind of member had something"
    assert after_kills + handed_over == repeated
    # Nobody may read again what a living member has stored: only what was on its way.
    assert handed_over <= after_kills + sent / 20
    assert repeated <= unstored + sent / 10
    twice = [(q, n) for q, n in found if n >= ends_of[q] and found[q, n] > 1]
    assert not twice, f"two members at rest consumed the same: {twice[:10]}"
