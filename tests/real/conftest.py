"""One real cluster at a time, for every version; `--short` keeps three minutes of the suite."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

from spark.conftest import loader, queries, read, spark, topic
from support.real_cluster import VERSIONS, RealCluster

__all__ = ["loader", "queries", "read", "spark", "topic"]

_HERE = Path(__file__).parent
# The versions differ in what they answer to it.
_SPARK_ON_BOTH = "test_starts_and_ends_by_time"
_TRIES = 3
_TOO_LATE = "Python worker failed to connect back"
# Adopted tests are imported, not collected: their asserts explain themselves all the same.
pytest.register_assert_rewrite(
    "contract.test_cluster_contract", "contract.test_download_contract", "support.contracts",
    "spark.test_batch_read", "spark.test_stream_read", "spark.test_data_loss",
    "spark.test_committed_offsets", "spark.test_lag",
    "spark.test_sink", "spark.test_sink_send_back", "spark.test_lookup",
    "spark.test_joined_group", "spark.test_pop", "spark.test_push_down",
    "spark.test_sink_transactions", "spark.test_sql", "spark.test_typed_bodies",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--short", action="store_true", help="only what is marked short")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Spark's gateway leaves sockets to the interpreter's end; brokers take seconds to start."""
    ours = [item for item in items if _HERE in item.path.parents]
    is_short = config.getoption("--short")
    for item in ours:
        item.add_marker(pytest.mark.timeout(240 if is_short else 600))
        item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
        item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
    if is_short:
        left_out = [item for item in ours if not _is_short(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Give a test another try whose Spark did not wait for its Python: ten seconds, fixed.

    Beside real clusters a machine may be that busy, and the test has not even begun.
    """
    if _HERE not in item.path.parents:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for tries_left in reversed(range(_TRIES)):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if not tries_left or not any(_TOO_LATE in report.longreprtext for report in reports):
            break
        print(f"\n{item.name}: {_TOO_LATE}; once more", file=sys.__stderr__)
        item._initrequest()  # type: ignore[attr-defined]
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _is_short(item: pytest.Item) -> bool:
    """What is marked; of the older version what needs no Spark, and one test that does."""
    if item.get_closest_marker("short") is None:
        return False
    assert isinstance(item, pytest.Function)
    is_newest = VERSIONS[0] in item.name or not any(version in item.name for version in VERSIONS)
    return is_newest or "spark" not in item.fixturenames or item.originalname == _SPARK_ON_BOTH


@pytest.fixture
def group(topic: str) -> str:
    return f"group-{topic}"


@pytest.fixture(scope="session", params=VERSIONS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealCluster]:
    """The cluster of one version: a name server and `broker-a`.

    Tests that add or kill processes leave these two running. Only the processes of one version
    run at a time, for pytest puts the tests of one parameter together.
    """
    version: str = request.param
    folder = tmp_path_factory.mktemp(f"rocketmq-{version}-")
    with RealCluster(version, folder, is_brief=True) as cluster:
        yield cluster
