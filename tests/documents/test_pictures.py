"""The pictures of the documentation: small, shown by a page, and made by a test."""

from __future__ import annotations

import re
from pathlib import Path

from browser.test_status_pages import DOCUMENTED, PICTURE_BYTES_MAX

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"


def test_every_picture_that_a_page_shows_is_there() -> None:
    for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]:
        for target in re.findall(r"!\[[^\]]*\]\(([^)\s#]+)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} shows {target}"


def test_the_pictures_of_the_status_pages_are_made_shown_and_small() -> None:
    page = (ROOT / "docs" / "status-pages.md").read_text(encoding="utf-8")
    assert set(re.findall(r"images/([\w-]+)\.png", page)) == set(DOCUMENTED)
    for name in DOCUMENTED:
        assert 5_000 < (IMAGES / f"{name}.png").stat().st_size <= PICTURE_BYTES_MAX
