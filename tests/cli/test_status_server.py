"""The status page over HTTP, beside a real broker."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from urllib.error import HTTPError
from urllib.parse import quote

import pytest

from rocketmq_broker.broker import Broker
from rocketmq_cli.status_page.web import StatusPage
from rocketmq_client.cluster import open_cluster
from rocketmq_client.settings import ConnectionSettings
from support.page_tags import Tags

WAIT_S = 20.0
Produce = Callable[..., int]


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


def test_what_is_not_there_is_said_so(status: StatusPage, topic: str) -> None:
    for path in ("nothing", "topics/nothing", "groups/a/b"):
        assert get(status, path)[0] == 404
    code, page = get(status, "messages?topic=no-such-topic")
    assert code == 404
    assert "ROCKETMQ_TOPIC_NOT_FOUND" in page
    assert f"Did you mean '{topic}'?" in Tags(get(status, f"messages?topic={topic}x")[1]).text


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
        "messages?topic=t&older=yesterday",
        f"messages?topic=t&older={2**63 - 1}/b/0/1",
        "topics?" + "&".join(f"field{number}=1" for number in range(21)),
    ],
    ids=[
        "text",
        "a queue of many digits",
        "an offset of many digits",
        "a wrong cursor",
        "a cursor above 64 bits",
        "many fields",
    ],
)
def test_a_malformed_request_is_refused_with_the_reason(status: StatusPage, path: str) -> None:
    code, text = get(status, path)
    assert code == 400
    assert any(
        reason in text for reason in ("must be a number", "older must be", "request is malformed")
    )


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


@pytest.mark.parametrize(("host", "shown"), [("::1", "[::1]"), ("127.0.0.2", "127.0.0.2")])
def test_it_listens_on_every_loopback_address(broker: Broker, host: str, shown: str) -> None:
    settings = ConnectionSettings(name_servers=(broker.name_server,))
    with StatusPage(settings, host=host, port=0, interval_s=0.5) as page:
        assert page.address.startswith(f"http://{shown}:")
        assert get(page, "topics")[0] == 200
        assert get(page, "topics", Host="evil.example")[0] == 421


def until(is_so: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
