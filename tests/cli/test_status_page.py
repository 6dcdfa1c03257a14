"""The status page by value: samples, charts, metrics and markup."""

from __future__ import annotations

import json
import re
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from rocketmq_cli.groups import Members
from rocketmq_cli.status_page import metrics, pages
from rocketmq_cli.status_page.browsing import Browsed, Cursor
from rocketmq_cli.status_page.history import BrokerSample, History, Sample
from rocketmq_cli.status_page.markup import page as page_of
from rocketmq_cli.status_page.markup import size_text, table
from rocketmq_cli.status_page.sampling import HISTORY_LENGTH
from rocketmq_cli.terminal.output import Cell
from rocketmq_client.line_chart import Point
from rocketmq_wire.model import CommittedOffset, QueueId, QueueStats
from support.page_tags import Tags

QUEUE = QueueId("orders", "broker-a", 0)
HOSTILE = '<script>alert("x")</script>&'


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


def test_lags_are_unknown_while_no_broker_answers() -> None:
    history = History(2)
    for ends, behind, unknown in (((5, None), 2, 0), ((None, None), 0, 2), ((), 0, 2)):
        sample = replace(cluster_at(0, *ends), groups={})
        history.add(sample)
        text = Tags(pages.overview(history, 5)).text
        assert text.count("No group is behind.") == behind
        assert text.count("Unknown while no broker answers.") == unknown


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


DEAD = QueueId("%DLQ%billing", "broker-a", 0)


def behind(*, lag: int, stored_ms: int | None, dead: int = 0) -> Sample:
    """Two groups behind a topic: audit as given, billing by one message for ten seconds."""
    queue = QueueId("orders", "broker-a", 0)
    unread = {"billing": {queue: 90_000}, "audit": {} if stored_ms is None else {queue: stored_ms}}
    return Sample(
        100_000,
        (BrokerSample("broker-a", "c", "127.0.0.1:1"),),
        {
            "orders": {queue: QueueStats(0, 50, 1_000)},
            DEAD.topic: {DEAD: QueueStats(1, 1 + dead, 1)},
        },
        {
            "audit": {queue: CommittedOffset(50, 50 - lag, 500)},
            "billing": {queue: CommittedOffset(50, 49, 500)},
        },
        unread_ms=unread,
    )


def test_the_overview_ranks_groups_by_messages_and_by_seconds() -> None:
    history = History(2)
    history.add(behind(lag=7, stored_ms=99_000))
    page = Tags(pages.overview(history, 5)).text
    first, _, second = page.partition("Most messages behind")[2].partition("Longest behind")
    assert first.index("audit") < first.index("billing")
    assert second.index("billing") < second.index("audit")
    history.add(behind(lag=0, stored_ms=None))
    page = Tags(pages.overview(history, 5)).text
    assert "audit" not in page
    assert "billing" in page


@pytest.mark.parametrize(
    ("lag", "stored_ms", "seconds"), [(0, None, 0.0), (7, 60_000, 40.0), (7, None, None)]
)
def test_seconds_behind_are_the_age_of_the_oldest_unread_message(
    lag: int, stored_ms: int | None, seconds: float | None
) -> None:
    found = behind(lag=lag, stored_ms=stored_ms)
    assert found.seconds_behind("audit") == found.seconds_behind("audit", "orders") == seconds
    assert found.seconds_behind("audit", "payments") == 0.0


def test_dead_letters_are_on_pages_and_in_metrics() -> None:
    history = History(2)
    history.add(behind(lag=0, stored_ms=None, dead=5))
    group = pages.group(history, "billing", 5)
    assert group is not None
    link = '<a href="/topics/%25DLQ%25billing">'
    for page in (pages.overview(history, 5), pages.topics(history, 5), group):
        assert link in page
    topic = Tags(pages.topic(history, DEAD.topic, 5) or "").text
    assert "Messages that group billing could not process" in topic
    text = metrics.render(history.newest)
    (line,) = re.findall(r"rocketmq_send_to_dlq_messages_total{(.*)} 6", text)
    assert 'consumer_group="billing"' in line
    history.add(behind(lag=0, stored_ms=None, dead=0))
    assert "Dead letters" not in Tags(pages.overview(history, 5)).text


def test_dead_letters_do_not_count_twice_in_the_throughput() -> None:
    history = History(3)
    history.add(behind(lag=0, stored_ms=None, dead=5))
    later = behind(lag=0, stored_ms=None, dead=25)
    history.add(replace(later, time_ms=101_000))
    assert history.topic(DEAD.topic).rate.points() == [Point(101_000, 20.0)]
    assert history.topic().rate.points() == [Point(101_000, 0.0)]


def test_the_age_of_the_next_unread_message_is_a_metric() -> None:
    text = metrics.render(behind(lag=7, stored_ms=60_000))
    assert re.search(r'lag_latency{.*consumer_group="audit".*} 40000', text)
    unknown = metrics.render(behind(lag=7, stored_ms=None))
    assert re.search(r'lag_latency{.*consumer_group="billing".*} 10000', unknown)
    assert not re.search(r'lag_latency{.*consumer_group="audit"', unknown)


def test_a_brokers_disk_and_retention_are_on_the_overview() -> None:
    runtime = {
        "brokerVersionDesc": "V5_3_3",
        "commitLogDiskRatio": "0.42",
        "commitLogMinOffset": "1000",
        "commitLogMaxOffset": "2501000",
        "earliestMessageTimeStamp": "1700000000000",
    }
    history = History(1)
    history.add(Sample(0, (BrokerSample("b", "c", "h:1", runtime, retention_hours="48"),)))
    text = Tags(pages.overview(history, 5)).text
    for fact in ("up5.3.3", "2.5 MB", "42%", "48 h", "2023-11-14 22:13:20.000Z"):
        assert fact in text
    wrong = {"commitLogMinOffset": "0", "commitLogMaxOffset": "9" * 5_000}
    unknown = BrokerSample("b", "c", "h:1", {**wrong, "earliestMessageTimeStamp": "-1"})
    assert unknown.log_bytes is unknown.disk_used is unknown.oldest_ms is None


@pytest.mark.parametrize(
    ("size", "text"), [(999, "999 B"), (12_500, "12.5 kB"), (3_000_000_000_000_000, "3,000.0 TB")]
)
def test_sizes_are_short(size: int, text: str) -> None:
    assert size_text(size) == text


def test_columns_of_numbers_are_aligned_although_one_is_unknown() -> None:
    page = table(("group", "lag"), [("billing", 7), ("audit", None)])
    assert page.count('class="number"') == 3
    assert 'class="number" data-title="lag">-</td>' in page


def test_a_heading_says_whether_it_is_of_a_topic_or_a_group() -> None:
    history = History(1)
    history.add(sample(0))
    assert "Topic orders" in Tags(pages.topic(history, "orders", 5) or "").text
    assert "Group billing" in Tags(pages.group(history, "billing", 5) or "").text


def test_messages_have_their_id_and_properties_and_lead_to_older_ones() -> None:
    names = ("broker", "queue", "offset", "stored", "tags", "keys")
    record: dict[str, Cell] = {
        **dict.fromkeys(names, "x"),
        "id": "7F01",
        "properties": {"n": "1"},
        "body": "b",
    }
    found = Browsed([record], Cursor(-5, "broker-a", 2, -9))
    page = pages.messages({"topic": "%DLQ%g", "queue": "2"}, found, None, ["orders"])
    assert "id7F01" in Tags(page).text
    assert "n1" in Tags(page).text
    assert 'href="/messages?topic=%25DLQ%25g&amp;queue=2&amp;older=5%2Fbroker-a%2F2%2F9"' in page
    assert '<option value="orders">' in page
    assert ">Newest<" not in page
    last = pages.messages({"topic": "orders", "older": "5/b/2/9"}, Browsed([record]), None, ())
    assert '<a href="/messages?topic=orders">Newest</a>' in last
    assert ">Older<" not in last


def test_a_group_without_members_says_when_a_query_is_one() -> None:
    history = History(1)
    history.add(sample(0))
    assert "only with joinGroup=true" in Tags(pages.group(history, "billing", 5) or "").text
    members = Members(
        {"client-1": ("10.0.0.1:5", "JAVA")}, "CONSUME_PASSIVELY", "CLUSTERING", {"orders": "*"}
    )
    history.add(replace(sample(1), members={"billing": members}))
    text = Tags(pages.group(history, "billing", 5) or "").text
    for fact in ("push, clustering; subscribed to orders (*)", "client-1", "10.0.0.1:5", "JAVA"):
        assert fact in text


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
    # A topic is on several brokers, a group in several topics: panels add up, or take the worst.
    expressions = [panel["targets"][0]["expr"] for panel in panels]
    assert all(expression.startswith(("sum", "max")) for expression in expressions)
    text = " ".join(expressions)
    labels = set(re.findall(r"(\w+)=", text))
    labels |= set(re.findall(r"\w+", " ".join(re.findall(r"by \(([\w, ]+)\)", text))))
    assert labels == {"topic", "consumer_group"}
    assert labels <= set(re.findall(r"(\w+)=", metrics.render(sample(0))))
    served = {
        line.split()[2] for line in metrics.render(sample(0)).splitlines() if "# TYPE" in line
    }
    assert asked == served - {"rocketmq_exporter_up"}


def test_a_page_is_never_loaded_again_without_a_pause() -> None:
    assert '<meta http-equiv="refresh" content="1">' in page_of("t", "", 0.4)
    assert "refresh" not in page_of("t", "", None)


def test_nothing_from_outside_becomes_markup() -> None:
    history = History(3)
    queue = QueueId(HOSTILE, HOSTILE, 0)
    hostile = Sample(
        0,
        (BrokerSample(HOSTILE, HOSTILE, HOSTILE, {"brokerVersionDesc": HOSTILE}, HOSTILE),),
        {HOSTILE: {queue: QueueStats(0, 1, 0)}},
        {HOSTILE: {queue: CommittedOffset(1, 0, 0)}},
        (HOSTILE,),
        members={HOSTILE: Members({HOSTILE: (HOSTILE, HOSTILE)}, HOSTILE, HOSTILE, {})},
    )
    history.add(hostile)
    names = ("broker", "queue", "offset", "stored", "tags", "keys", "id", "body")
    record: dict[str, Cell] = {**dict.fromkeys(names, HOSTILE), "properties": {HOSTILE: HOSTILE}}
    found = Browsed([record], Cursor(-1, HOSTILE, 0, -1))
    made = [
        pages.overview(history, 5),
        pages.topics(history, 5),
        pages.groups(history, 5),
        pages.topic(history, HOSTILE, 5),
        pages.group(history, HOSTILE, 5),
        pages.messages({"topic": HOSTILE, "key": HOSTILE}, found, None, [HOSTILE]),
        pages.messages({"topic": HOSTILE}, Browsed(()), HOSTILE, ()),
        pages.messages({}, Browsed(()), None, [HOSTILE]),
        pages.missing(HOSTILE),
    ]
    for page in made:
        assert page is not None
        seen = Tags(page)
        assert "script" not in seen.tags
        assert HOSTILE in seen.text
