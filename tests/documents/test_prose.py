"""The documentation and the help use no phrase that readers had to read twice."""

from __future__ import annotations

import re
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_cli.arguments import make_parser
from support.retired_words import DOCUMENTATION, EXCEPTIONS, PROSE

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_PHRASE = re.compile(rf"\b(?:{'|'.join((*PROSE, *DOCUMENTATION))})\b", re.IGNORECASE)
_EXCEPTED = re.compile(rf"(?<![A-Za-z])(?:{'|'.join(EXCEPTIONS)})(?![A-Za-z])|`[^`]*`")
# Questions may begin with "What", and the pages' "What to do:".
_BEGINNING = re.compile(r"(?:^|(?<=[.:;!?] )|(?<=\| ))(?:Of|Whoever|What(?! to do:)(?=[^?|]*\.))\b")


def retired(text: str) -> Iterator[str]:
    """The phrases of a text, with their lines; code blocks and headings are left out."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith("#"):
            plain = _EXCEPTED.sub("", line)
            found = _PHRASE.findall(plain) + _BEGINNING.findall(plain.lstrip("-*> "))
            yield from (f"{number}: {phrase}" for phrase in found)


def helps(parser: ArgumentParser) -> Iterator[tuple[str, str]]:
    """The help of a command and of everything below it."""
    yield parser.prog, parser.format_help()
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for below in action.choices.values():
                yield from helps(below)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_no_retired_phrase(page: Path) -> None:
    assert list(retired(page.read_text(encoding="utf-8"))) == []


HELPS = dict(helps(make_parser()))


@pytest.mark.parametrize("command", HELPS)
def test_the_help_of_a_command_has_no_retired_phrase(command: str) -> None:
    # As one line: a phrase may be wrapped.
    assert list(retired(" ".join(HELPS[command].split()))) == []


def test_a_retired_phrase_is_found_with_its_line() -> None:
    text = "Fine.\n```sh\ntold\n```\nIt is told. Of two one wins.\nWhat goes.\nWhat now?\n`anew`\n"
    assert list(retired(text)) == ["5: told", "5: Of", "6: What"]
