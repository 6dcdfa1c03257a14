"""RocketMQ's own Java clients, unmodified, each version in its own process, on the bundled broker.

The same program runs on a real broker of that version at the same time: both must print the same.
"""

from __future__ import annotations

import re

import pytest

from interop.brokers import JAVA, on_both, our_broker, real_broker
from support.real_cluster import run_program
from support.real_cluster.java import compile_program

SCENARIOS = [
    *("send", "assign", "lite-tag", "lite-sql", "push", "push-tag", "push-sql", "push-wrong-sql"),
    # The last one sends more.
    *("broadcast", "orderly", "retry", "broadcast-store"),
]
TAG_B = [f"body-{number}" for number in range(1, 40, 3)]
EXPECTED = {
    "send": "4 queues, 40 messages, [async SEND_OK, batch SEND_OK, sync SEND_OK]",
    "assign": ("40 from the start, committed 22 6 6 6, 32 from 2, 0 from the end, an hour ago 0"),
    "push": "40 once each: true",
    "push-tag": f"13 once each: true [{', '.join(sorted(TAG_B))}]",
    "lite-sql": f"15 [{', '.join(sorted({*TAG_B, 'body-3', 'body-5'}))}]",
    "push-wrong-sql": "CODE: 23",
    "broadcast": "40 once each: true",
    "orderly": "40, out of order 0",
    "broadcast-store": "40 seen, stored [6, 6, 6, 22], 4 seen, stored [7, 7, 7, 23], ",
}


def said_of(printed: str) -> dict[str, str]:
    """What each scenario said."""
    pairs = (line.partition(": ") for line in printed.splitlines())
    said = {name: said for name, _, said in pairs if name in SCENARIOS}
    # Why an expression is wrong each broker says in its own words.
    code = re.search(r"CODE: \d+", said.get("push-wrong-sql", ""))
    return {**said, "push-wrong-sql": code.group() if code else "no refusal"}


SHORT = ("send", "assign", "lite-sql", "push-tag", "push-wrong-sql")
LONG = pytest.mark.long


@pytest.fixture(scope="module", params=["5.3.3", pytest.param("4.9.7", marks=LONG)])
def said(request, tmp_path_factory):
    """What the scenarios said on our broker and on a real one; with `--short` on ours alone."""
    version = request.param
    folder = tmp_path_factory.mktemp(f"clients-{version}")
    is_short = request.config.getoption("--short")
    # Before both ask for it at once.
    compile_program(version, JAVA / "Clients.java")

    def work(broker):
        broker.create_topic("clients")
        arguments = (broker.name_server, "clients", *(SHORT if is_short else SCENARIOS))
        return said_of(run_program(version, JAVA / "Clients.java", *arguments, seconds=500))

    with our_broker(folder / "ours") as ours:
        if is_short:
            return work(ours), EXPECTED
        with real_broker(version, folder / "real") as real:
            return on_both(ours, real, work)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "scenario", [pytest.param(name, marks=[] if name in SHORT else LONG) for name in SCENARIOS]
)
def test_clients_see_the_same_on_both_brokers(said, scenario):
    ours, real = said
    assert "FAILED" not in ours[scenario]
    assert ours[scenario] == real[scenario]
    assert ours[scenario] == EXPECTED.get(scenario, ours[scenario])
