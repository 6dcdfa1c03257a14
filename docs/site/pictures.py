"""Runs the demo and the notebook; writes the picture of the one and the results of the other.

python docs/site/pictures.py [demo] [notebook]; without arguments both
"""

from __future__ import annotations

import subprocess
import sys
import time
from html import escape
from pathlib import Path
from typing import Final

import nbformat
from nbclient import NotebookClient

DOCS: Final = Path(__file__).parents[1]
_DEMO: Final = DOCS / "images" / "demo.svg"
_NOTEBOOK: Final = DOCS / "lag.ipynb"
_PROMPT: Final = "$ ./run demo"
# Longer waits are cut: a reader watches for seconds.
_WAIT_S_MAX: Final = 1.2
_CELL_TIMEOUT_S: Final = 600
_LINE_PX: Final = 19
_COLUMN_PX: Final = 7.8
_STYLE: Final = """\
svg { --back: #f6f8fa; --text: #1f2328; --quiet: #59636e; --edge: #d1d9e0 }
@media (prefers-color-scheme: dark) {
  svg { --back: #0d1117; --text: #e6edf3; --quiet: #9198a1; --edge: #3d444d }
}
rect { fill: var(--back); stroke: var(--edge) }
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: var(--text);
  white-space: pre; animation: show 1ms both }
.prompt { font-weight: bold } .batch { fill: var(--quiet) }
@keyframes show { from { opacity: 0 } }
@media (prefers-reduced-motion: reduce) { text { animation: none } }"""


def main(parts: list[str]) -> None:
    if "demo" in parts:
        lines = timed_lines([str(Path(sys.executable).with_name("rmq")), "demo"])
        _DEMO.parent.mkdir(exist_ok=True)
        _DEMO.write_text(terminal_svg(_PROMPT, lines), encoding="utf-8")
    if "notebook" in parts:
        _write_results()


def _write_results() -> None:
    book = nbformat.read(_NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    NotebookClient(book, timeout=_CELL_TIMEOUT_S).execute()
    for cell in book.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            # Spark's warnings are no results.
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    nbformat.write(book, _NOTEBOOK)  # type: ignore[no-untyped-call]


def timed_lines(command: list[str]) -> list[tuple[float, str]]:
    """The lines that a command prints, with the seconds after its start."""
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [(time.monotonic() - began, line.rstrip("\n")) for line in process.stdout]
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return lines


def terminal_svg(prompt: str, lines: list[tuple[float, str]]) -> str:
    """A terminal in which the lines appear as they were printed, and stay."""
    shown, at_s, before_s = [_text(1, prompt, 0.0)], 0.5, 0.0
    for row, (printed_s, line) in enumerate(lines, 2):
        at_s += min(printed_s - before_s, _WAIT_S_MAX)
        before_s = printed_s
        if line:
            shown.append(_text(row, line, at_s))
    width = 32 + round(_COLUMN_PX * max(len(line) for _, line in lines))
    height = 24 + _LINE_PX * (len(lines) + 1)
    texts = "\n".join(shown)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">
<title>What ./run demo prints</title>
<style>
{_STYLE}
</style>
<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>
{texts}
</svg>
"""  # noqa: E501


def _text(row: int, line: str, at_s: float) -> str:
    kind = ' class="prompt"' if at_s == 0 else ' class="batch"' if line.startswith(" ") else ""
    top = 8 + _LINE_PX * row
    delay = f"animation-delay: {at_s:.1f}s"
    return f'<text x="16" y="{top}"{kind} style="{delay}">{escape(line, quote=False)}</text>'


if __name__ == "__main__":
    main(sys.argv[1:] or ["demo", "notebook"])
