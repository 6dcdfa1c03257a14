"""The fixtures, and the broker's last log lines in the report of a failed test.

The fixtures import what they need: pytest loads this module wherever it is installed.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from pytest_rocketmq.errors import StreamTimeoutError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from pytest_rocketmq.faults import RocketMQFaults
    from pytest_rocketmq.handle import RocketMQ
    from rocketmq_broker import Broker
    from rocketmq_cli.support.broker_process import BrokerProcess

H = TypeVar("H", bound="RocketMQ")
_HANDLES: pytest.StashKey[list[RocketMQ]] = pytest.StashKey()
_LOG_LINES = 30
TIMEOUT_S = 120.0


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rocketmq")
    group.addoption(
        "--rocketmq-name-server",
        metavar="HOST:PORT",
        help="an existing cluster for rocketmq_noproc (default: NAMESRV_ADDR)",
    )
    parser.addini("rocketmq_name_server", "as --rocketmq-name-server", default="")
    parser.addini(
        "rocketmq_log_lines", "how many log lines of a broker a report shows", default=_LOG_LINES
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        most = int(item.config.getini("rocketmq_log_lines"))
        handles = item.stash.get(_HANDLES, []) if most else []
        report.sections += [_log_section(handle, most) for handle in handles]
    return report


def _log_section(handle: RocketMQ, most: int) -> tuple[str, str]:
    if handle.log_lines is None:
        return f"RocketMQ at {handle.name_server}", "(its brokers log on their own machines)"
    lines = handle.log_lines()[-most:]
    title = f"RocketMQ broker {handle.name_server}: last log lines"
    return title, "\n".join(lines) or "(it logged nothing)"


def _reported(request: pytest.FixtureRequest, handle: H) -> H:
    """A handle whose broker's log lines the report of a failure shows."""
    request.node.stash.setdefault(_HANDLES, []).append(handle)
    return handle


@pytest.fixture(scope="session")
def _rocketmq_broker() -> Iterator[tuple[Broker, Callable[[], list[str]]]]:
    with _collector_off():
        from pytest_rocketmq.logs import RecentLines
        from rocketmq_broker import Broker, BrokerConfig

    config = BrokerConfig(flush="memory")
    with RecentLines() as recent, Broker(config, grpc_when_asked=True) as broker:
        yield broker, recent.lines


@contextmanager
def _collector_off() -> Iterator[None]:
    """Turn the garbage collector off during imports, which saves a fifth of their time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@pytest.fixture
def rocketmq(
    _rocketmq_broker: tuple[Broker, Callable[[], list[str]]], request: pytest.FixtureRequest
) -> Iterator[RocketMQ]:
    """A broker in this process, shared by the session; each test has its own topic and group."""
    with _collector_off():
        from pytest_rocketmq.handle import RocketMQ

    broker, lines = _rocketmq_broker
    label = request.node.name
    shared = RocketMQ(broker.name_server, lambda: broker.endpoints, label=label, log_lines=lines)
    with _reported(request, shared) as handle:
        yield handle


@pytest.fixture(scope="session")
def _rocketmq_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    from rocketmq_cli.support.broker_process import BrokerProcess

    folder = tmp_path_factory.mktemp("rocketmq")
    process = _started(BrokerProcess(folder, "--memory", "--verbose"))
    yield process
    process.stop()


def _started(process: BrokerProcess) -> BrokerProcess:
    """A broker that serves; one that does not fails the test by its own words alone."""
    try:
        process.start()
    except RuntimeError as error:
        pytest.fail(str(error), pytrace=False)
    return process


@pytest.fixture
def rocketmq_server(
    _rocketmq_process: BrokerProcess, request: pytest.FixtureRequest
) -> Iterator[RocketMQ]:
    """Like `rocketmq`, with a broker in a process of its own, shared by the session."""
    with _reported(request, _process_handle(_rocketmq_process, request.node.name)) as handle:
        yield handle


def _process_handle(process: BrokerProcess, label: str) -> RocketMQ:
    from pytest_rocketmq.handle import RocketMQ
    from pytest_rocketmq.logs import last_lines

    return RocketMQ(
        process.name_server,
        process.endpoints,
        label=label,
        log_lines=lambda: last_lines(process.log_path),
    )


@pytest.fixture
def rocketmq_noproc(request: pytest.FixtureRequest) -> Iterator[RocketMQ]:
    """Like `rocketmq`, with an existing cluster; the test's topics are deleted at the end.

    `--rocketmq-name-server`, the ini value `rocketmq_name_server` or NAMESRV_ADDR names the
    cluster. Reports of failures have no log lines of its brokers.
    """
    from pytest_rocketmq.handle import RocketMQ

    config = request.config
    where = (
        config.getoption("--rocketmq-name-server")
        or config.getini("rocketmq_name_server")
        or os.environ.get("NAMESRV_ADDR")
    )
    if not where:
        raise pytest.UsageError(
            "rocketmq_noproc needs a cluster: give --rocketmq-name-server HOST:PORT, "
            "rocketmq_name_server in the ini file, or NAMESRV_ADDR"
        )
    existing = RocketMQ(where, None, label=request.node.name, deletes_topics=True)
    with _reported(request, existing) as handle:
        yield handle


@pytest.fixture
def rocketmq_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., RocketMQ]]:
    """Starts more brokers: `rocketmq_factory(**settings)`, with the names of conf/broker.toml.

    The brokers run in this process, or with `process=True` each in its own, and end with the
    test. They keep messages in memory unless `flush` is set. `brokers=3` starts a cluster of three,
    `broker-a` to `broker-c`; the first is the name server of all.
    """
    with ExitStack() as stack:

        def make(*, brokers: int = 1, process: bool = False, **settings: Any) -> RocketMQ:
            from pytest_rocketmq.handle import RocketMQ

            begin = _own_process if process else _own_broker
            started: dict[str, Broker | BrokerProcess] = {}
            logs: list[Callable[[], list[str]]] = []
            for name in _broker_names(brokers, settings):
                folder = tmp_path_factory.mktemp("rocketmq")
                started[name], lines = begin(stack, folder, {**settings, "broker_name": name})
                if process or not logs:
                    # Brokers of one process share a logger.
                    logs.append(lines)
                settings = {"name_server": started[name].name_server, **settings}
            first = next(iter(started.values()))
            has_endpoints = brokers == 1 and settings.get("grpc", True)
            own = RocketMQ(
                first.name_server,
                (lambda: first.endpoints) if has_endpoints else None,
                label=request.node.name,
                log_lines=lambda: [line for lines in logs for line in lines()],
                brokers=started,
            )
            return stack.enter_context(_reported(request, own))

        yield make


def _broker_names(count: int, settings: dict[str, Any]) -> list[str]:
    if not 1 <= count <= len(ascii_lowercase):
        raise ValueError(f"brokers must be 1 to {len(ascii_lowercase)}, got {count}")
    if count == 1:
        return [settings.get("broker_name", "broker-a")]
    prefix = settings.get("broker_name", "broker")
    return [f"{prefix}-{suffix}" for suffix in ascii_lowercase[:count]]


def _own_process(
    stack: ExitStack, folder: Path, settings: dict[str, Any]
) -> tuple[BrokerProcess, Callable[[], list[str]]]:
    from pytest_rocketmq.logs import last_lines
    from rocketmq_cli.support.broker_process import BrokerProcess

    given = [f"--set={name}={_toml(value)}" for name, value in settings.items()]
    process = _started(BrokerProcess(folder, "--verbose", *given))
    stack.callback(process.stop)
    return process, lambda: last_lines(process.log_path)


def _own_broker(
    stack: ExitStack, folder: Path, settings: dict[str, Any]
) -> tuple[Broker, Callable[[], list[str]]]:
    from pytest_rocketmq.logs import RecentLines
    from rocketmq_broker import Broker
    from rocketmq_broker.config import config_from

    values = {"flush": "memory", "data_dir": str(folder / "data"), **settings}
    recent = stack.enter_context(RecentLines())
    config = config_from(values, "rocketmq_factory")
    broker = stack.enter_context(Broker(config, grpc_when_asked=True))
    return broker, recent.lines


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.fixture
def rocketmq_faults(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RocketMQFaults]:
    """A broker for one test, on disk, that can be killed, behind a network with faults.

    `delay`, `throttle`, `drop`, `half_open`, `reset`, `refuse`, `heal`; `kill`, `stop`, `restart`.
    """
    from pytest_rocketmq.faults import RocketMQFaults
    from rocketmq_cli.support.broker_process import BrokerProcess

    process = _started(BrokerProcess(tmp_path_factory.mktemp("rocketmq"), "--verbose"))
    faults = _reported(request, RocketMQFaults(process, label=request.node.name))
    with faults:
        yield faults


@pytest.fixture(scope="session")
def spark_rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The active Spark session, or a small local one that finds the source."""
    from pyspark.sql import SparkSession

    from pyspark_rocketmq import restore_session
    from rocketmq_cli.support.local_spark import QUICK_START, local_session

    restore_session()
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    folder = tmp_path_factory.mktemp("spark")
    session = local_session("pytest-rocketmq", folder, java_options=QUICK_START)
    yield session
    session.stop()


@pytest.fixture
def collect_stream(tmp_path: Path) -> StreamCollector:
    """`collect_stream(df)`: all rows that a streaming DataFrame has now."""

    return StreamCollector(tmp_path / "streams")


class StreamCollector:
    """`collect_stream(df)` runs a stream over all present messages and returns its rows in order.

    Each call has its own checkpoint. A call that names one resumes where the last call of that
    name ended.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def __call__(
        self, frame: DataFrame, *, checkpoint: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> list[Row]:
        """Raises what the query raises, and StreamTimeoutError."""
        self._count += 1
        directory = self._folder / (checkpoint or f"checkpoint-{self._count}")
        rows: list[Row] = []

        def take(batch: DataFrame, _batch_id: int) -> None:
            rows.extend(batch.collect())

        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(directory))
        query = writer.trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(timeout_s):  # type: ignore[arg-type]
                raise StreamTimeoutError(
                    f"the stream did not end within {timeout_s:g} s; its last progress: "
                    f"{query.lastProgress}"
                )
        finally:
            query.stop()
        return rows
