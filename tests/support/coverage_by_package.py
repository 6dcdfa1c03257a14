"""Coverage data of all processes -> a table of lines and branches by package.

The screens of the command line have a row of their own and are left out of the total: tests look at
them in a browser and in a terminal.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

SCREENS = ("rocketmq_cli/status_page/", "rocketmq_cli/terminal/")


def package_of(path: str) -> str:
    """The package of a measured file; the screens count as one of their own."""
    inside = path.split("/", 1)[1]
    return "rocketmq_cli (screens)" if inside.startswith(SCREENS) else inside.partition("/")[0]


def table(files: dict[str, dict[str, dict[str, int]]]) -> list[str]:
    """A Markdown table, the total last. `files` are the `files` of coverage's JSON report."""
    sums: dict[str, Counter[str]] = {}
    for path, found in files.items():
        package = package_of(path)
        sums.setdefault(package, Counter()).update(found["summary"])
        if "screens" not in package:
            sums.setdefault("all but the screens", Counter()).update(found["summary"])
    rows = ["| package | lines | branches |", "|---|---:|---:|"]
    for package in sorted(sums, key=lambda name: (name.startswith("all"), name)):
        counts = sums[package]
        lines = 100 * counts["covered_lines"] / max(1, counts["num_statements"])
        branches = 100 * counts["covered_branches"] / max(1, counts["num_branches"])
        rows.append(f"| {package} | {lines:.1f} % | {branches:.1f} % |")
    return rows


if __name__ == "__main__":
    print("\n".join(table(json.loads(Path(sys.argv[1]).read_text("utf-8"))["files"])))
