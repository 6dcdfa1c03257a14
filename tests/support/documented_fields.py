"""The fields of what `rmq` prints as JSON, as docs/command-line.md lists them."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
ROW = re.compile(r"^\| (`[^|]+`) \| [^|]+ \| ([^|]+) \|$", re.MULTILINE)


def documented() -> dict[str, list[str]]:
    """The fields by verb; what stands in parentheses says more of the field before it."""
    found = {}
    for verbs, fields in ROW.findall(PAGE.read_text()):
        names = re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", fields))
        found.update(dict.fromkeys(re.findall(r"`([\w -]+)`", verbs), names))
    return found
