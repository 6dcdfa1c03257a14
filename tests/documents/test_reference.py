"""The pages that list things list all of them, and the tests that they name are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", ["docs/guarantees.md", "docs/protocol.md", "CONTRIBUTING.md"])
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for path, _, name in re.findall(r"`(tests/[\w/]+(?:\.py)?)(::(\w+))?`", text):
        assert (ROOT / path).exists(), f"{page} names {path}"
        if name:
            functions = ast.walk(ast.parse((ROOT / path).read_text("utf-8")))
            assert name in {f.name for f in functions if isinstance(f, ast.FunctionDef)}, name


def test_every_file_of_a_recipe_is_there() -> None:
    recipes = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`((?:connector|broker_sim|docs|tests)/[\w./]+)`", recipes)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {page.name for page in (ROOT / "docs").iterdir() if page.suffix in (".md", ".ipynb")}
    assert {page for page in pages if f"{Path(page).stem}.md" not in menu} == set()
