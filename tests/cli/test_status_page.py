"""The status page: samples, charts and metrics by value; pages over HTTP beside a real broker."""

from __future__ import annotations

import json
import re
import time
import tracemalloc
import urllib.request
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_broker.broker import Broker
from rocketmq_cli.status_page import metrics, pages
from rocketmq_cli.status_page.history import BrokerSample, History, Point, Sample
from rocketmq_cli.status_page.pages import line_chart, nice_top, short, thinned
from rocketmq_cli.status_page.web import HISTORY_LENGTH, StatusPage
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import CommittedOffset, QueueId, QueueStats

QUEUE = QueueId("orders", "broker-a", 0)
HOSTILE = '<script>alert("x")</script>&'
WAIT_S = 20.0
Produce = Callable[..., int]


def sample(time_ms: int, end: int = 10, committed: int = 4, topic: str = "orders") -> Sample:
    queue = QueueId(topic, "broker-a", 0)
    return Sample(
        time_ms,
        (BrokerSample("broker-a", "c", "127.0.0.1:1"),),
        {topic: {queue: QueueStats(2, end, 1_000)}},
        {"billing": {queue: CommittedOffset(end, committed, 500)}},
    )


def rates_now(history: History) -> tuple[float | None, float | None]:
    assert history.newest is not None
    time_ms = history.newest.time_ms
    rates = history.topic("orders").rate, history.group("billing").rate
    return rates[0].value_at(time_ms), rates[1].value_at(time_ms)


def test_rates_are_what_grew_between_two_samples() -> None:
    history = History(10)
    for time_ms, end, committed in ((0, 10, 4), (2_000, 30, 6), (4_000, 5, 6)):
        history.add(sample(time_ms, end, committed))
    assert history.topic("orders").rate.points() == [Point(2_000, 10.0), Point(4_000, 0.0)]
    assert history.group("billing").rate.points() == [Point(2_000, 1.0), Point(4_000, 0.0)]
    assert history.group("billing").lag.points() == [Point(0, 6), Point(2_000, 24), Point(4_000, 0)]
    assert history.topic().rate.points() == [Point(2_000, 10.0), Point(4_000, 0.0)]
    assert history.topic("no such topic").rate.points() == []
    assert rates_now(history) == (0.0, 0.0)
    assert history.topic("no such topic").rate.value_at(4_000) is None
    history.add(Sample(6_000, topics={"orders": {}}))
    # The broker did not tell: the value of before is not one of now.
    assert rates_now(history) == (None, None)


def test_the_oldest_samples_are_dropped() -> None:
    history = History(3)
    for time_ms in range(5):
        history.add(sample(time_ms))
    assert [point.time_ms for point in history.group("billing").lag.points()] == [2, 3, 4]


def cluster_at(time_ms: int, *ends: int | None) -> Sample:
    """A topic, and a group at its end, on as many brokers; None for one that does not answer."""
    seen = [
        BrokerSample(f"broker-{n}", "c", f"host:{n}", {}, "away" if end is None else None)
        for n, end in enumerate(ends)
    ]
    held = {QueueId("orders", f"broker-{n}", 0): end for n, end in enumerate(ends)}
    stats = {q: QueueStats(0, end, 0) for q, end in held.items() if end is not None}
    offsets = {q: CommittedOffset(end, end, 0) for q, end in held.items() if end is not None}
    return Sample(time_ms, tuple(seen), {"orders": stats}, {"billing": offsets})


def test_a_broker_that_comes_back_adds_what_it_took_in_the_whole_time() -> None:
    history = History(10)
    much = 10**9
    history.add(cluster_at(0, much, much))
    history.add(cluster_at(5_000, much + 50, None))
    history.add(cluster_at(10_000, much + 100, much + 20))
    rates = [Point(5_000, 10.0), Point(10_000, 12.0)]
    assert (
        history.topic().rate.points()
        == history.topic("orders").rate.points()
        == history.group("billing").rate.points()
        == rates
    )


def test_what_is_seen_for_the_first_time_is_no_throughput() -> None:
    history = History(10)
    history.add(cluster_at(0, 100))
    history.add(cluster_at(5_000, 100, 10**9))
    assert history.topic().rate.points() == [Point(5_000, 0.0)]


def test_a_broker_that_is_away_loses_its_own_counters_only() -> None:
    def counters(*ends: int | None) -> dict[str, str]:
        lines = metrics.render(cluster_at(0, *ends)).splitlines()
        return dict(line.rsplit(" ", 1) for line in lines if "_total{" in line)

    both, alone = counters(5, 7), counters(5, None)
    assert len(both) == 4
    assert alone == {line: value for line, value in both.items() if 'node_id="broker-0"' in line}


def test_pages_say_which_broker_is_away() -> None:
    history = History(2)
    for time_ms, ends in enumerate([(5, 7), (5, None), (5,), (5,), (5,)]):
        history.add(cluster_at(time_ms, *ends))
        every = [pages.overview(history, 5), pages.topics(history, 5), pages.groups(history, 5)]
        every += [pages.topic(history, "orders", 5) or "", pages.group(history, "billing", 5) or ""]
        text = {"no answer from broker broker-1" in Tags(page).text for page in every}
        # A broker that nobody lists any more is forgotten with the looks that saw it.
        assert text == {time_ms in (1, 2)}
    assert "does not list it any more" not in every[0]


def test_a_look_that_found_nothing_says_nothing_of_brokers() -> None:
    history = History(5)
    history.add(cluster_at(0, 5))
    history.add(Sample(1, problems=("no name server",)))
    assert history.newest is not None
    assert history.newest.brokers == ()
    assert Tags(pages.overview(history, 5)).text.count("no answer") == 0


def test_an_hour_of_a_large_cluster_fits_into_a_little_memory() -> None:
    names, queues = 4, 250

    def sample_of(number: int) -> Sample:
        stats, committed = {}, {}
        for name in map(str, range(names)):
            ids = [QueueId(name, "broker-a", index) for index in range(queues)]
            stats[name] = {q: QueueStats(0, 10**9 + number, number) for q in ids}
            committed[name] = {q: CommittedOffset(10**9 + number, number, 0) for q in ids}
        return Sample(number * 5_000, (), stats, committed)

    history = History(HISTORY_LENGTH)
    tracemalloc.start()
    try:
        for number in range(HISTORY_LENGTH // 10):
            history.add(sample_of(number))
        early, _ = tracemalloc.get_traced_memory()
        for number in range(HISTORY_LENGTH // 10, HISTORY_LENGTH // 4):
            history.add(sample_of(number))
        late, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Twelve numbers a look, all with their time; one whole sample has 2,000 objects and more.
    assert late - early < 100_000
    assert len(history.group("0").lag.points()) == HISTORY_LENGTH // 4


def test_what_is_gone_for_good_is_forgotten() -> None:
    history = History(3)
    history.add(sample(0, topic="gone"))
    for time_ms in range(1, 4):
        assert history.group("billing").lag.points()
        history.add(Sample(time_ms, topics={"orders": {}}))
    assert history.topic("gone").rate.points() == history.group("billing").lag.points() == []
    assert not history._topics.keys() & {"gone"}


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 1e9)), min_size=2, max_size=600),
    st.integers(3, 50),
)
def test_thinning_keeps_ends_order_and_the_peak(
    raw: list[tuple[int, float]], count_max: int
) -> None:
    points = sorted(
        {Point(time_ms, value).time_ms: Point(time_ms, value) for time_ms, value in raw}.values()
    )
    kept = thinned(points, count_max)
    assert len(kept) <= max(count_max, len(points) if len(points) <= count_max else 0)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert max(point.value for point in kept) == max(point.value for point in points)
    assert all(before.time_ms < after.time_ms for before, after in pairwise(kept))


@given(st.floats(0, 1e15))
def test_an_axis_ends_at_a_round_number_above_the_values(value: float) -> None:
    top = nice_top(value)
    assert top >= value
    assert f"{top:e}"[0] in "125"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.5, "0.5"), (950, "950"), (12_500, "12.5k"), (3e6, "3M")]
)
def test_numbers_on_a_chart_are_short(value: float, text: str) -> None:
    assert short(value) == text


def test_a_chart_is_well_formed_and_says_its_numbers() -> None:
    drawn = line_chart("lag & more", [Point(0, 0), Point(1_000, 7), Point(2_000, 3)])
    figure = ElementTree.fromstring(drawn)
    (svg,) = figure.iter("svg")
    assert svg.attrib["aria-label"] == "lag & more: now 3, at most 7"
    assert "next sample" in line_chart("lag", [Point(0, 1)])


def test_metrics_have_rocketmqs_names_and_escaped_labels() -> None:
    text = metrics.render(sample(0, topic='a"b\\c\nd'))
    node = 'cluster="c",node_type="broker",node_id="broker-a"'
    stored = 'topic="a\\"b\\\\c\\nd",is_system="false"'
    assert f"rocketmq_messages_in_total{{{node},{stored}}} 10" in text.splitlines()
    read = 'topic="orders",consumer_group="billing",is_retry="false",is_system="false"'
    lag = f"rocketmq_consumer_lag_messages{{{node},{read}}} 6"
    assert lag in metrics.render(sample(0)).splitlines()
    assert "rocketmq_exporter_up 0" in metrics.render(None)


def test_the_dashboard_asks_only_for_metrics_that_there_are() -> None:
    dashboard = (Path(__file__).parents[2] / "conf" / "grafana-dashboard.json").read_text()
    panels = json.loads(dashboard)["panels"]
    asked = set(re.findall(r"rocketmq_\w+", " ".join(p["targets"][0]["expr"] for p in panels)))
    # A topic is on several brokers, a group in several topics: what is drawn is added up.
    expressions = [panel["targets"][0]["expr"] for panel in panels]
    assert all(expression.startswith("sum") for expression in expressions)
    text = " ".join(expressions)
    labels = set(re.findall(r"(\w+)=", text))
    labels |= set(re.findall(r"\w+", " ".join(re.findall(r"by \(([\w, ]+)\)", text))))
    assert labels == {"topic", "consumer_group"}
    assert labels <= set(re.findall(r"(\w+)=", metrics.render(sample(0))))
    served = {
        line.split()[2] for line in metrics.render(sample(0)).splitlines() if "# TYPE" in line
    }
    assert asked == served - {"rocketmq_exporter_up"}


class Tags(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - its shape
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_is_never_loaded_again_without_a_pause() -> None:
    assert '<meta http-equiv="refresh" content="1">' in pages.page("t", "", 0.4)
    assert "refresh" not in pages.page("t", "", None)


def test_nothing_from_outside_becomes_markup() -> None:
    history = History(3)
    queue = QueueId(HOSTILE, HOSTILE, 0)
    hostile = Sample(
        0,
        (BrokerSample(HOSTILE, HOSTILE, HOSTILE, {"brokerVersionDesc": HOSTILE}, HOSTILE),),
        {HOSTILE: {queue: QueueStats(0, 1, 0)}},
        {HOSTILE: {queue: CommittedOffset(1, 0, 0)}},
        (HOSTILE,),
    )
    history.add(hostile)
    found = dict.fromkeys(("broker", "queue", "offset", "stored", "tags", "keys", "body"), HOSTILE)
    made = [
        pages.overview(history, 5),
        pages.topics(history, 5),
        pages.groups(history, 5),
        pages.topic(history, HOSTILE, 5),
        pages.group(history, HOSTILE, 5),
        pages.messages({"topic": HOSTILE, "key": HOSTILE}, [found], None),
        pages.messages({"topic": HOSTILE}, [], HOSTILE),
        pages.missing(HOSTILE),
    ]
    for page in made:
        assert page is not None
        seen = Tags(page)
        assert "script" not in seen.tags
        assert HOSTILE in seen.text


@pytest.fixture
def status(broker: Broker) -> Iterator[StatusPage]:
    settings = ConnectionSettings(name_servers=(broker.name_server,))
    with StatusPage(settings, host="127.0.0.1", port=0, interval_s=0.5) as page:
        yield page


def get(status: StatusPage, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(status.address + path, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.parametrize("where", ["name-server"], indirect=True)
def test_pages_show_a_topic_a_group_and_messages(
    status: StatusPage, topic: str, where: tuple[str, str], produce: Produce
) -> None:
    produce(b"hello <b>you</b>\n", topic, "-q", "--keys", "k", *where)
    with open_cluster(ConnectionSettings(name_servers=(where[1],))) as cluster:
        cluster.commit(f"reader-of-{topic}", dict.fromkeys(cluster.queues(topic), 0))
    give_up_at = time.monotonic() + WAIT_S
    while time.monotonic() < give_up_at:
        newest = status.observer.history.newest
        if newest is not None and newest.lag(f"reader-of-{topic}") == 1:
            break
        time.sleep(0.02)
    assert get(status, "health") == (200, "ok\n")
    assert topic in Tags(get(status, "topics")[1]).text
    assert f"reader-of-{topic}" in get(status, "groups")[1]
    assert get(status, f"groups/{quote(f'reader-of-{topic}')}")[0] == 200
    stored = f'rocketmq_messages_in_total{{.*node_id="broker-a",topic="{topic}".*}} 1\n'
    assert re.search(stored, get(status, "metrics")[1])
    shown = Tags(get(status, f"messages?topic={quote(topic)}")[1])
    assert "hello <b>you</b>" in shown.text
    assert "b" not in shown.tags
    assert "--accent" in get(status, "style.css")[1]


def test_what_is_not_there_is_said_so(status: StatusPage) -> None:
    for path in ("nothing", "topics/nothing", "groups/a/b"):
        assert get(status, path)[0] == 404
    code, page = get(status, "messages?topic=no-such-topic")
    assert code == 404
    assert "ROCKETMQ_TOPIC_NOT_FOUND" in page


def test_a_queue_that_a_topic_does_not_have_is_said_so(
    status: StatusPage, topic: str, where: tuple[str, str], produce: Produce
) -> None:
    assert produce(b"hello\n", topic, "-q", *where) == 0
    code, page = get(status, f"messages?topic={quote(topic)}&queue=99")
    assert code == 404
    assert f"topic {topic} has no queue 99" in Tags(page).text
    assert get(status, f"messages?topic={quote(topic)}&queue=0")[0] == 200


def test_a_page_elsewhere_cannot_read_it_through_a_browser(status: StatusPage) -> None:
    assert get(status, "topics", Host="evil.example")[0] == 421
    assert get(status, "topics", Host="localhost:1")[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "messages?topic=t&queue=x",
        f"messages?topic=t&queue={'1' * 5_000}",
        f"messages?topic=t&offset={'1' * 5_000}",
        "topics?" + "&".join(f"field{number}=1" for number in range(21)),
    ],
    ids=["text", "a queue of many digits", "an offset of many digits", "many fields"],
)
def test_a_malformed_request_is_refused_with_the_reason(status: StatusPage, path: str) -> None:
    code, text = get(status, path)
    assert code == 400
    assert "must be a number" in text or "this request is malformed" in text


def test_a_malformed_address_is_refused_with_the_reason(status: StatusPage) -> None:
    assert status.answer("http://[", 0).status == 400


def test_a_malformed_host_is_refused_with_the_reason(status: StatusPage) -> None:
    assert get(status, "health", Host="[") == (
        400,
        "this request is malformed: Invalid IPv6 URL\n",
    )


def test_a_page_that_cannot_be_made_is_an_answer_all_the_same(
    status: StatusPage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(status, "_settings", None)
    assert get(status, "messages?topic=t")[0] == 500
    assert "no answer to GET /messages?topic=t" in caplog.text


def test_heads_are_those_of_the_pages(status: StatusPage) -> None:
    for path in ("style.css", "nothing"):
        code, text = get(status, path)
        assert get(status, path, "HEAD") == (code, "")
        assert text
    until(lambda: get(status, "health", "HEAD")[0] == 200)


def test_it_listens_on_ipv6(broker: Broker) -> None:
    settings = ConnectionSettings(name_servers=(broker.name_server,))
    with StatusPage(settings, host="::1", port=0, interval_s=0.5) as page:
        assert page.address.startswith("http://[::1]:")
        assert get(page, "topics")[0] == 200
        assert get(page, "topics", Host="evil.example")[0] == 421


def until(is_so: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
