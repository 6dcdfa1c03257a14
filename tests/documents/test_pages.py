"""Every code block of the documentation does what the text around it says."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from documents.blocks import Block, blocks_of, matches
from rocketmq_broker import Broker

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELL_TIMEOUT_S = 240
RUN = ("python", "sh", "sql")
LINKS = re.compile(r"\]\((?!https?://)([^)#\s]*)(#[^)\s]+)?\)")


def runnable(page: Path) -> list[Block]:
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    return [b for b in blocks if b.language in RUN and b.why_not is None]


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("page", [p for p in PAGES if runnable(p)], ids=lambda page: page.name)
def test_a_page_runs_from_top_to_bottom(
    page: Path, spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    names = {"spark": spark, "__name__": "__main__"}
    before = spark.conf.getAll
    try:
        for block in runnable(page):
            text = meant_here(block.text, broker, tmp_path)
            where = f"{page.name}:{block.line}"
            printed = io.StringIO()
            with redirect_stdout(printed), redirect_stderr(printed):
                if block.language == "sh":
                    print(run_shell(text, where, broker, tmp_path))
                elif block.language == "sql":
                    run_sql(text, spark)
                else:
                    # As wide as the page: errors name its lines.
                    code = compile("\n" * block.line + text, str(page), "exec")
                    exec(code, names)
            if block.output is not None:
                stated = meant_here(block.output, broker, tmp_path)
                assert matches(stated, printed.getvalue()), f"{where}\n{printed.getvalue()}"
    finally:
        for query in spark.streams.active:
            query.stop()
        for table in spark.catalog.listTables():
            spark.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} {table.name}")
        for name in spark.conf.getAll.keys() - before.keys():
            spark.conf.unset(name)


def meant_here(text: str, broker: Broker, folder: Path) -> str:
    """The text with this broker and a folder of the test's in place of the documented ones."""
    for address, here in (("9876", broker.name_server), ("8081", broker.endpoints)):
        text = text.replace(f"127.0.0.1:{address}", here)
    return text.replace("/tmp/", f"{folder}/")


def run_sql(text: str, spark: SparkSession) -> None:
    for statement in filter(str.strip, text.split(";\n")):
        rows = spark.sql(statement)
        if rows.columns:
            rows.show(truncate=False)


def run_shell(text: str, where: str, broker: Broker, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # Where these are set pytest prints its summary in full.
    kept = {k: v for k, v in os.environ.items() if k not in ("CI", "BUILD_NUMBER")}
    environment = {**kept, "PATH": path, "NAMESRV_ADDR": broker.name_server}
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SHELL_TIMEOUT_S,
        check=False,
    )
    assert ended.returncode == 0, f"{where}\n{ended.stdout}"
    return ended.stdout.rstrip("\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_runs_or_says_why_not(page: Path) -> None:
    wrong = {
        b.line: problem for b in blocks_of(page.read_text("utf-8")) if (problem := wrong_with(b))
    }
    assert not wrong, f"{page.name}: {wrong}"


def wrong_with(block: Block) -> str | None:
    """Why a block has no place in a page; None for one that has."""
    if block.language == "python":
        ast.parse(block.text)
    elif block.language == "json":
        # Data: it can be read, which is all that there is to run.
        json.loads(block.text)
    elif block.language not in RUN and block.why_not is None:
        return f"{block.language or 'no language'}: neither run nor with a reason why not"
    if block.output is not None and block.why_not is not None:
        return "its output cannot be compared, as it does not run"
    for path in re.findall(r"tests/[\w/]+(?:\.py)?", block.why_not or ""):
        if not (ROOT / path).exists():
            return f"there is no {path}"
    return None


@pytest.mark.parametrize("fence", ["```", "```text", "```console"])
def test_commands_do_not_escape_under_another_name(fence: str) -> None:
    page = f"{fence}\n./run demo\n```\n"
    (block,) = blocks_of(page)
    assert wrong_with(block) is not None
    (excused,) = blocks_of(f"<!-- not run: a reason -->\n{page}")
    assert wrong_with(excused) is None
    (elsewhere,) = blocks_of(f"<!-- not run: tests/no_such_test.py does so -->\n{page}")
    assert wrong_with(elsewhere) == "there is no tests/no_such_test.py"


@pytest.mark.parametrize("fence", ["```sh hl_lines=1", "  ```sh", "~~~sh"])
def test_a_fence_of_another_kind_is_refused(fence: str) -> None:
    with pytest.raises(ValueError, match="no fence that is known here"):
        blocks_of(f"{fence}\nls\n```\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, anchor in LINKS.findall(page.read_text(encoding="utf-8")):
        file = page if not target else (page.parent / target)
        assert file.exists(), f"{page.name} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors_of(file), f"{page.name} links to {target}{anchor}"


def anchors_of(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_blocks_are_found_with_their_remarks() -> None:
    page = "a\n```python\nx = 1\n```\n<!-- not run: why -->\n```sh\nls\n```\n<!-- run first -->\n"
    page += "```sh\npwd\n```\n"
    first, second, third = blocks_of(page)
    assert (first.text, first.is_first) == ("pwd\n", True)
    assert (second.language, second.line, second.why_not) == ("python", 2, None)
    assert (third.text, third.why_not) == ("ls\n", "why")
    with pytest.raises(ValueError, match="line 1"):
        blocks_of("```python\nx\n")


def test_an_output_belongs_to_the_block_before_it() -> None:
    page = "```sh\nls\n```\n\n<!-- output -->\n```text\nfile\n```\n"
    (block,) = blocks_of(page)
    assert (block.text, block.output) == ("ls\n", "file\n")


@pytest.mark.parametrize(
    ("stated", "is_right"),
    [
        ("2 rows\ntook 13 ms\n", True),
        ("2 rows\ntook ... ms\n", True),
        ("...\ntook 13 ms\n", True),
        ("2 rows\n", False),
        ("3 rows\n...\n", False),
        ("took ... ms\n", False),
    ],
)
def test_a_stated_output_is_compared(stated: str, is_right: bool) -> None:
    assert matches(stated, "2 rows  \ntook 13 ms\n\n") is is_right
