"""The checks of `rmq check`: this machine, Spark, and the cluster with its brokers and a topic."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from rocketmq_client.cluster import Cluster, open_cluster
from rocketmq_client.settings import ConnectionSettings
from rocketmq_wire.errors import (
    BrokerError,
    ConnectError,
    NotOverGrpcError,
    RocketMQError,
    TopicNotFoundError,
    WrongPortError,
)
from rocketmq_wire.model import MASTER_ID, is_internal_topic
from rocketmq_wire.plural import plural
from rocketmq_wire.requests.brokers import GetBrokerSettings, SettingsReply
from rocketmq_wire.suggest import did_you_mean

_JAVA_MIN: Final = 17
_SPARK_MIN: Final = (4, 0)
_SOURCE: Final = "pyspark_rocketmq"
_TIMEOUT_S: Final = 60
_PRINT_VERSION = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
_LIST_PACKAGES = (
    "import pkgutil; "
    "print(*(m.name for m in pkgutil.iter_modules() if m.name.startswith('pyspark_')))"
)
_SET_PYTHON = f"export PYSPARK_PYTHON={sys.executable}"
_OR_IMPORT = f", or import {_SOURCE} before the session starts"
_TIMEOUT_MS: Final = 3_000
# A refusal is an answer, and so is the error that a gRPC endpoint has no such request.
_ANSWERS: Final = (BrokerError, NotOverGrpcError)


class Finding(NamedTuple):
    """One line of `rmq check`."""

    state: str
    """`ok  `, `note` or `FAIL`."""
    what: str
    found: str
    remedy: str = ""


def ok(what: str, found: str) -> Finding:
    return Finding("ok  ", what, found)


def note(what: str, found: str, remedy: str = "") -> Finding:
    return Finding("note", what, found, remedy)


def fail(what: str, found: str, remedy: str) -> Finding:
    return Finding("FAIL", what, found, remedy)


def java() -> Iterator[Finding]:
    """Java 17 or newer, where Spark's launcher finds it."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    remedy = f"install Java {_JAVA_MIN} or newer, or set JAVA_HOME to one"
    if program is None:
        yield fail("java", "not found", remedy)
        return
    found = _run([program, "-version"])
    version = re.search(r'version "([^"]+)"', found or "")
    if version is None:
        yield fail("java", f"{program} does not run", remedy)
        return
    major = int(re.sub(r"^1\.", "", version[1]).split(".")[0].split("-")[0])
    text = f"{version[1]} ({program})"
    if major < _JAVA_MIN:
        yield fail("java", text, f"Spark 4 needs Java {_JAVA_MIN}: {remedy}")
    else:
        yield ok("java", text)


def python() -> Iterator[Finding]:
    """This Python, and the one of Spark's workers."""
    here = ".".join(map(str, sys.version_info[:3]))
    if not (3, 10) <= sys.version_info < (3, 14):
        yield note("python", here, "tested with 3.10 to 3.13 only")
    else:
        yield ok("python", f"{here} ({sys.executable})")
    name, program = _python_of("PYSPARK_PYTHON")
    version = _run([program, "-c", _PRINT_VERSION]) if program else None
    if version is None:
        yield fail("worker's python", f"{name} does not run", _SET_PYTHON)
    elif version.split(".")[:2] != here.split(".")[:2]:
        yield fail(
            "worker's python",
            f"{version.strip()} ({name}), the driver's is {here}",
            f"Spark refuses another version than the driver's: {_SET_PYTHON}",
        )
    elif _run([program or "", "-c", "import pyarrow"]) is None:
        yield fail("worker's python", f"{name} cannot import pyarrow", _SET_PYTHON)
    else:
        yield ok("worker's python", f"{version.strip()} ({name})")


def _is_python_set() -> bool:
    """True if the environment names a Python: then importing the source changes nothing."""
    return any(os.environ.get(name) for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"))


def _python_of(*variables: str) -> tuple[str, str | None]:
    """The Python that Spark runs, by name and by path: the first variable that is set decides."""
    for variable in variables:
        if given := os.environ.get(variable):
            return f"{variable}={given}", shutil.which(given)
    found = shutil.which("python3")
    return f"python3 of PATH, {found}" if found else "python3, not in PATH,", found


def spark() -> Iterator[Finding]:
    """PySpark 4.0 or newer, and a SPARK_HOME of the same version."""
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        yield fail("spark", "pyspark is not installed", "pip install 'pyspark-rocketmq[spark]'")
        return
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers < _SPARK_MIN:
        yield fail("spark", version, "Python data sources need Spark 4.0 or newer")
        return
    yield ok("spark", version)
    home = os.environ.get("SPARK_HOME")
    release = Path(home, "RELEASE") if home else None
    if release is not None and release.is_file():
        found = re.search(r"Spark (\d+\.\d+)", release.read_text(errors="replace"))
        if found and found[1] != ".".join(map(str, numbers)):
            yield fail(
                "SPARK_HOME",
                f"{home} is Spark {found[1]}, pyspark is {version}",
                "unset SPARK_HOME, or install the pyspark that belongs to it",
            )


def discovery() -> Iterator[Finding]:
    """Whether the Python that Spark's JVM asks for sources lists ours.

    It lists the top-level packages `pyspark_*`, and imports every one.
    """
    name, program = _python_of("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
    listed = _run([program, "-c", _LIST_PACKAGES]) if program else None
    if program is None or listed is None:
        yield fail("source", f"Spark looks for it in {name}, which does not run", _SET_PYTHON)
        return
    names = listed.split()
    if _SOURCE not in names:
        if _run([program, "-c", f"import {_SOURCE}"]) is None:
            yield fail(
                "source",
                f"Spark looks for it in {name}, which has no {_SOURCE}",
                _SET_PYTHON + ("" if _is_python_set() else _OR_IMPORT),
            )
        else:
            yield fail(
                "source",
                f"{_SOURCE} can be imported, but {name} does not list it among its packages",
                "it was installed through an import hook; install it as a plain folder or wheel, "
                "or call spark.dataSource.register(pyspark_rocketmq.DefaultSource)",
            )
        return
    blocked = False
    for package in names:
        error = _import_error(program, package)
        if error is not None and package != _SOURCE:
            blocked = True
            yield fail(
                "source",
                f"the package {package} cannot be imported ({error}), and so hides every source",
                f"repair or uninstall {package}",
            )
        elif error is not None:
            blocked = True
            yield fail(
                "source", f"{name} cannot import {package}: {error}", "install it there again"
            )
    if not blocked:
        yield ok("source", f'format("rocketmq") is found in {name}')


def _import_error(program: str, name: str) -> str | None:
    """Why a Python cannot import a package; None if it can."""
    done = _finished([program, "-c", f"import {name}"])
    if done is None:
        return "the import did not end"
    last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
    return None if done.returncode == 0 else last[0]


def _run(words: list[str]) -> str | None:
    """The output of a program, None if it failed."""
    done = _finished(words)
    return None if done is None or done.returncode else done.stdout + done.stderr


def _finished(words: list[str]) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            words, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


CHECKS: Final[tuple[Callable[[], Iterator[Finding]], ...]] = (java, python, spark, discovery)


def check(
    settings: ConnectionSettings, topic: str | None, timeout_ms: int = _TIMEOUT_MS
) -> Iterator[Finding]:
    """Check a cluster; stop at a problem that makes later checks useless."""
    settings = replace(settings, request_timeout_ms=timeout_ms, connect_timeout_ms=timeout_ms)
    where = settings.cluster_address
    with open_cluster(settings) as cluster:
        try:
            brokers = cluster.cluster_info().brokers
        except WrongPortError as error:
            yield fail("cluster", error.text("--name-server", "--endpoints"), "")
            return
        except RocketMQError as error:
            yield fail("cluster", str(error), f"is a RocketMQ cluster running at {where}?")
            return
        count = plural(len(brokers), "broker")
        yield ok("cluster", f"{where} knows {count}")
        for broker in brokers:
            if MASTER_ID not in broker.addresses:
                yield fail(
                    "broker", f"{broker.name} has no master", "start it: only its slaves are there"
                )
        reached = False
        for name, answer in cluster.ask_masters(GetBrokerSettings()).items():
            reached = reached or isinstance(answer, SettingsReply)
            address = next((b.addresses.get(MASTER_ID, "") for b in brokers if b.name == name), "")
            yield _broker(f"{name} at {address}", answer)
        if topic is not None and reached:
            yield from _topic(cluster, topic)


def _broker(what: str, answer: SettingsReply | RocketMQError) -> Finding:
    if isinstance(answer, ConnectError):
        return fail(
            "broker",
            f"{what} cannot be reached: {answer}",
            "that address is what the broker advertises (brokerIP1). Make it reachable, or give "
            "the source's option addressMap",
        )
    if isinstance(answer, RocketMQError) and not isinstance(answer, _ANSWERS):
        return fail(
            "broker",
            f"{what} does not answer as a broker does: {answer}",
            "check whether it is overloaded or another program, and read its log; that address is "
            "what the broker advertises (brokerIP1)",
        )
    if isinstance(answer, RocketMQError):
        return note("broker", f"{what} answers, but does not show its settings: {answer}")
    if answer.settings.get("enablePropertyFilter", "true") == "false":
        return note(
            "broker",
            what,
            "SQL92 filters are off there: enablePropertyFilter=true turns them on "
            "(property_filter = true at the bundled broker)",
        )
    return ok("broker", what)


def _topic(cluster: Cluster, topic: str) -> Iterator[Finding]:
    try:
        stats = cluster.topic_stats(topic)
    except TopicNotFoundError:
        names = [name for name in cluster.topics() if not is_internal_topic(name)]
        yield fail(
            "topic",
            f"there is no topic {topic}.{did_you_mean(topic, names)}",
            f"rmq topic create {topic} creates it",
        )
        return
    except RocketMQError as error:
        yield fail("topic", str(error), "see above")
        return
    count = sum(stat.end - stat.start for stat in stats.values())
    queues, messages = plural(len(stats), "queue"), plural(count, "message")
    yield ok("topic", f"{topic}: {queues}, {messages}")
    if not cluster.queues(topic):
        yield fail("topic", f"{topic} may not be read", f"rmq topic alter {topic} --permission rw")
