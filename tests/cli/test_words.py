"""The parts of `rmq` that need no cluster: lines, tables, addresses, codes."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from argparse import ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from rocketmq_cli import commands
from rocketmq_cli.arguments import VERBS, make_parser, parse
from rocketmq_cli.commands.produce import LINE_SIZE_MAX, paced, read_lines
from rocketmq_cli.connection import connection_settings
from rocketmq_cli.main import main
from rocketmq_cli.terminal.output import Record, cell_text, format_table, moment, show
from rocketmq_cli.terminal.progress import CountLine
from rocketmq_cli.usage import EXIT_USAGE, UsageError, parse_duration_ms, parse_moment_ms


class Pipe(io.RawIOBase):
    """Gives what was written to it in the very pieces in which it was written."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    def read1(self, _size: int) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


@pytest.mark.parametrize(
    ("pieces", "batches"),
    [
        ((b"one\ntwo\n",), [[b"one", b"two"]]),
        ((b"on", b"e\ntw", b"o\n"), [[b"one"], [b"two"]]),
        ((b"no end",), [[b"no end"]]),
        ((b"windows\r\nlines\r\n",), [[b"windows", b"lines"]]),
        ((b"\n\none\n\n",), [[b"one"]]),
        ((b"one\r", b"\ntw", b"o", b"\n", b"\n\r", b"\n", b"3"), [[b"one"], [b"two"], [b"3"]]),
        ((), []),
    ],
)
def test_lines_are_handed_on_as_they_come(
    pieces: tuple[bytes, ...], batches: list[list[bytes]]
) -> None:
    assert list(read_lines(Pipe(*pieces))) == batches  # type: ignore[arg-type]


class Endless(io.RawIOBase):
    """Gives the same byte for ever, and counts."""

    def __init__(self) -> None:
        self.given = 0

    def read1(self, size: int) -> bytes:
        self.given += size
        return b"x" * size


def test_input_without_an_end_of_line_is_given_up_before_it_fills_the_memory() -> None:
    source = Endless()
    with pytest.raises(UsageError, match="line 1, not counting empty ones, is longer than"):
        list(read_lines(source))  # type: ignore[arg-type]
    assert source.given <= LINE_SIZE_MAX + (1 << 20)


@pytest.mark.parametrize("pieces", [(b"one\n12345678", b"9\n"), (b"one\n", b"1234", b"56789")])
def test_a_long_line_is_named_behind_those_before_it(pieces: tuple[bytes, ...]) -> None:
    lines = read_lines(Pipe(*pieces), 8)  # type: ignore[arg-type]
    assert next(lines) == [b"one"]
    with pytest.raises(UsageError, match="line 2"):
        list(lines)


def test_a_line_at_the_limit_is_taken_with_either_end() -> None:
    pieces = (b"12345678\r", b"\n12345678\n12345678")
    lines = read_lines(Pipe(*pieces), 8)  # type: ignore[arg-type]
    assert [line for some in lines for line in some] == [b"12345678"] * 3


class Terminal(io.StringIO):
    """Standard error at a terminal."""

    def isatty(self) -> bool:
        return True


def shown_by(line: Callable[[], CountLine], is_seen: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a line of progress writes in a second of work, ten steps of it."""
    clock = [0.0]
    time = SimpleNamespace(monotonic=lambda: clock[0])
    monkeypatch.setattr("rocketmq_cli.terminal.progress.time", time)
    error = Terminal() if is_seen else io.StringIO()
    monkeypatch.setattr(sys, "stderr", error)
    plural = line()
    for _ in range(10):
        clock[0] += 0.1
        plural.add(5, 50)
    plural.close()
    return error.getvalue()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (lambda: CountLine(), "\r50 messages, 50/s\x1b[K"),
        (lambda: CountLine(total=80), "\r50 of 80 messages, 50/s\x1b[K"),
        (lambda: CountLine(size_total=1_000), "\r50 messages (50 %), 50/s\x1b[K"),
        (lambda: CountLine(size_total=0), "\r50 messages, 50/s\x1b[K"),
    ],
    ids=["count", "total", "share", "nothing to do"],
)
def test_a_count_line_is_shown_at_terminals_only_and_cleared(
    line: Callable[[], CountLine], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = shown_by(line, True, monkeypatch)
    assert shown in written
    assert written.endswith("\r\x1b[K")
    assert written.count("/s") < 10
    assert shown_by(line, False, monkeypatch) == ""


def test_one_message_has_no_plural_s() -> None:
    line = CountLine(done=" sent")
    line.add(1)
    assert line.summary().startswith("1 message sent, ")
    line.add(1_200)
    assert line.summary().startswith("1,201 messages sent, ")


def test_a_count_line_is_not_shown_beside_messages_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert shown_by(lambda: CountLine(is_shown=False), True, monkeypatch) == ""


def test_a_table_aligns_numbers_to_the_right_and_text_to_the_left() -> None:
    table = format_table(("name", "count"), [("a", "1,000"), ("long", "7")])
    assert table.splitlines() == ["name  count", "a     1,000", "long      7"]


def test_a_table_without_rows_is_its_titles() -> None:
    assert format_table(("name", "count"), []) == "name  count"


def test_times_are_utc_and_no_time_is_a_dash() -> None:
    assert cell_text("a\x1b]0;b\x07\x9bc\td") == "a\\x1b]0;b\\x07\\x9bc\td"
    assert cell_text(["a\x7f", "b"]) == "a\\x7f, b"
    assert cell_text({"a": "\r"}) == "a=\\x0d"
    assert cell_text(moment(1_700_000_000_123)) == "2023-11-14 22:13:20.123Z"
    assert cell_text(moment(0)) == "-"
    assert cell_text(moment(2**62)) == "9999-12-31 23:59:59.999Z"


def _args(**values: str | bool | None) -> Namespace:
    names = ("name_server", "endpoints", "tls", "tls_no_verify", "tls_ca_file", "tls_cert_file")
    unset = dict.fromkeys((*names, "profile", "tls_key_file", "tls_server_name"))
    return Namespace(**{**unset, **values})


def test_name_servers_come_from_the_option_before_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert connection_settings(_args()).name_servers == ("a:1", "b:2")
    assert connection_settings(_args(name_server="c:3")).name_servers == ("c:3",)
    settings = connection_settings(_args(endpoints="d:4"))
    assert (settings.endpoints, settings.name_servers) == ("d:4", ())


def test_a_name_server_without_a_port_has_rocketmqs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    found = connection_settings(_args(name_server="a; 10.0.0.7,b:1;[::1]"))
    assert found.name_servers == ("a:9876", "10.0.0.7:9876", "b:1", "[::1]:9876")
    lookup = "http://c/nsaddr"
    assert connection_settings(_args(name_server=lookup)).name_servers == (lookup,)


@pytest.mark.parametrize("address", ["", "host:nine", "host:99999"])
def test_an_address_that_cannot_be_used_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(UsageError):
        connection_settings(_args(name_server=address))


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["tail", "orders"], "did you mean --count 3?"),
        (["dlq", "replay", "g"], "did you mean --limit 3?"),
        (["cluster"], "give HOST:PORT"),
    ],
)
def test_a_number_is_no_address(
    words: list[str], advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "-n", "3"]) == EXIT_USAGE
    assert f"3 is no address; {advice}" in capsys.readouterr().err


def test_a_command_without_a_cluster_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert main(["topic", "list"]) == EXIT_USAGE
    assert "NAMESRV_ADDR" in capsys.readouterr().err


def test_name_server_and_endpoints_exclude_each_other() -> None:
    with pytest.raises(SystemExit) as stopped:
        make_parser().parse_args(["tail", "t", "--name-server", "a:1", "--endpoints", "b:2"])
    assert stopped.value.code == EXIT_USAGE


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([verb, "--help"])
    assert stopped.value.code == 0
    assert f"usage: rmq {verb}" in capsys.readouterr().out


def leaves(
    parser: ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], ArgumentParser]]:
    """Every verb, and every verb of a verb, by the words that name it."""
    if path:
        yield path, parser
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for word, below in action.choices.items():
                yield from leaves(below, (*path, word))


PARSERS = dict(leaves(make_parser()))
LEAVES = sorted(PARSERS)
# Up to a comment, which stands behind several blanks or in parentheses, or to the next command.
_EXAMPLE = re.compile(r"\brmq [a-z].*?(?=\s{2,}|\s*\||\)|$)", re.MULTILINE)


def test_every_noun_and_verb_is_checked() -> None:
    assert {path[0] for path in LEAVES} == set(VERBS)
    assert {module.name for module in pkgutil.iter_modules(commands.__path__)} == set(VERBS)
    assert ("topic", "create") in LEAVES


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_verb_s_help_has_examples_that_are_right(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*path, "--help"])
    assert stopped.value.code == 0
    _, word, examples = capsys.readouterr().out.rpartition("example")
    assert word, "there are none"
    found = [shlex.split(example.group()) for example in _EXAMPLE.finditer(examples)]
    assert any(words[1 : 1 + len(path)] == list(path) for words in found), examples
    for words in found:
        parse(words[1:])


@pytest.mark.parametrize(
    "path",
    [path for path in LEAVES if path[0] not in {"demo", "ui", "serve", "completion"}],
    ids=" ".join,
)
def test_every_verb_with_output_has_json(path: tuple[str, ...]) -> None:
    """`produce` reads it instead, as its option of that name says."""
    options = {option for action in PARSERS[path]._actions for option in action.option_strings}
    assert "--json" in options or any(longer[:-1] == path for longer in LEAVES)


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    read, write = os.pipe()
    os.close(read)
    code = (
        "import sys\n"
        "from rocketmq_cli import main as command\n"
        "def print_much():\n"
        "    print('x' * 1_000_000)\n"
        "    return 0\n"
        "sys.exit(command._guarded(print_much))"
    )
    with os.fdopen(write, "wb") as gone:
        ended = subprocess.run(
            [sys.executable, "-c", code], stdout=gone, stderr=subprocess.PIPE, check=False
        )
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("words", "guess"),
    [
        (["topc", "list"], "Did you mean 'topic'?"),
        (["topic", "lst"], "Did you mean 'list'?"),
        (["send", "orders"], "Did you mean 'produce'?"),
        (["consume", "orders"], "Did you mean 'tail'?"),
        (["xyzzy"], "'checkpoint'" if sys.version_info < (3, 14) else "checkpoint"),
        (["--name-server", "h:1", "topic", "list"], "the verb: rmq topic ... --name-server ..."),
        (["--endpoints=h:1", "tail", "t"], "the verb: rmq tail ... --endpoints ..."),
        (["topic", "-n", "h:1", "list"], "the verb: rmq topic list ... -n ..."),
        (["-n", "h:1"], "the verb: rmq VERB ... -n ..."),
        ([], "how fast a cluster takes and gives messages"),
        ([], "rmq: say which VERB"),
        (["topic"], "rmq topic: say which "),
        (["tail", "orders", "--folow"], "Did you mean '--follow'?"),
        (["group", "reset-offsets", "g", "--topic", "t", "--to", "latest", "--exec=1"], "--exec"),
    ],
)
def test_a_mistyped_word_is_met_with_the_nearest_one(
    words: list[str], guess: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == EXIT_USAGE
    assert guess in capsys.readouterr().err


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"rmq {importlib.metadata.version('pyspark-rocketmq')}\n"


def test_help_imports_nothing_that_delays_it() -> None:
    """Each of these takes longer than the help itself."""
    code = (
        "import sys\n"
        "from rocketmq_cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(*sorted(sys.modules))"
    )
    # Without `site`, which imports what the environment adds.
    words = [sys.executable, "-S", "-c", code]
    ended = subprocess.run(
        words, capture_output=True, text=True, check=True, env={"PYTHONPATH": "connector"}
    )
    *shown, modules = ended.stdout.splitlines()
    for verb, summary in VERBS.items():
        assert any(line.split() == [verb, *summary.split()] for line in shown), verb
    imported = set(modules.split())
    ours = {name for name in imported if name.partition(".")[0] == "rocketmq_cli"}
    assert ours == {f"rocketmq_cli{name}" for name in ("", ".main", ".arguments", ".usage")}
    slow = {
        "shutil",
        "difflib",
        "datetime",
        "json",
        "rocketmq_wire",
        "pyarrow",
        "importlib.metadata",
    }
    assert not slow & imported


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_the_help_of_a_verb_fits_on_a_screen(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main(["help", *path])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"usage: rmq {' '.join(path)}")
    assert len(lines) <= 40
    assert all("--name-server" not in line for line in lines[: lines.index("") + 1])


@pytest.mark.parametrize("path", [path for path in LEAVES if path[0] != "fsck"], ids=" ".join)
def test_the_connection_of_a_verb_stands_behind_its_own_options_in_a_line_each(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*path, "--help"])
    own, title, connection = capsys.readouterr().out.partition("\nconnection")
    assert "--tls" not in own
    for line in connection.partition("\n\n")[0].splitlines()[1:] if title else ():
        assert line.startswith("  -"), line


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["tail"], "rmq tail: the following arguments are required: TOPIC. See rmq tail --help."),
        (["produce"], "required: TOPIC. See rmq produce --help."),
        (["tail", "t", "--count", "x"], "invalid int value: 'x'. See rmq tail --help."),
        (["topic", "lst"], "Did you mean 'list'? See rmq topic --help."),
        (["tail", "orders", "--form", "3"], "--form 3. Did you mean '--format' or '--from'?"),
        (["tail", "orders", "--limit", "3"], "Did you mean '--count'?"),
        (["group", "reset", "g"], "Did you mean 'reset-offsets'?"),
        (["help", "tial"], "Did you mean 'tail'?"),
        (["--vers"], "--vers"),
    ],
)
def test_a_wrong_command_line_is_refused_in_one_line(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == EXIT_USAGE
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert text in said


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("30s", 30_000), ("1.5m", 90_000), ("2h", 7_200_000), ("1d", 86_400_000)],
)
def test_lengths_of_time_are_a_number_with_a_unit(text: str, milliseconds: int) -> None:
    assert parse_duration_ms(text) == parse_duration_ms(text, unit="s") == milliseconds


def test_a_bare_number_is_a_length_of_time_where_a_unit_is_meant() -> None:
    assert parse_duration_ms("1.5", unit="s") == 1_500
    with pytest.raises(UsageError, match="no length of time"):
        parse_duration_ms("1")
    with pytest.raises(UsageError, match="no length of time"):
        parse_duration_ms("soon", unit="s")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T22:13:20.250+00:00", 1_700_000_000_250),
        ("2023-11-15T00:13:20+02:00", 1_700_000_000_000),
        ("2h", 92_800_000),
    ],
)
def test_a_moment_is_a_date_a_number_or_an_age(text: str, milliseconds: int) -> None:
    assert parse_moment_ms(text, now_ms=100_000_000) == milliseconds


@pytest.mark.parametrize("text", ["yesterday", "12", "2023-13-01", "5 x", ""])
def test_what_is_no_moment_is_refused_with_examples(text: str) -> None:
    with pytest.raises(UsageError, match="2026-01-31T12:00:00Z"):
        parse_moment_ms(text, now_ms=0)


def test_records_are_a_table_for_people_and_lines_of_json_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    record: Record = {"topic": "a", "lag": 1_234, "newest": moment(1_500), "none": None}
    show([record], {"topic": "topic", "lag": "lag", "newest": "newest"}, as_json=False)
    show([record], {}, as_json=True)
    table, row, line = capsys.readouterr().out.splitlines()
    assert table.split() == ["topic", "lag", "newest"]
    assert row.split() == ["a", "1,234", "1970-01-01", "00:00:01.500Z"]
    assert json.loads(line) == {
        "topic": "a",
        "lag": 1_234,
        "newest": "1970-01-01T00:00:01.500Z",
        "none": None,
    }


def test_lines_are_paced_without_losing_any(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    time = SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep)
    monkeypatch.setattr("rocketmq_cli.commands.produce.time", time)
    lines = [b"%d" % number for number in range(250)]
    parts = list(paced([lines[:180], lines[180:]], rate=100))
    assert [line for part in parts for line in part] == lines
    assert max(map(len, parts)) == 10
    assert clock[0] == pytest.approx(2.4)
