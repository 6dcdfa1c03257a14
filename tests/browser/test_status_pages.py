"""The status pages in a real browser: narrow and wide, light and dark."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser.chromium import Page, chromium
from rocketmq_broker import Broker, BrokerConfig
from rocketmq_cli.status_page.web import StatusPage
from rocketmq_client.cluster import open_cluster
from rocketmq_client.producer.producer import Producer
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.model import Message, TopicConfig

PICTURES = Path(__file__).parents[2] / "build" / "pages"
PATHS = {
    "overview": "",
    "topics": "topics",
    "topic": "topics/orders",
    "groups": "groups",
    "group": "groups/billing",
    "messages": "messages?topic=orders",
}
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
WIDER_THAN_WINDOW = "document.documentElement.scrollWidth > window.innerWidth"
SAMPLES = 4


@pytest.fixture(scope="module")
def status() -> Iterator[StatusPage]:
    """Pages about a broker with a topic, a group with lag, and some samples of history."""
    with Broker(BrokerConfig(flush="memory")) as broker:
        settings = ConnectionSettings(name_servers=(broker.name_server,))
        with (
            open_cluster(settings) as cluster,
            Producer(cluster) as producer,
            StatusPage(settings, host="127.0.0.1", port=0, interval_s=0.5) as page,
        ):
            cluster.create_topic(TopicConfig("orders", 4, 4))
            for number, queue in enumerate(cluster.queues("orders")):
                body = b'{"order": %d, "text": "' % number + b"long " * 60 + b'"}'
                producer.send_batch(queue, [Message("orders", body, "paid", "k")] * 50)
                cluster.commit("billing", {queue: 10})
            give_up_at = time.monotonic() + 60
            while len(page.observer.history.group("billing").lag.points()) < SAMPLES:
                assert time.monotonic() < give_up_at
                time.sleep(0.1)
            # From here on a page does not change during a test.
            page.observer.interval_s = 600.0
            yield page


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with chromium(tmp_path_factory.mktemp("browser")) as address:
        yield address


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [400, 1200])
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
                channels = (await page.value(BACKGROUND)).strip("rgb()").split(",")
                assert (sum(map(int, channels)) < 3 * 128) is is_dark, name
                if name in ("topic", "group", "overview"):
                    assert await page.value("document.querySelector('svg').clientWidth") > width / 2
                    assert (
                        await page.value("document.querySelector('polyline').getTotalLength()") > 50
                    )

    asyncio.run(look())


def test_links_and_the_form_lead_where_they_say(status: StatusPage, browser: str) -> None:
    async def walk() -> None:
        async with Page.open(browser) as page:
            await page.show(status.address, width=1200, is_dark=False)
            links = await page.value("[...document.querySelectorAll('a')].map(a => a.href)")
            assert len(links) >= 5
            for link in links:
                await page.show(link, width=1200, is_dark=False)
                assert await page.value("document.querySelector('h1').innerText") != "Not found"
            await page.show(f"{status.address}messages", width=1200, is_dark=False)
            await page.value("document.querySelector('input[name=topic]').value = 'orders'")
            await page.value("document.querySelector('form').submit()")
            give_up_at = time.monotonic() + 30
            while await page.value("document.querySelectorAll('td .body').length") != 40:
                assert time.monotonic() < give_up_at
                await asyncio.sleep(0.1)

    asyncio.run(walk())
