"""The status pages in a real browser: narrow and wide, light and dark."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from browser.chromium import Page, chromium
from rocketmq_broker import Broker, BrokerConfig
from rocketmq_cli.status_page.history import History
from rocketmq_cli.status_page.web import StatusPage
from rocketmq_client import (
    Cluster,
    ConnectionSettings,
    ConsumerSettings,
    LitePullConsumer,
    Message,
    Producer,
    TopicConfig,
    open_cluster,
)
from rocketmq_wire.errors import raise_first

PICTURES = Path(__file__).parents[2] / "build" / "pages"
LONG_TOPIC = "t" * 127
LONG_GROUP = "a-group-" * 14
PATHS = {
    "overview": "",
    "topics": "topics",
    "topic": "topics/orders",
    "dead-letters": "topics/%25DLQ%25billing",
    "groups": "groups",
    "group": "groups/billing",
    "messages": "messages?topic=orders",
    "no-topic": "messages",
    "long-topic": f"topics/{LONG_TOPIC}",
    "long-group": f"groups/{LONG_GROUP}",
    "long-messages": f"messages?topic={LONG_TOPIC}",
}
DOCUMENTED = {
    "status-overview": ("", 1280, False),
    "status-group": ("groups/billing", 1280, True),
    "status-messages": ("messages?topic=%25DLQ%25billing", 1280, False),
    "status-phone": ("groups/billing", 390, False),
}
"""The pictures of docs/images: path, width, and whether they are dark."""
PICTURE_HEIGHT_MAX = 1_000
PICTURE_BYTES_MAX = 150_000
MENU = {"overview": "Overview", "topic": "Topics", "dead-letters": "Topics", "group": "Groups"}
IMPORTANT = {
    "overview": ("lag", "seconds behind", "disk used", "messages"),
    "topics": ("messages", "stored a second"),
    "topic": ("messages", "lag"),
    "dead-letters": ("messages",),
    "groups": ("lag", "seconds behind", "members", "dead letters"),
    "group": ("lag", "committed", "seconds behind"),
    "messages": ("offset",),
}
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
WIDER_THAN_WINDOW = "document.documentElement.scrollWidth > window.innerWidth"
# What is cut, or behind an edge of the window; the titles of narrow tables are hidden.
CUT = """[...document.querySelectorAll('h1, h2, p, a, td, th, dt, dd, input, button, text, svg')]
  .filter(e => getComputedStyle(e.closest('thead') || e).position !== 'absolute')
  .filter(e => {
    const box = e.getBoundingClientRect();
    return box.left < 0 || box.right > innerWidth + 0.5
      || (e.tagName === 'TD' && e.scrollWidth > e.clientWidth);
  }).map(e => e.tagName + ' ' + e.textContent)"""
# The titles of the columns of which a number is in the window.
NUMBERS_SEEN = """[...new Set([...document.querySelectorAll('td.number')]
  .filter(e => { const box = e.getBoundingClientRect(); return box.width > 0
    && box.left >= 0 && box.right <= innerWidth && e.textContent !== '-'; })
  .map(e => e.dataset.title))]"""
# How far apart the right edges of a column's texts are, title and numbers, over all columns.
UNALIGNED = """Math.max(0, ...[...document.querySelectorAll('table')].flatMap(table =>
  [...table.querySelectorAll('th')].map((_, at) => {
    const ends = [...table.rows].map(row => row.cells[at])
      .filter(cell => cell.classList.contains('number')).map(cell => {
        const range = document.createRange(); range.selectNodeContents(cell);
        return range.getBoundingClientRect().right; });
    return ends.length ? Math.max(...ends) - Math.min(...ends) : 0; })))"""
LEFT_OF = "document.querySelector('{}').getBoundingClientRect().left"
SAMPLES = 24


@pytest.fixture(scope="module")
def status() -> Iterator[StatusPage]:
    """Pages about topics, groups with lag, a member, dead letters, and some samples of history."""
    with Broker(BrokerConfig(flush="memory")) as broker:
        settings = ConnectionSettings(name_servers=(broker.name_server,))
        with (
            open_cluster(settings) as cluster,
            Producer(cluster) as producer,
            LitePullConsumer(settings, ConsumerSettings("billing"), auto_commit=False) as member,
            StatusPage(settings, host="127.0.0.1", port=0, interval_s=0.2) as page,
        ):
            for topic, queues in {"orders": 4, "payments": 2, "%DLQ%billing": 1}.items():
                cluster.create_topic(TopicConfig(topic, queues, queues))
            member.subscribe("orders")
            fill(cluster, producer, "%DLQ%billing", 5)
            fill(cluster, producer, "payments", 20)
            commit(cluster, "reports", "payments", 8)
            fill(cluster, producer, "orders", 10)
            fill_with_long_names(cluster, producer)
            commit(cluster, "audit", "orders", 38)
            history = page.observer.history
            while (step := len(history.group("billing").lag.points())) < SAMPLES:
                fill(cluster, producer, "orders", 6 + step % 7)
                commit(cluster, "billing", "orders", 5 + 3 * (step % 6))
                commit(cluster, "shipping", "orders", 0)
                wait_for_sample(history, step)
            wait_for(lambda: history.newest is not None and "billing" in history.newest.members)
            # From here on a page does not change during a test.
            page.observer.interval_s = 60.0
            yield page


def fill(cluster: Cluster, producer: Producer, topic: str, count: int) -> None:
    """Store messages in every queue of a topic."""
    for queue in cluster.queues(topic):
        for number in range(count):
            order = f"{queue.index}-{number:03}"
            body = (
                f'{{"order": "{order}", "customer": "c-0042", "items": [{{"sku": "A-100", '
                f'"count": {number + 1}}}], "total": 90, "note": "ring twice, then wait"}}'
            )
            message = Message(topic, body.encode(), "paid", order, {"region": "north"})
            producer.send_batch(queue, [message])


def fill_with_long_names(cluster: Cluster, producer: Producer) -> None:
    cluster.create_topic(TopicConfig(LONG_TOPIC, 1, 1))
    (queue,) = cluster.queues(LONG_TOPIC)
    message = Message(LONG_TOPIC, b"b" * 500, "tag" * 20, "key" * 20, {"p" * 50: "v" * 200})
    producer.send_batch(queue, [message])
    cluster.commit(LONG_GROUP, {queue: 1})


def commit(cluster: Cluster, group: str, topic: str, behind: int) -> None:
    """Commit offsets of a group, each `behind` messages before the end of its queue."""
    bounds = raise_first(cluster.bounds(cluster.queues(topic)))
    cluster.commit(group, {queue: max(0, held.end - behind) for queue, held in bounds.items()})


def wait_for_sample(history: History, count: int) -> None:
    wait_for(lambda: len(history.group("billing").lag.points()) > count)


def wait_for(is_so: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with chromium(tmp_path_factory.mktemp("browser")) as address:
        yield address


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 980, 1280])
def test_pages_fit_their_window_and_follow_the_scheme(
    status: StatusPage, browser: str, width: int, is_dark: bool
) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)

    async def look() -> None:
        async with Page.open(browser) as page:
            for name, path in PATHS.items():
                await page.show(status.address + path, width=width, is_dark=is_dark)
                await page.screenshot(
                    PICTURES / f"{name}-{width}-{'dark' if is_dark else 'light'}.png"
                )
                assert await page.value(WIDER_THAN_WINDOW) is False, name
                assert await page.value(CUT) == [], name
                assert set(IMPORTANT.get(name, ())) <= set(await page.value(NUMBERS_SEEN)), name
                channels = (await page.value(BACKGROUND)).strip("rgb()").split(",")
                assert (sum(map(int, channels)) < 3 * 128) is is_dark, name

    asyncio.run(look())


def test_pictures_of_the_documentation_are_made(status: StatusPage, browser: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)

    async def look() -> None:
        async with Page.open(browser) as page:
            for name, (path, width, is_dark) in DOCUMENTED.items():
                await page.show(status.address + path, width=width, is_dark=is_dark)
                assert await page.value("document.querySelector('h1').innerText") != "Not found"
                await page.screenshot(PICTURES / f"{name}.png", PICTURE_HEIGHT_MAX)
                assert (PICTURES / f"{name}.png").stat().st_size <= PICTURE_BYTES_MAX

    asyncio.run(look())


def test_numbers_end_below_their_titles_and_charts_begin_with_the_text(
    status: StatusPage, browser: str
) -> None:
    async def look() -> None:
        async with Page.open(browser) as page:
            for name, path in PATHS.items():
                await page.show(status.address + path, width=1280, is_dark=False)
                assert await page.value(UNALIGNED) < 1, name
                if name not in ("overview", "topic", "group"):
                    continue
                for part in ("svg", "svg .line"):
                    left = await page.value(LEFT_OF.format(part))
                    assert left == pytest.approx(await page.value(LEFT_OF.format("h1")), abs=2)
                assert await page.value("document.querySelector('.line').getTotalLength()") > 50

    asyncio.run(look())


def test_the_menu_marks_the_present_page(status: StatusPage, browser: str) -> None:
    async def look() -> None:
        async with Page.open(browser) as page:
            for name, entry in MENU.items():
                await page.show(status.address + PATHS[name], width=1280, is_dark=False)
                marked = "[...document.querySelectorAll('[aria-current=page]')].map(a => a.text)"
                assert await page.value(marked) == [entry]

    asyncio.run(look())


def test_links_and_the_form_lead_where_they_say(status: StatusPage, browser: str) -> None:
    async def walk() -> None:
        async with Page.open(browser) as page:
            for start in ("", "groups/billing", "topics/%25DLQ%25billing"):
                await page.show(status.address + start, width=1280, is_dark=False)
                links = await page.value("[...document.querySelectorAll('a')].map(a => a.href)")
                assert len(links) >= 5
                for link in links:
                    await page.show(link, width=1280, is_dark=False)
                    assert await page.value("document.querySelector('h1').innerText") != "Not found"
            await page.show(f"{status.address}messages", width=1280, is_dark=False)
            await page.value("document.querySelector('input[name=topic]').value = 'orders'")
            await page.value("document.querySelector('form').submit()")
            give_up_at = time.monotonic() + 30
            while await page.value("document.querySelectorAll('td .body').length") != 50:
                assert time.monotonic() < give_up_at
                await asyncio.sleep(0.1)

    asyncio.run(walk())


def test_the_form_lists_the_topics_to_choose_from(status: StatusPage, browser: str) -> None:
    async def look() -> None:
        async with Page.open(browser) as page:
            await page.show(f"{status.address}messages", width=1280, is_dark=False)
            listed = (
                "[...document.querySelector('input[name=topic]').list.options].map(o => o.value)"
            )
            assert await page.value(listed) == ["%DLQ%billing", "orders", "payments", LONG_TOPIC]

    asyncio.run(look())
