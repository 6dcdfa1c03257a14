"""Parses the command line: the verbs, and parsers whose errors suggest the nearest word.

A verb's module is imported only if the verb is named, so that `rmq --help` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn, TypeAlias

from rocketmq_cli.usage import UsageError

Verbs: TypeAlias = "argparse._SubParsersAction[Any]"
VERBS: Final = {
    "serve": "run the bundled broker",
    "demo": "start a broker, orders and a streaming query over them",
    "cluster": "a cluster's brokers: addresses, roles, versions, rates",
    "topic": "list, describe, create, alter and delete topics",
    "produce": "send lines or JSON as messages",
    "tail": "print the messages of topics",
    "group": "create, list and describe consumer groups, move their offsets",
    "lag": "show how far groups are behind, once or repeatedly",
    "message": "get one message by its id, key or offset",
    "dlq": "list dead letters and send them again",
    "checkpoint": "show the offsets in a Spark checkpoint",
    "check": "find what is wrong with a set-up",
    "ui": "a cluster's topics, groups, lag and messages as web pages",
    "fsck": "verify a stopped broker's data directory, or repair it",
    "completion": "complete verbs, options, topics and groups in a shell",
    "bench": "how fast a cluster takes and gives messages",
}
_CHOICES = re.compile(r"invalid choice: '?([^']*?)'? \(")
_MISSING = "the following arguments are required: "
# The verbs of other tools.
_SYNONYMS: Final = {"send": "produce", "publish": "produce", "consume": "tail", "read": "tail"}
_OPTION_SYNONYMS: Final = {"--limit": "--count", "--count": "--limit"}
_PACKAGE = "pyspark-rocketmq"
_WIDTH: Final = 80


class Parser(argparse.ArgumentParser):
    """Argparse's parser: takes options by their full names, and reports errors in one line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            allow_abbrev=False, add_help=False, **{"formatter_class": _HelpFormatter, **settings}
        )
        # Not shown: who reads the help has found it.
        self.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
        self._is_parsing = False

    # Argparse's own signature has overloads.
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Take positional arguments behind options, too: `produce orders --tags new FILE`."""
        if self._is_parsing or _verbs_of(self) or not self._get_positional_actions():
            return super().parse_known_args(args, namespace)
        self._is_parsing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_parsing = False

    def error(self, message: str) -> NoReturn:
        verbs = _verbs_of(self)
        if verbs and message.startswith(_MISSING):
            self.print_help(sys.stderr)
            self.exit(2, f"\n{self.prog}: say which {message.removeprefix(_MISSING)}, see above\n")
        wrong = _CHOICES.search(message)
        if wrong is not None:
            from rocketmq_wire.suggest import did_you_mean

            known = verbs or _choices(self)
            word = _SYNONYMS.get(wrong[1], wrong[1]) if self.prog == "rmq" else wrong[1]
            # `group reset` is too short to be similar to `reset-offsets`.
            word = next((name for name in known if word and name.startswith(word)), word)
            guess = did_you_mean(word, known)
            # Without a guess, argparse's list of all choices stays.
            message = message.partition(" (")[0] + "." + guess if guess else message
        end = "" if message.endswith("?") else "."
        self.exit(2, f"{self.prog}: {message}{end} See {self.prog} --help.\n")

    def add_subparsers(self, **settings: Any) -> Any:
        # Without a name, argparse takes the whole usage for the name.
        return super().add_subparsers(**{"prog": self.prog, **settings})


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Shows a short usage and an option a line; wraps descriptions and keeps examples."""

    def __init__(self, prog: str) -> None:
        # Without a width, argparse imports shutil, which takes longer than the help itself.
        super().__init__(prog, max_help_position=32, width=min(_terminal_width(), 100) - 2)

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[Any],
        prefix: str | None = None,
    ) -> None:
        """Add the usage with what is required; `[options]` stands for the rest."""
        grouped = [action for group in groups if group.required for action in group._group_actions]
        required = [a for a in actions if not a.option_strings or a.required or a in grouped]
        if not any(action.nargs == argparse.PARSER for action in required):
            required.append(argparse.Action([], "others", metavar="[options]"))
        super().add_usage(usage, required, groups, prefix)

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if action.nargs == argparse.PARSER:
            # Argparse forgets the indent of the verbs, and would break the line of the longest.
            self._action_max_length += 2

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """`-n, --name-server HOST:PORT`, with the value named once."""
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


def _terminal_width() -> int:
    width = os.environ.get("COLUMNS", "")
    if width.isdigit() and int(width):
        return int(width)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _WIDTH
    except (OSError, ValueError):
        return _WIDTH


class _Version(argparse.Action):
    """Prints the version; looks it up only then, as help must not wait for it."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            found = version(_PACKAGE)
        except PackageNotFoundError:
            found = f"of an unknown version: {_PACKAGE} is not installed as a package"
        print(f"{parser.prog} {found}")
        parser.exit()


def add_verb(
    verbs: Verbs,
    name: str,
    run: Callable[[argparse.Namespace], int],
    examples: str,
    *,
    summary: str | None = None,
    description: str | None = None,
) -> argparse.ArgumentParser:
    """Add a verb that `run` executes. `examples` has one a line, and may end with notes."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=summary or VERBS[name],
        description=description,
        epilog=f"examples:\n{examples}",
    )
    parser.set_defaults(run=run)
    return parser


def add_noun(verbs: Verbs, name: str, example: str) -> Verbs:
    """Add a noun, such as `topic`, and return where its own verbs are added."""
    noun = verbs.add_parser(name, help=VERBS[name], epilog=f"example: {example}")
    actions: Verbs = noun.add_subparsers(metavar="ACTION", required=True)
    return actions


def add_attribute_option(parser: argparse.ArgumentParser) -> None:
    """Add `--attribute NAME=VALUE`: an attribute of a topic or group in RocketMQ 5.x."""
    parser.add_argument(
        "--attribute",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an attribute of RocketMQ 5.x, such as message.type=FIFO; may be repeated",
    )


def attributes_of(texts: Sequence[str]) -> dict[str, str]:
    """Parse the attributes. Raises UsageError for a text that is not NAME=VALUE."""
    named = {}
    for text in texts:
        name, divider, value = text.partition("=")
        if not name or not divider or not value or "," in text:
            raise UsageError(f"--attribute must be NAME=VALUE, without commas, not {text!r}")
        named[name.removeprefix("+")] = value
    return named


def make_parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Make the parser. With words, only the verb that they name gets its options."""
    parser = Parser(
        prog="rmq",
        description="RocketMQ from the command line, and a small broker of its own.",
        epilog="`rmq help VERB` describes a verb, with examples.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    named = None if words is None else next((w for w in words if not w.startswith("-")), "")
    for verb, summary in VERBS.items():
        if named in (None, verb):
            importlib.import_module(f"rocketmq_cli.commands.{verb}").add_parser(verbs)
        else:
            verbs.add_parser(verb, help=summary)
    return parser


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse a whole command line. Exits with code 2 and a guess when it is wrong."""
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    parser = make_parser(words)
    _refuse_early_options(parser, words)
    args, rest = parser.parse_known_args(words)
    if rest:
        from rocketmq_wire.suggest import did_you_mean_one_of

        leaf = _leaf(parser, words)
        options = [option for action in leaf._actions for option in action.option_strings]
        name = rest[0].partition("=")[0]
        synonym = _OPTION_SYNONYMS.get(name)
        name = synonym if synonym in options else name
        guess = did_you_mean_one_of(name, options) if name[:1] == "-" else ""
        leaf.error(f"unrecognized arguments: {' '.join(rest)}" + (guess and f".{guess}"))
    return args


def _refuse_early_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Exit if an option stands before its verb."""
    for at, word in enumerate(words):
        verbs = _verbs_of(parser)
        name = word.partition("=")[0]
        if verbs and name.startswith("-"):
            own = [option for action in parser._actions for option in action.option_strings]
            if name in own:
                return
            verb = next((later for later in words[at:] if later in verbs), "VERB")
            parser.error(f"options stand behind the verb: {parser.prog} {verb} ... {name} ...")
        if word not in verbs:
            return
        parser = verbs[word]


def _leaf(parser: argparse.ArgumentParser, words: Iterable[str]) -> argparse.ArgumentParser:
    for word in words:
        parser = _verbs_of(parser).get(word, parser)
    return parser


def _verbs_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _choices(parser: argparse.ArgumentParser) -> list[str]:
    found: list[Any] = [choice for action in parser._actions for choice in action.choices or ()]
    return [str(choice) for choice in found]
