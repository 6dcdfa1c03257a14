"""The built site: it needs no network, shows the notebook, and labels the cells of its tables."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# What a page loads by itself; `<a href>` is followed by readers alone.
LOADS = re.compile(r"<(?:script|img|iframe|source|embed)\b[^>]*?\ssrc=[\"']?([^\"' >]+)")
LINKS = re.compile(r"<link\b[^>]*?\shref=[\"']?([^\"' >]+)")
STYLE_LOADS = re.compile(r"url\([\"']?([^\"')]+)|@import\s+[\"']([^\"']+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


def loaded(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    if path.suffix == ".css":
        return [first or second for first, second in STYLE_LOADS.findall(text)]
    return LOADS.findall(text) + LINKS.findall(text) + [u for u, _ in STYLE_LOADS.findall(text)]


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.suffix in (".html", ".css", ".svg")]
    assert len(files) > 20
    elsewhere = {
        path.name: urls
        for path in files
        if (urls := [url for url in loaded(path) if re.match(r"(?:https?:)?//", url)])
    }
    assert elsewhere == {}


def test_a_load_from_another_host_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<script async src="https://h/x.js"></script><link rel=stylesheet href=//h/y>')
    assert loaded(page) == ["https://h/x.js", "//h/y"]
    style = tmp_path / "style.css"
    style.write_text("a { background: url(https://h/z.png) } @import 'https://h/w.css';")
    assert loaded(style) == ["https://h/z.png", "https://h/w.css"]


def test_code_is_highlighted_and_can_be_copied(site: Path) -> None:
    page = (site / "batch.html").read_text("utf-8")
    assert '<span class="kn">import</span>' in page
    assert "content.code.copy" in page


def test_search_finds_an_option_and_an_error_in_files_too(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text("utf-8")
    assert '"options.html#startingoffsets"' in index
    assert '"errors.html#rocketmq_optionunknown"' in index


def test_cells_carry_the_heading_of_their_column(site: Path) -> None:
    page = (site / "options.html").read_text("utf-8")
    assert '<td data-label="what it holds">' in page
    assert "Written by" not in re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)


def test_the_notebook_is_a_page_and_a_download(site: Path) -> None:
    page = (site / "lag.html").read_text("utf-8")
    assert "LagChart" in page
    assert 'href="lag.ipynb"' in page
    assert (site / "lag.ipynb").exists()
