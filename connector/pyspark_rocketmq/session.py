"""The driver's Python for Spark, and an active session in the calling thread."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

_log = logging.getLogger("pyspark_rocketmq")

# Spark's JVM runs the first of these that is set, else the `python3` of PATH.
_CHOICES: Final = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
_HAS_SOURCE: Final = (
    "import importlib.util, sys; sys.exit(importlib.util.find_spec('pyspark_rocketmq') is None)"
)
_TIMEOUT_S: Final = 10


def restore_session(spark: SparkSession | None = None) -> None:
    """Give the calling thread an active session, so that Spark finds the source for writes.

    After Ctrl-C, and in threads other than the main one, Spark's JVM serves Python by a thread
    without an active session, and writes fail with DATA_SOURCE_NOT_FOUND. With Spark Connect this
    does nothing: its clients need no repair.

    Args:
        spark: The session to make active. None: the one that `SparkSession.builder.getOrCreate()`
            made, if the thread has no active session.
    """
    session: Any = spark or SparkSession._instantiatedSession
    java_session = getattr(session, "_jsparkSession", None)
    if java_session is None:
        return
    sessions = session._jvm.org.apache.spark.sql.SparkSession
    if spark is not None or sessions.getActiveSession().isEmpty():
        sessions.setActiveSession(java_session)


def choose_python() -> None:
    """Set PYSPARK_PYTHON to this Python, if Spark would look for sources in one that lacks ours.

    A choice that was made stays. If the JVM has started, it has its environment: logs what to do.
    """
    chosen = any(os.environ.get(name) for name in _CHOICES)
    is_worker = any(name.startswith("PYTHON_WORKER_FACTORY_") for name in os.environ)
    if chosen or is_worker or not sys.executable:
        return
    asked = shutil.which("python3")
    if asked is not None and _is_ours(asked):
        return
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        return
    _log.warning(
        "Spark has started and looks for sources in %s, which has no pyspark_rocketmq. Import "
        "pyspark_rocketmq before the session starts, or set PYSPARK_PYTHON=%s.",
        asked or "python3, which is not in PATH",
        sys.executable,
    )


def _is_ours(program: str) -> bool:
    if Path(program).parent == Path(sys.executable).parent:
        return True
    try:
        found = subprocess.run(
            [program, "-c", _HAS_SOURCE], capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return found.returncode == 0
