"""The parts of `rmq` that need no cluster: lines, tables, addresses, codes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from argparse import Namespace

import pytest

from rocketmq_cli.connection import connection_settings
from rocketmq_cli.main import EXIT_USAGE, main, make_parser
from rocketmq_cli.produce import read_lines
from rocketmq_cli.table import format_table, format_time
from rocketmq_cli.usage import UsageError


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
        ((), []),
    ],
)
def test_lines_are_handed_on_as_they_come(
    pieces: tuple[bytes, ...], batches: list[list[bytes]]
) -> None:
    assert list(read_lines(Pipe(*pieces))) == batches  # type: ignore[arg-type]


def test_a_table_aligns_numbers_to_the_right_and_text_to_the_left() -> None:
    table = format_table(("name", "count"), [("a", "1,000"), ("long", "7")])
    assert table.splitlines() == ["name  count", "a     1,000", "long      7"]


def test_a_table_without_rows_is_its_titles() -> None:
    assert format_table(("name", "count"), []) == "name  count"


def test_times_are_utc_and_no_time_is_a_dash() -> None:
    assert format_time(1_700_000_000_123) == "2023-11-14 22:13:20.123Z"
    assert format_time(0) == "-"


def _args(**values: str | bool | None) -> Namespace:
    names = ("name_server", "endpoints", "tls", "tls_no_verify", "tls_ca_file", "tls_cert_file")
    unset = dict.fromkeys((*names, "tls_key_file", "tls_server_name"))
    return Namespace(**{**unset, **values})


def test_name_servers_come_from_the_option_before_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert connection_settings(_args()).name_servers == ("a:1", "b:2")
    assert connection_settings(_args(name_server="c:3")).name_servers == ("c:3",)
    settings = connection_settings(_args(endpoints="d:4"))
    assert (settings.endpoints, settings.name_servers) == ("d:4", ())


@pytest.mark.parametrize("address", ["", "no-port", "host:99999"])
def test_an_address_that_cannot_be_used_is_refused(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(UsageError):
        connection_settings(_args(name_server=address))


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


@pytest.mark.parametrize("verb", ["serve", "topic", "produce", "tail", "demo", "fsck"])
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([verb, "--help"])
    assert stopped.value.code == 0
    assert f"usage: rmq {verb}" in capsys.readouterr().out


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
