"""The words of the code: names that gave way to terms of Spark and RocketMQ do not return."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.retired_words import EXCEPTIONS, PROSE

ROOT = Path(__file__).parents[1]
# The lists themselves.
OWN = (
    Path(__file__),
    ROOT / "tests" / "support" / "retired_words.py",
    ROOT / "tests" / "documents" / "test_prose.py",
)
FOLDERS = ("connector", "broker_sim", "spark_jobs", "bench", "tests", "docs/site")

# Parts of names and of file names -> the word to use. `place` finds `by_place` and not `replace`.
PARTS = {
    "alike": "uniform, equal",
    "anew": "again, recreated",
    "borrow": "hold, in flight",
    "go_on": "resume, continue",
    "halves": "half messages",
    "hurry": "without a minimum wait",
    "kept_apart": "internal topic",
    "lent": "held, in flight",
    "letter": "dead letter",
    "loan": "in-flight pop",
    "loans": "in-flight pops",
    "lookout": "discovery",
    "patience": "outage clock",
    "place": "offset, address, queue, row index, byte position",
    "places": "offsets, addresses, queues, row indexes, byte positions",
    "seat": "batch member",
    "settling": "acknowledgement",
    "stamp": "row id",
    "stamps": "row ids",
    "still_there": "drop_recreated_queues",
    "stride": "pull width",
    "told": "reported, logged, raised",
    "verdict": "validation",
    "verdicts": "validation",
    "wire_thread": "I/O thread",
    "group_progress": "committed offsets",
}
# Whole names -> the word to use; as parts of longer names they may be right.
NAMES = {
    "births": "topic identity",
    "commit_rounds": "offset commit",
    "counted": "plural",
    "firsts": "topic identity",
    "flights": "in-flight pulls",
    "foreign_queues": "RocketMQ's queues",
    "lend": "in-flight pops",
    "letters": "dead letters",
    "looks": "samples",
    "outages": "retry",
    "restoring": "storing again",
    "seals": "log checksums",
    "suggestions": "replica selection",
    "survey": "cluster scan",
    "turns": "fencing",
}


def _files() -> list[Path]:
    found = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in found if "stubs" not in path.parts and path not in OWN]


def _snake(name: str) -> str:
    """`FlowLimits` and `FLOW_LIMITS` as `flow_limits`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


_EXCEPTED = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(EXCEPTIONS)})(?![A-Za-z])")
_PART = re.compile(rf"(?<![a-z])(?:{'|'.join(PARTS)})(?![a-z])")
_PROSE = re.compile(rf"\b(?:{'|'.join(PROSE)})\b", re.IGNORECASE)


def retired_names(name: str) -> Iterator[str]:
    """The retired words in a name."""
    plain = _snake(_EXCEPTED.sub("", name))
    yield from (f"{name}: say {PARTS[word]}" for word in _PART.findall(plain))
    if plain.strip("_") in NAMES:
        yield f"{name}: say {NAMES[plain.strip('_')]}"


def retired_words(text: str) -> Iterator[tuple[int, str]]:
    """The retired words of a Python source, with their lines."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield from ((token.start[0], word) for word in retired_names(token.string))
        elif token.type in (tokenize.STRING, tokenize.COMMENT):
            for number, line in enumerate(token.string.splitlines(), token.start[0]):
                yield from ((number, word) for word in _PROSE.findall(_EXCEPTED.sub("", line)))


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_uses_no_retired_word(path: Path) -> None:
    assert list(retired_names(path.stem)) == []
    assert list(retired_words(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "name", ["by_place", "Places", "_PLACES", "test_it_is_told", "Seat", "looks"]
)
def test_a_retired_word_is_found_in_a_name(name: str) -> None:
    assert len(list(retired_names(name))) == 1


@pytest.mark.parametrize("name", ["replace", "time_stamp", "DEAD_LETTERS", "test_it_looks_up"])
def test_other_words_that_contain_it_are_not(name: str) -> None:
    assert list(retired_names(name)) == []


def test_a_retired_word_is_found_with_its_line() -> None:
    text = 'x = 1\n"""Fine.\n\nWhoever reads is told."""\n# seats\nreplace = "places"\n'
    assert list(retired_words(text)) == [(4, "Whoever"), (4, "told"), (5, "seats")]
