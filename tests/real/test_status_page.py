"""The status pages about a real cluster of each version: what they say is so."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable, Iterator
from urllib.error import HTTPError

import pytest

from rocketmq_cli.status_page.history import Sample
from rocketmq_cli.status_page.web import StatusPage
from rocketmq_client.settings import ConnectionSettings
from support.loader import Loader
from support.real_cluster import RealCluster

pytestmark = pytest.mark.short
WAIT_S = 90.0
EACH = 20
COMMITTED = 5


@pytest.fixture
def page(broker: RealCluster) -> Iterator[StatusPage]:
    settings = ConnectionSettings(name_servers=(broker.name_server,))
    with StatusPage(settings, host="127.0.0.1", port=0, interval_s=0.5) as page:
        yield page


def get(page: StatusPage, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(page.address + path, timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def seen(page: StatusPage, is_so: Callable[[Sample], bool]) -> Sample:
    """The first look of which something is true."""
    give_up_at = time.monotonic() + WAIT_S
    while (newest := page.observer.history.newest) is None or not is_so(newest):
        assert time.monotonic() < give_up_at, newest
        time.sleep(0.1)
    return newest


def test_pages_and_metrics_tell_what_the_cluster_has(
    page: StatusPage, broker: RealCluster, loader: Loader, topic: str, group: str
) -> None:
    queues = loader.create(topic, 2)
    for queue in queues:
        loader.put(queue, EACH)
    loader.cluster.commit(group, dict.fromkeys(queues, COMMITTED))
    whole, behind = 2 * EACH, 2 * (EACH - COMMITTED)
    sample = seen(page, lambda sample: sample.message_count(topic) == whole)
    assert [seen.error for seen in sample.brokers if seen.name == "broker-a"] == [None]
    # Brokers of 4.9 list groups with settings, and a commit makes none there.
    if not broker.is_4:
        sample = seen(page, lambda sample: sample.lag(group) == behind)
        assert sample.groups[group].keys() == set(queues)
        assert f'data-title="lag">{behind}</td>' in get(page, f"topics/{topic}")[1]
        assert sample.seconds_behind(group) is not None
        assert get(page, f"groups/{group}")[0] == 200
    assert sample.problems == ()
    for each in sample.brokers:
        assert each.log_bytes, each.runtime
        assert each.disk_used is not None, each.runtime
        # Brokers of 4.9 know the time of the oldest message only in a longer log.
        assert each.oldest_ms or broker.is_4, each.runtime
    assert {seen.retention_hours for seen in sample.brokers} == {"72"}
    assert get(page, "health") == (200, "ok\n")
    for path in ("", "topics", "groups", f"topics/{topic}"):
        code, text = get(page, path)
        assert code == 200
        assert "problem" not in text
    stored = rf'rocketmq_messages_in_total\{{.*node_id="broker-a",topic="{topic}".*\}} {whole}\n'
    assert re.search(stored, get(page, "metrics")[1])
    code, text = get(page, f"messages?topic={topic}&queue=0")
    assert (code, text.count('<span class="body">')) == (200, EACH)
