"""The documentation's site in a real browser: pages fit their window, and the search works."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from browser.chromium import Page, chromium

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "build" / "pages"
IS_DARK = "document.body.dataset.mdColorScheme === 'slate'"
# Code is scrolled in its own box; nothing else of a page is wider than it looks.
WIDER = """
    [document.documentElement, ...document.querySelectorAll(".md-content *")]
      .filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX != "visible")
      .filter(e => !e.closest("pre") && !e.closest("svg"))
      .map(e => e.outerHTML.slice(0, 200))
"""
FOUND = "[...document.querySelectorAll('.md-search-result__item a')].map(a => a.href).join()"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        check=True,
    )
    return folder


@pytest.mark.timeout(600)
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_every_page_fits_its_window(site: Path, tmp_path: Path, width: int, is_dark: bool) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    name = f"docs-{{}}-{width}-{'dark' if is_dark else 'light'}.png"

    async def look(address: str) -> None:
        async with Page.open(address) as page:
            # Servers show 404.html for any address, so its links begin at the site's root.
            for path in sorted(set(site.glob("*.html")) - {site / "404.html"}):
                await page.show(path.as_uri(), width=width, is_dark=is_dark)
                assert await page.value(WIDER) == [], path.name
                assert await page.value(IS_DARK) is is_dark, path.name
                await page.screenshot(PICTURES / name.format(path.stem))

    with chromium(tmp_path) as address:
        asyncio.run(look(address))


def test_the_search_of_files_finds_an_option(site: Path, tmp_path: Path) -> None:
    async def search(address: str) -> str:
        async with Page.open(address) as page:
            url = (site / "index.html").as_uri() + "?q=startingOffsets"
            await page.show(url, width=1280, is_dark=False)
            for _ in range(100):
                if found := await page.value(FOUND):
                    return str(found)
                await asyncio.sleep(0.1)
        return ""

    with chromium(tmp_path) as address:
        assert "options.html?h=startingoffsets#startingoffsets" in asyncio.run(search(address))
