"""One suite for every transport: a connection that is slow, reset, silent or refused."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_broker.config import config_from
from rocketmq_client.cluster import open_cluster
from rocketmq_client.download.contract import ReadLimits, ReadSpec
from rocketmq_client.errors import SendOutcomeUnknownError
from rocketmq_client.offsets.end_offset_watcher import EndOffsetWatcher
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import RocketMQError, TransportError
from rocketmq_wire.model import Bounds, Message, OffsetRange, QueueId, TopicConfig
from rocketmq_wire.records.record import decode_record
from rocketmq_wire.requests.messages import SendReply
from rocketmq_wire.requests.offsets import GetMaxOffset
from support.fault_proxy import FaultProxy, Link, seeded_cuts

COUNT = 3_000
ORDERS = [QueueId("orders", "broker-a", index) for index in range(2)]
# Small pulls and short deadlines, so that every fault meets many requests within a second or two.
LIMITS = ReadLimits(messages_max=600, count_per_pull=150, pull_timeout_ms=400, outage_ms=20_000)
SPEC = ReadSpec("readers", limits=LIMITS)
_names = (f"sends-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def broker():
    with Broker(config_from({"flush": "memory", "commit_needs_group": False})) as broker:
        settings = ConnectionSettings((broker.name_server,), request_timeout_ms=30_000)
        with open_cluster(settings) as cluster, Producer(cluster) as producer:
            cluster.create_topic(TopicConfig("orders", 2, 2))
            for queue in ORDERS:
                for start in range(0, COUNT, 500):
                    bodies = (b"%d" % n for n in range(start, start + 500))
                    messages = [Message("orders", body.ljust(300, b".")) for body in bodies]
                    producer.send_batch(queue, messages)
        yield broker


@pytest.fixture
def direct(broker):
    settings = ConnectionSettings((broker.name_server,), request_timeout_ms=30_000)
    with open_cluster(settings) as cluster:
        yield cluster


@pytest.fixture(params=["tcp", "grpc"])
def kind(request):
    return request.param


@pytest.fixture
def proxy(broker, kind):
    target = broker.name_server if kind == "tcp" else broker.endpoints
    with FaultProxy(target) as proxy:
        yield proxy


@pytest.fixture
def settings(broker, kind, proxy):
    options: dict[str, Any] = {
        "connect_timeout_ms": 300,
        "request_timeout_ms": 1_000,
        "retry_delay_ms": 10,
        "retry_delay_ms_max": 200,
        "outage_ms": 20_000,
    }
    if kind == "grpc":
        return ConnectionSettings(endpoints=proxy.address, **options)
    # The broker publishes its own address: the map leads to the proxy instead.
    mapped = {broker.name_server: proxy.address}
    return ConnectionSettings((proxy.address,), address_map=mapped, **options)


@pytest.fixture
def cluster(settings):
    with open_cluster(settings) as cluster:
        yield cluster


def offsets_in(chunk):
    position, offsets = 0, []
    while position < len(chunk.body):
        message, position = decode_record(chunk.body, position)
        if chunk.start <= message.queue_offset < chunk.end:
            offsets.append(message.queue_offset)
    return offsets


def download(cluster, on_chunk=lambda _: None, spec=SPEC):
    """Read both queues whole, checking that every offset comes once and in order."""
    found: dict[QueueId, list[int]] = {queue: [] for queue in ORDERS}
    ranges = [OffsetRange(queue, 0, COUNT) for queue in ORDERS]
    for number, chunk in enumerate(cluster.read_ranges(ranges, spec)):
        found[chunk.queue] += offsets_in(chunk)
        on_chunk(number)
    assert found == {queue: list(range(COUNT)) for queue in ORDERS}


def test_a_way_that_is_slow_all_the_time_is_no_outage(cluster, proxy):
    """The answer takes longer than one may take of which nothing comes, and than an outage."""
    proxy.bytes_per_second = 500_000
    limits = ReadLimits(pull_timeout_ms=700, outage_ms=2_000)
    chunks = cluster.read_ranges(
        [OffsetRange(ORDERS[0], 0, COUNT)], ReadSpec("readers", limits=limits)
    )
    assert [offset for chunk in chunks for offset in offsets_in(chunk)] == list(range(COUNT))


def later(seconds, action):
    timer = threading.Timer(seconds, action)
    timer.start()
    return timer


# --- downloads ------------------------------------------------------------------------------


def test_a_download_survives_resets(cluster, proxy):
    download(cluster, lambda number: proxy.reset() if number in (0, 3, 4, 9) else None)
    assert proxy.accepted > 3


@pytest.mark.parametrize("seed", range(3))
def test_a_download_survives_connections_that_break_anywhere(cluster, proxy, seed):
    proxy.cut_after = seeded_cuts(seed, 40_000, 300_000)
    download(cluster)
    assert proxy.accepted > 3


@pytest.mark.parametrize("link", [Link.BLACK_HOLE, Link.HALF_OPEN])
def test_a_download_resumes_when_a_silent_link_works_again(cluster, proxy, link):
    def on_chunk(number):
        if number == 1:
            proxy.link = link
            timers.append(later(1.0, heal))

    def heal():
        proxy.link = Link.OPEN

    timers: list[threading.Timer] = []
    download(cluster, on_chunk)
    assert timers
    timers[0].join()


def test_a_download_goes_on_when_a_refusing_broker_listens_again(cluster, proxy):
    def on_chunk(number):
        if number == 1:
            proxy.refuse()
            proxy.reset()
            timers.append(later(0.8, proxy.listen))

    timers: list[threading.Timer] = []
    download(cluster, on_chunk)
    timers[0].join()


def test_a_slow_way_only_takes_longer(cluster, proxy):
    proxy.delay_ms = 3
    download(cluster)


@pytest.mark.parametrize("link", [Link.BLACK_HOLE, Link.HALF_OPEN])
def test_a_download_over_a_permanently_silent_link_ends_with_an_error(cluster, proxy, link):
    limits = ReadLimits(messages_max=300, count_per_pull=50, pull_timeout_ms=200, outage_ms=800)
    generator = cluster.read_ranges(
        [OffsetRange(ORDERS[0], 0, COUNT)], ReadSpec("readers", limits=limits)
    )
    next(generator)
    proxy.link = link
    started = time.monotonic()
    with pytest.raises(TransportError):
        list(generator)
    assert time.monotonic() - started < 8


def test_a_download_from_nowhere_ends_with_an_error(cluster, proxy):
    proxy.refuse()
    spec = ReadSpec("readers", limits=ReadLimits(outage_ms=500))
    started = time.monotonic()
    with pytest.raises(TransportError):
        list(cluster.read_ranges([OffsetRange(ORDERS[0], 0, COUNT)], spec))
    assert time.monotonic() - started < 8


def test_an_abandoned_download_over_a_silent_link_closes_at_once(cluster, proxy):
    generator = cluster.read_ranges([OffsetRange(ORDERS[0], 0, COUNT)], SPEC)
    next(generator)
    proxy.link = Link.BLACK_HOLE
    started = time.monotonic()
    generator.close()
    cluster.close()
    assert time.monotonic() - started < 1


# --- calls ----------------------------------------------------------------------------------


@pytest.mark.parametrize("link", [Link.BLACK_HOLE, Link.HALF_OPEN])
def test_calls_over_a_silent_link_end_within_their_time(cluster, proxy, link):
    cluster.bounds(ORDERS)
    proxy.link = link
    started = time.monotonic()
    bounds = cluster.bounds(ORDERS)
    assert all(isinstance(answer, RocketMQError) for answer in bounds.values())
    assert time.monotonic() - started < 6
    proxy.link = Link.OPEN
    assert cluster.bounds(ORDERS) == dict.fromkeys(ORDERS, Bounds(0, COUNT))


def test_a_call_after_a_reset_is_repeated(cluster, proxy):
    for _ in range(5):
        assert cluster.bounds(ORDERS) == dict.fromkeys(ORDERS, Bounds(0, COUNT))
        proxy.reset()


def test_a_single_try_over_a_silent_link_takes_no_longer_than_asked(cluster, proxy):
    cluster.bounds(ORDERS)
    proxy.link = Link.BLACK_HOLE
    started = time.monotonic()
    with pytest.raises(TransportError):
        cluster.transport.call(GetMaxOffset(ORDERS[0]), broker="broker-a", timeout_ms=300)
    assert time.monotonic() - started < 3


# --- arrivals -------------------------------------------------------------------------------


def test_the_watch_stays_quick_while_the_broker_is_away_and_recovers(settings, direct, proxy):
    topic = next(_names)
    direct.create_topic(TopicConfig(topic, 1, 1))
    queue = QueueId(topic, "broker-a", 0)
    watch = EndOffsetWatcher(settings, [queue])
    try:
        assert not watch.wait({queue: 0}, 300)
        proxy.refuse()
        proxy.reset()
        started = time.monotonic()
        for _ in range(5):
            watch.ends()
            assert not watch.wait({queue: 0}, 20)
        assert time.monotonic() - started < 2
        with Producer(direct) as producer:
            producer.send_batch(queue, [Message(topic, b"x")])
        proxy.listen()
        assert watch.wait({queue: 0}, 20_000)
        assert watch.ends() == {queue: 1}
    finally:
        watch.close()


def test_closing_the_watch_is_prompt_while_the_way_is_silent(settings, proxy):
    watch = EndOffsetWatcher(settings, ORDERS)
    watch.wait({}, 200)
    proxy.link = Link.BLACK_HOLE
    watch.ends()
    started = time.monotonic()
    watch.close()
    assert time.monotonic() - started < 1


# --- sends ----------------------------------------------------------------------------------


def test_sends_over_a_breaking_way_are_stored_refused_or_reported_as_unknown(
    settings, direct, proxy
):
    topic = next(_names)
    direct.create_topic(TopicConfig(topic, 2, 2))
    queues = [QueueId(topic, "broker-a", index) for index in range(2)]
    stored = unknown = 0
    with Producer(settings, in_flight_max=4) as producer:
        requests = (
            producer.batch_request(queues[number % 2], [Message(topic, b"%d" % number)] * 10)
            for number in range(200)
        )
        for count, sent in enumerate(producer.send_many(requests)):
            if isinstance(sent.result, SendReply):
                stored += 10
            else:
                assert isinstance(sent.result, SendOutcomeUnknownError)
                unknown += sent.result.count
            if count % 40 == 20:
                proxy.reset()
    assert stored + unknown == 2_000
    assert stored > 1_000
    total = sum(bounds.end for bounds in direct.bounds(queues).values())
    assert stored <= total <= stored + unknown


def test_sends_to_a_broker_that_refuses_connections_wait_for_it(settings, direct, proxy):
    topic = next(_names)
    direct.create_topic(TopicConfig(topic, 1, 1))
    queue = QueueId(topic, "broker-a", 0)
    proxy.refuse()
    timer = later(0.7, proxy.listen)
    with Producer(settings) as producer:
        for number in range(3):
            producer.send(Message(topic, b"%d" % number), queue)
    timer.join()
    assert direct.bounds([queue]) == {queue: Bounds(0, 3)}
