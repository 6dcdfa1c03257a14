"""Hooks of the documentation's build: the notebook as a page, and tables that fit a phone."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_NOTEBOOK = "lag.ipynb"
_PAGE = "lag.md"
_TABLE = re.compile(r"<table>\n<thead>.*?</table>", re.DOTALL)
_HEAD = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
_ROW = re.compile(r"<tr>.*?</tr>", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of the notebook; the notebook itself stays for download."""
    book = nbformat.read(Path(config.docs_dir, _NOTEBOOK), as_version=4)  # type: ignore[no-untyped-call]
    files.append(File.generated(config, _PAGE, content=notebook_markdown(book)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead readers of other pages to the notebook's page."""
    return (
        markdown if page.file.src_uri == _PAGE else markdown.replace(f"({_NOTEBOOK})", f"({_PAGE})")
    )


def on_page_content(html: str, **_: Any) -> str:
    """Give each cell of a table its column's heading, which a phone shows before it."""
    return _TABLE.sub(lambda table: labelled(table[0]), html)


def notebook_markdown(book: Any) -> str:
    """A notebook's cells and what they gave, as a page."""
    parts = []
    for cell in book.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        else:
            parts.append(f"```python\n{cell.source}\n```")
            parts += [shown for output in cell.outputs if (shown := _output(output))]
    return "\n\n".join([*parts, f"[Download the notebook]({_NOTEBOOK})."])


def _output(output: Any) -> str:
    if output.output_type == "stream":
        return f'<div class="output" markdown="0"><pre>{escape(output.text)}</pre></div>'
    data = output.get("data", {})
    html = data.get("text/html") or f"<pre>{escape(data.get('text/plain', ''))}</pre>"
    return f'<div class="output" markdown="0">{html}</div>'


def labelled(table: str) -> str:
    """The table with its headings in every cell's `data-label`, but the first cell's."""
    names = [escape(re.sub(r"<[^>]+>", "", name)) for name in _HEAD.findall(table)]

    def row(match: re.Match[str]) -> str:
        labels = iter(
            f' data-label="{name}"' if at and name else "" for at, name in enumerate(names)
        )
        return re.sub(r"<td", lambda _: f"<td{next(labels, '')}", match[0])

    return _ROW.sub(row, table)
