"""The part of YAML that `plain_acl.yml` files use -> dicts, lists and texts.

Maps and lists by indentation, one scalar a line, comments, quotes, and `[a, b]` or `[]`. Every
scalar is a text, so that a secret key of digits stays as it was written; nothing written is "".
What is beyond that (anchors, block texts, several documents) is refused by line.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

Yaml = str | list["Yaml"] | dict[str, "Yaml"]

_KEY: Final = re.compile(r"(?P<key>[^\s:#\"'\[\]{}&*!|>%@`-][^:#]*?)\s*:(?:\s+(?P<rest>.*))?$")
_REFUSED: Final = ("&", "*", "!", "|", ">", "{", "%", "@", "`")


class YamlError(ValueError):
    """A line is none that we read."""


class _Line(NamedTuple):
    number: int
    indent: int
    text: str


def parse_yaml(text: str) -> Yaml:
    """The document in a text. Raises YamlError, which shows no value."""
    lines: list[_Line] = []
    for number, raw in enumerate(text.splitlines(), 1):
        content = _without_comment(raw.rstrip())
        stripped = content.lstrip(" ")
        if not stripped or (stripped == "---" and not lines):
            continue
        if "\t" in content[: len(content) - len(content.lstrip())]:
            raise YamlError(f"line {number}: tabs do not indent")
        lines.append(_Line(number, len(content) - len(stripped), stripped.rstrip()))
    if not lines:
        return {}
    value, end = _block(lines, 0, lines[0].indent)
    if end < len(lines):
        raise YamlError(f"line {lines[end].number}: the indentation fits nothing above")
    return value


def _block(lines: list[_Line], at: int, indent: int) -> tuple[Yaml, int]:
    if _is_item(lines[at]):
        return _list(lines, at, indent)
    return _map(lines, at, indent)


def _list(lines: list[_Line], at: int, indent: int) -> tuple[Yaml, int]:
    items: list[Yaml] = []
    while at < len(lines) and lines[at].indent == indent and _is_item(lines[at]):
        line = lines[at]
        rest = line.text[1:].lstrip(" ")
        inner = indent + len(line.text) - len(rest)
        if rest and _KEY.match(rest):
            # The map begins on the dash's own line.
            lines[at] = _Line(line.number, inner, rest)
            value, at = _map(lines, at, inner)
        elif rest:
            value, at = _scalar(rest, line.number), at + 1
        elif at + 1 < len(lines) and lines[at + 1].indent > indent:
            value, at = _block(lines, at + 1, lines[at + 1].indent)
        else:
            value, at = "", at + 1
        items.append(value)
    return items, at


def _map(lines: list[_Line], at: int, indent: int) -> tuple[Yaml, int]:
    found: dict[str, Yaml] = {}
    while at < len(lines) and lines[at].indent == indent and not _is_item(lines[at]):
        line = lines[at]
        match = _KEY.match(line.text)
        if match is None:
            raise YamlError(f"line {line.number}: a key and a colon were expected")
        key, rest = match["key"], match["rest"] or ""
        if key in found:
            raise YamlError(f"line {line.number}: {key} is there twice")
        at += 1
        if rest:
            found[key] = _scalar(rest, line.number)
        elif at < len(lines) and _is_value_of(lines[at], indent):
            found[key], at = _block(lines, at, lines[at].indent)
        else:
            found[key] = ""
    return found, at


def _is_value_of(line: _Line, indent: int) -> bool:
    # A list may stand below its key without being indented.
    return line.indent > indent or (line.indent == indent and _is_item(line))


def _is_item(line: _Line) -> bool:
    return line.text == "-" or line.text.startswith("- ")


def _scalar(text: str, number: int) -> Yaml:
    if text[0] in "\"'":
        if len(text) < 2 or text[-1] != text[0] or "\\" in text:
            raise YamlError(f"line {number}: a quoted text must end on its line, without escapes")
        return text[1:-1].replace("''", "'") if text[0] == "'" else text[1:-1]
    if text[0] == "[":
        if text[-1] != "]":
            raise YamlError(f"line {number}: a list in brackets must end on its line")
        inner = text[1:-1].strip()
        return [_scalar(part.strip(), number) for part in inner.split(",")] if inner else []
    if text[0] in _REFUSED and text != "*" and not text.startswith("*."):
        raise YamlError(f"line {number}: texts that begin with {text[0]} must be quoted")
    return "" if text in ("null", "~") else text


def _without_comment(line: str) -> str:
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and (place == 0 or line[place - 1] in " [,"):
            quote = letter
        elif letter == "#" and (place == 0 or line[place - 1] == " "):
            return line[:place]
    return line
