"""`rmq completion`: completes verbs, options, topics, groups and profiles in bash and zsh.

The shell calls this verb with the line before the cursor, and gets one candidate a line. Candidates
follow from the help of the verb; a cluster that does not answer adds none.
"""

from __future__ import annotations

import argparse
import io
import re
import shlex
import threading
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from typing import Final

from rocketmq_cli.arguments import VERBS, Parser, Verbs, add_verb, parse
from rocketmq_cli.profiles import profile_names
from rocketmq_cli.usage import UsageError

_SCRIPTS: Final = {
    "bash": """\
_rmq() {
    local IFS=$'\\n'
    COMPREPLY=($("${COMP_WORDS[0]}" completion --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
}
complete -o default -F _rmq rmq
""",
    "zsh": """\
_rmq() {
    local -a found
    found=("${(@f)$("${words[1]}" completion --line "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
    [[ -n "$found" ]] && compadd -- $found || _files
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _rmq rmq
""",
}
# A person waits with a finger on the key: a cluster that cannot be reached is given up at once.
_CONNECT_TIMEOUT_MS: Final = 100
_LIMIT_S: Final = 0.5
_OPTION: Final = re.compile(r"^  (?:(-\w), )?(--[\w-]+)(?: (\S+))?", re.MULTILINE)
_POSITIONAL: Final = re.compile(r"^  ([A-Za-z]\w*)(?:  |$)", re.MULTILINE)
_ACTION: Final = re.compile(r"^    ([a-z][\w-]+)(?:  |$)", re.MULTILINE)

Lookup = Callable[[str, Sequence[str]], Sequence[str]]
"""The names of a kind, such as `topic`, at the cluster that the words name."""


def add_parser(verbs: Verbs) -> None:
    parser = add_verb(
        verbs,
        "completion",
        _completion,
        '  eval "$(rmq completion bash)"     in ~/.bashrc; in ~/.zshrc the same with zsh\n'
        "  rmq completion zsh",
        description="Prints the script that makes a shell complete verbs, options, profiles, and "
        "the topics and groups of the cluster that the line, the environment or the profile names.",
    )
    parser.add_argument("shell", nargs="?", choices=_SCRIPTS)
    parser.add_argument("--line", help=argparse.SUPPRESS)


def _completion(args: argparse.Namespace) -> int:
    if args.line is None:
        if args.shell is None:
            raise UsageError(f"name the shell: {' or '.join(_SCRIPTS)}")
        print(_SCRIPTS[args.shell], end="")
        return 0
    for text in candidates(words_of(args.line)[1:], names_at_cluster):
        print(text)
    return 0


def words_of(line: str) -> list[str]:
    """The words of an unfinished line; the last one is being typed, and may be empty."""
    for end in ("", "'", '"'):
        try:
            words = shlex.split(line + end)
        except ValueError:
            continue
        return [*words, ""] if not end and line[-1:].isspace() else words
    return []


def candidates(words: Sequence[str], lookup: Lookup) -> list[str]:
    """The words that the last one can become."""
    if not words:
        return []
    if words[0] == "help" and len(words) > 1:
        words = words[1:]
    *before, current = words
    if not before:
        found: Sequence[str] = ("help", *VERBS, "--version")
    elif before[0] not in VERBS:
        found = ()
    else:
        found = _after_verb(before, current, lookup)
    return [text for text in found if text.startswith(current)]


def _after_verb(before: Sequence[str], current: str, lookup: Lookup) -> Sequence[str]:
    verb = _Help.of(before[:1])
    if verb.actions:
        if len(before) == 1:
            return verb.actions
        if before[1] not in verb.actions:
            return ()
        verb, rest = _Help.of(before[:2]), before[2:]
    else:
        rest = before[1:]
    if rest and verb.options.get(rest[-1]):
        kind = rest[-1].strip("-") if rest[-1] in ("--topic", "--profile") else ""
        return _values(kind or verb.options[rest[-1]], before, lookup)
    if current.startswith("-"):
        return [option for option in verb.options if option.startswith("--")]
    given = 0
    is_value = False
    for word in rest:
        given += not is_value and not word.startswith("-")
        is_value = bool(verb.options.get(word))
    kinds = verb.positionals
    if kinds and (given < len(kinds) or verb.repeats):
        return _values(kinds[min(given, len(kinds) - 1)], before, lookup)
    return ()


def _values(kind: str, before: Sequence[str], lookup: Lookup) -> Sequence[str]:
    if kind.startswith("{"):
        return kind.strip("{}").split(",")
    if "|" in kind:
        return [word for word in kind.split("|") if word.islower()]
    return lookup(kind.lower(), before)


@dataclass(frozen=True)
class _Help:
    """The options, arguments and actions of a verb, as its help lists them."""

    options: dict[str, str]
    """The options, long and short, with what their values are; empty for a switch."""
    positionals: list[str]
    repeats: bool
    """Whether the last positional may be repeated."""
    actions: list[str]

    @classmethod
    def of(cls, path: Sequence[str]) -> _Help:
        text = io.StringIO()
        try:
            with redirect_stdout(text):
                parse([*path, "--help"])
        except SystemExit:
            pass
        usage, _, rest = text.getvalue().partition("\n\n")
        rest = rest.partition("\nexample")[0]
        options: dict[str, str] = {}
        for short, option, value in _OPTION.findall(rest):
            options |= {name: value for name in (option, short) if name}
        head = rest.partition("positional arguments:\n")[2].partition("\n\n")[0]
        actions = _ACTION.findall(head)
        return cls(options, _POSITIONAL.findall(head), "...]" in usage, actions)


def names_at_cluster(kind: str, words: Sequence[str]) -> Sequence[str]:
    """The topics, groups or profiles that exist; nothing if they cannot be read in time."""
    if kind == "profile":
        with suppress(UsageError):
            return profile_names()
        return ()
    if kind not in ("topic", "group"):
        return ()
    from rocketmq_cli.connection import add_connection_options, connection_settings
    from rocketmq_client.cluster import open_cluster
    from rocketmq_wire.errors import RocketMQError
    from rocketmq_wire.model import is_internal_topic

    parser = Parser()
    add_connection_options(parser)
    try:
        with redirect_stderr(io.StringIO()):
            args, _ = parser.parse_known_args(list(words))
            settings = replace(
                connection_settings(args),
                connect_timeout_ms=_CONNECT_TIMEOUT_MS,
                request_timeout_ms=round(_LIMIT_S * 1_000),
            )
    except (SystemExit, UsageError):
        return ()
    # Imports the transport, which is not the cluster's delay.
    cluster = open_cluster(settings)
    found: list[str] = []

    def ask() -> None:
        with suppress(RocketMQError, OSError), cluster:
            if kind == "group":
                from rocketmq_cli.groups import is_system_group

                found.extend(name for name in cluster.groups() if not is_system_group(name))
            else:
                found.extend(name for name in cluster.topics() if not is_internal_topic(name))

    # Several requests that each wait as long as they may would hold up the typing.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_LIMIT_S)
    return found
