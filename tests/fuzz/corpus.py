"""The kept inputs of each target: a text file with one input a line, in base64."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from fuzz.targets import TARGETS

FOLDER: Final = Path(__file__).parent / "corpus"
INPUT_SIZE_MAX: Final = 1_024
"""Longer inputs are found again from shorter ones, and are not kept."""
INPUTS_MAX: Final = 400


def kept(name: str) -> list[bytes]:
    """The inputs in a target's file; none if there is no file."""
    path = FOLDER / f"{name}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [base64.b64decode(line) for line in lines]


def lay_out(name: str, folder: Path) -> int:
    """Write the seeds and the kept inputs of a target into a folder, for libFuzzer; their count."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {*TARGETS[name].seeds(), *kept(name)}
    for data in found:
        (folder / hashlib.sha256(data).hexdigest()[:20]).write_bytes(data)
    return len(found)


def keep(name: str, inputs: Iterable[bytes]) -> int:
    """Replace a target's file by the shortest of these inputs, less the seeds; their count."""
    seeds = set(TARGETS[name].seeds())
    found = sorted({one for one in inputs if len(one) <= INPUT_SIZE_MAX} - seeds)
    lines = [base64.b64encode(one).decode() for one in sorted(found, key=len)[:INPUTS_MAX]]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
    return len(lines)
