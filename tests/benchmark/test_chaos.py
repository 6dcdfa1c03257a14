"""The proxy breaks the calls it is asked to break, and the count turns red without a protection."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench.chaos.call_proxy import CallProxy, Fault
from bench.chaos.framing import Http2Framing, PathTable, RemotingFraming
from bench.chaos.scenarios import Run
from bench.chaos.site import Site
from bench.chaos.subjects import SPACING, numbers_of
from bench.chaos.table import FULL, SHORT
from bench.load import numbered_bodies
from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import raise_first
from rocketmq_wire.model import TopicConfig

TOPIC = "broken"


@pytest.fixture(scope="module")
def broker():
    with Broker(config_from({"flush": "memory"})) as broker:
        settings = ConnectionSettings((broker.name_server,))
        with open_cluster(settings) as cluster:
            cluster.create_topic(TopicConfig(TOPIC, 1, 1))
        yield broker


@pytest.fixture(params=["tcp", "grpc"])
def proxied(request, broker):
    """A proxy, the name of the call that asks for offsets, and settings that lead through it."""
    times: dict[str, Any] = {"request_timeout_ms": 2_000, "retry_delay_ms": 10}
    if request.param == "grpc":
        with CallProxy(broker.endpoints, Http2Framing, random.Random(1)) as proxy:
            yield proxy, "GetOffsets", ConnectionSettings(endpoints=proxy.address, **times)
        return
    with CallProxy(broker.name_server, RemotingFraming, random.Random(1)) as proxy:
        mapped = {broker.name_server: proxy.address}
        settings = ConnectionSettings((proxy.address,), address_map=mapped, **times)
        yield proxy, "GET_MAX_OFFSET", settings


@pytest.mark.parametrize("fault", Fault)
def test_a_fault_strikes_the_armed_call_once_and_no_other(proxied, fault) -> None:
    proxy, name, settings = proxied
    with open_cluster(settings) as cluster:
        queues = cluster.queues(TOPIC)
        proxy.arm(name, fault)
        assert not proxy.met
        broken = cluster.bounds(queues)
        assert proxy.met == {(name, fault): 1}
        if fault in (Fault.BLACK_HOLE, Fault.GARBAGE):
            # A silent connection takes all the time that the request has.
            assert set(broken) == set(queues)
        else:
            assert raise_first(broken)[queues[0]].end == 0
        assert raise_first(cluster.bounds(queues))[queues[0]].end == 0
        assert proxy.met == {(name, fault): 1}


def test_paths_are_found_behind_evicted_headers() -> None:
    """Literals and indices as gRPC's C core writes them: RFC 7541, 6.1 and 6.2."""
    table = PathTable()
    path = b"/service/Method"
    literal = b"\x44" + bytes([len(path)]) + path
    assert table.path_in(b"\x83\x86" + literal) == path
    assert table.path_in(b"\x83\xbe") == path
    filler = b"\x40\x01a" + b"\x7f\xd1\x1e" + b"v" * 4_048
    assert table.path_in(filler) is None
    assert table.path_in(literal) == path
    assert table.path_in(b"\xbe") == path


def test_bodies_of_another_queue_or_content_are_wrong() -> None:
    bodies = numbered_bodies(3 * SPACING + 5, 2, 100).to_pylist()
    garbled = bodies[0][:50] + b"?" + bodies[0][51:]
    rows = pa.table({"queueId": [3, 3, 4], "body": [bodies[0], garbled, bodies[1]]})
    numbers, wrong = numbers_of(rows, is_moved=False)
    assert wrong == 2
    np.testing.assert_array_equal(numbers[3], [5, 6])
    assert numbers_of(rows, is_moved=True)[1] == 1


def test_every_scenario_has_a_name_of_its_own_and_something_to_do() -> None:
    for table in (FULL, SHORT):
        assert len({scenario.name for scenario in table}) == len(table)
        assert all(scenario.steps or scenario.calls for scenario in table)


@pytest.mark.timeout(180)
def test_a_write_through_kills_is_red_for_a_reader_who_does_not_recognise_replays(
    tmp_path: Path,
) -> None:
    (scenario,) = (one for one in SHORT if one.name == "writes")
    with Site(tmp_path, random.Random(7)) as site:
        run = Run(scenario, site, tmp_path, seed=7)
        result = run.whole()
        assert result.is_clean
        control = run.subject.count(is_control=True)
    assert not control.is_clean
    assert control.figures["repeated"] > 0
