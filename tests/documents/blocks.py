"""Markdown -> its fenced code blocks, in the order in which a reader would run them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

_FENCE = re.compile(r"^```(\w*)$")
# Other fences are no blocks here, but readers of the page would see one.
_OTHER_FENCE = re.compile(r"^\s*(```|~~~)")
_REMARK = re.compile(r"^<!-- (not run: .+|run first|output) -->$")


@dataclass(frozen=True, slots=True)
class Block:
    """One block; `why_not` says why it is not run, `output` what the page says that it prints."""

    language: str
    text: str
    line: int
    why_not: str | None = None
    is_first: bool = False
    output: str | None = None


def blocks_of(markdown: str) -> list[Block]:
    """Every fenced block. Raises ValueError for one that does not end, or begins in another way.

    A block with the remark `output` is no block of its own, but the output of the one before it.
    """
    found = list[Block]()
    for block, is_output in _blocks(markdown):
        if is_output:
            found[-1] = replace(found[-1], output=block.text)
        else:
            found.append(block)
    return [b for b in found if b.is_first] + [b for b in found if not b.is_first]


def _blocks(markdown: str) -> Iterator[tuple[Block, bool]]:
    """Every fenced block, and whether it is an output."""
    remark, begun, language, lines = "", 0, "", list[str]()
    for number, line in enumerate(markdown.splitlines(), 1):
        fence = _FENCE.match(line)
        if begun and line == "```":
            why_not = remark.removeprefix("not run: ") if remark.startswith("not run") else None
            text = "\n".join(lines) + "\n"
            block = Block(language, text, begun, why_not, remark == "run first")
            yield block, remark == "output"
            remark, begun = "", 0
        elif begun:
            lines.append(line)
        elif fence:
            begun, language, lines = number, fence[1], []
        elif _OTHER_FENCE.match(line):
            raise ValueError(f"line {number} is no fence that is known here: {line!r}")
        elif said := _REMARK.match(line):
            remark = said[1]
        elif line.strip():
            remark = ""
    if begun:
        raise ValueError(f"the block that begins in line {begun} does not end")


def matches(stated: str, printed: str) -> bool:
    """Whether a block printed what its page states.

    `...` stands for the rest of a word or line, a line of `...` alone for any lines.
    """
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else f"{_line_pattern(line)}\\n"
        for line in stated.splitlines()
    )
    lines = "".join(f"{line.rstrip()}\n" for line in printed.rstrip().splitlines())
    return re.fullmatch(pattern, lines) is not None


def _line_pattern(line: str) -> str:
    return ".*".join(map(re.escape, line.rstrip().split("...")))
