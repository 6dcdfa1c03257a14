"""The picture of the demo shows what the demo prints."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "demo.svg"
SIZE_MAX = 60_000
SVG = "{http://www.w3.org/2000/svg}"


def shown() -> list[str]:
    picture = ElementTree.fromstring(PICTURE.read_text("utf-8"))
    return [unescape(text.text or "") for text in picture.iter(f"{SVG}text")]


def structure(lines: list[str]) -> list[str]:
    """The lines without numbers and widths; batches, whose number varies, are one line."""
    plain = [re.sub(r"\s+", " ", re.sub(r"\d[\d,.]*", "N", line)).strip() for line in lines]
    return [line for at, line in enumerate(plain) if line and (at == 0 or line != plain[at - 1])]


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_picture_shows_what_the_demo_prints() -> None:
    rmq = Path(sys.executable).with_name("rmq")
    demo = subprocess.run([str(rmq), "demo", "--short"], capture_output=True, text=True, check=True)
    prompt, *lines = shown()
    assert prompt == "$ ./run demo"
    assert structure(lines) == structure(demo.stdout.splitlines())


def test_the_picture_is_small_and_loads_nothing() -> None:
    assert PICTURE.stat().st_size < SIZE_MAX
    text = PICTURE.read_text("utf-8").replace(SVG.strip("{}"), "")
    assert "http" not in text
    assert "<script" not in text
    assert "prefers-color-scheme: dark" in text


def test_the_structure_of_a_line_has_no_numbers() -> None:
    lines = ["  batch 0: 700 orders in 812 ms", "  batch 1: 90 orders in 9 ms", "", "a   1,954"]
    assert structure(lines) == ["batch N: N orders in N ms", "a N"]
