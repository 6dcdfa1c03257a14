"""What Spark gets of an error: its text alone, unless its frames are wanted."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator

import pytest

from pyspark_rocketmq import DefaultSource
from pyspark_rocketmq.boundary import bares_errors
from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.stream.reader import StreamReader


def deep() -> None:
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise OptionError("tags", "is odd") from error


@bares_errors("plan", "read")
class Reader:
    def plan(self) -> None:
        deep()

    def read(self) -> Iterator[int]:
        yield 1
        deep()


def shown(act: object) -> str:
    assert callable(act)
    with pytest.raises(OptionError) as raised:
        act()
    return "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize("act", [Reader().plan, lambda: list(Reader().read())])
def test_an_error_has_no_frames_of_ours(act: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROCKETMQ_DEBUG", raising=False)
    text = shown(act)
    assert "in deep" not in text
    assert "KeyError" not in text
    assert text.endswith("[ROCKETMQ_OPTION.INVALID] option 'tags' is odd\n")
    monkeypatch.setenv("ROCKETMQ_DEBUG", "1")
    text = shown(act)
    assert "in deep" in text
    assert "KeyError: 'inner'" in text


def test_a_source_raises_bare_errors_and_keeps_its_signatures() -> None:
    text = shown(lambda: DefaultSource({"maxPartitions": "two"}))
    assert "must be a whole number" in text
    assert "parse_options" not in text
    assert [*inspect.signature(StreamReader.latestOffset).parameters] == ["self", "start", "limit"]


def test_all_calls_of_a_stream_that_ask_the_cluster_raise_bare_errors() -> None:
    calls = {name: call for name, call in vars(StreamReader).items() if name[0].islower()}
    plain = {name for name, call in calls.items() if not hasattr(call, "__wrapped__")}
    assert plain == {"getDefaultReadLimit", "stop"}
