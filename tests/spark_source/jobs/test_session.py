"""How a job ends: its code, and the one line that says what went wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException

from pyspark_rocketmq.errors import JobError, OptionError
from pyspark_rocketmq.jobs.session import one_line_of, refused_as, run_job

# As Spark tells what failed in a Python process: the cause, then what was raised.
NESTED = """[STREAM_FAILED] Query [id = 1] terminated with exception: [PYTHON_EXCEPTION] Traceback:
  File "outages.py", line 7, in ask
rocketmq_wire.errors.ConnectError: [ROCKETMQ_CONNECTION.REFUSED] cannot connect to h:1: refused.

The above exception was the direct cause of the following exception:

  File "survey.py", line 9, in first_scan
outages.ClusterUnreachableError: [ROCKETMQ_CONNECTION.UNREACHABLE] h:1 does not answer. Check it.
 SQLSTATE: 38000
=== Streaming Query ===
\tat org.apache.spark.Somewhere"""


class Refusal(PySparkException):
    """What Spark refuses with an error condition of its JVM's."""

    def __init__(self, condition: str) -> None:
        super().__init__("refused")
        self.condition = condition

    def getCondition(self) -> str | None:  # noqa: N802 - as Spark names it.
        return self.condition


def ended(main: Callable[[], int | None]) -> tuple[object, int]:
    """What the process ends with, and how often the session was stopped."""
    stops: list[bool] = []
    with pytest.raises(SystemExit) as ending:
        run_job(main, stop=lambda: stops.append(True))
    return ending.value.code, len(stops)


def failing(error: Exception) -> Callable[[], int | None]:
    def main() -> int | None:
        raise error

    return main


def test_a_job_ends_with_its_own_code_and_its_session_stopped() -> None:
    assert ended(lambda: None) == (None, 1)
    assert ended(lambda: 2) == (2, 1)


def test_what_was_foreseen_is_a_jobs_only_words() -> None:
    """A text as the code is what Python prints on standard error, and ends with 1."""
    assert ended(failing(JobError("there is no x: give --input"))) == (
        "there is no x: give --input",
        1,
    )
    assert ended(failing(OptionError("tags", "is odd"))) == (
        "[ROCKETMQ_OPTION.INVALID] option 'tags' is odd",
        1,
    )
    assert ended(failing(RuntimeError(NESTED))) == (
        "[ROCKETMQ_CONNECTION.UNREACHABLE] h:1 does not answer. Check it.",
        1,
    )


def test_an_interrupted_job_says_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def main() -> None:
        raise KeyboardInterrupt

    assert ended(main) == (130, 1)
    assert capsys.readouterr().err == "ended by Ctrl-C\n"


def test_what_nobody_foresaw_keeps_its_traceback() -> None:
    assert one_line_of(ZeroDivisionError("division by zero")) is None
    with pytest.raises(ZeroDivisionError):
        run_job(failing(ZeroDivisionError("division by zero")), stop=lambda: None)


def test_one_refusal_of_sparks_becomes_the_jobs_words() -> None:
    def refuse(condition: str) -> None:
        with refused_as("PATH_NOT_FOUND", "give --input"):
            raise Refusal(condition)

    with pytest.raises(JobError, match=r"^give --input$") as message:
        refuse("PATH_NOT_FOUND")
    assert message.value.__suppress_context__
    with pytest.raises(Refusal):
        refuse("CANNOT_PARSE_INTERVAL")
