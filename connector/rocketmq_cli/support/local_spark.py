"""A small local Spark session for the demo and the benchmark: quiet, on loopback, no UI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession

LOG_NAME = "spark.log"
# For runs of a minute: optimising hot code would take longer than it saves.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_JVM_END_TIMEOUT_S = 60
# The settings of conf/spark-defaults.conf, which gives the reasons.
PYTHON_SOURCE_SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
_LOCAL_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """A file of the classes that Spark loads, which halves the JVM's start.

    The JVM writes it at its end, and ignores one that does not fit its version or class path.
    """

    path: Path

    @classmethod
    def within(cls, directory: Path) -> ClassArchive:
        """The archive in a directory for this Spark and this Java."""
        java = Path(os.environ.get("JAVA_HOME") or shutil.which("java") or "").resolve()
        versions = f"{pyspark.__version__} {pyspark.__file__} {java}"
        return cls(directory / f"spark-classes-{zlib.crc32(versions.encode()):08x}.jsa")

    @property
    def exists(self) -> bool:
        return self.path.exists()

    @property
    def new_path(self) -> Path:
        """The JVM writes here first, so that none starts from half an archive."""
        return self.path.with_suffix(".new")

    @property
    def java_option(self) -> str:
        if self.exists:
            return f"-XX:SharedArchiveFile={self.path} -Xshare:auto -Xlog:disable"
        return f"-XX:ArchiveClassesAtExit={self.new_path} -Xlog:disable"


def local_session(
    name: str, directory: Path, settings: Mapping[str, str] | None = None, *, java_options: str = ""
) -> SparkSession:
    """Start a session on two cores with all its files and its log below `directory`."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    log_settings = directory / "log4j2.properties"
    log_settings.write_text(_LOG_SETTINGS)
    everything = {
        **PYTHON_SOURCE_SETTINGS,
        **_LOCAL_SETTINGS,
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.local.dir": str(directory / "spark"),
        # Set before the start, which logs warnings of its own.
        "spark.driver.extraJavaOptions": (
            f"-Dlog4j2.configurationFile={log_settings.as_uri()} {java_options}"
        ),
        **(settings or {}),
    }
    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in everything.items():
        builder = builder.config(key, value)
    with _stderr_into(directory / LOG_NAME):
        return builder.getOrCreate()


def end_jvm(spark: SparkSession, archive: ClassArchive) -> None:
    """Stop Spark; the first time, wait until its JVM has written the archive."""
    jvm = getattr(spark.sparkContext._gateway, "proc", None)
    spark.stop()
    if jvm is None or archive.exists:
        return
    # The JVM ends when its standard input is closed.
    jvm.stdin.close()
    try:
        jvm.wait(_JVM_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return  # A later run writes the archive.
    if archive.new_path.exists():
        archive.new_path.rename(archive.path)


@contextmanager
def _stderr_into(path: Path) -> Iterator[None]:
    """Redirect standard error to a file; Spark's JVM, started meanwhile, keeps writing there."""
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


_LOG_SETTINGS = """\
# A session of Python code takes its root level from this logger.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n
"""
