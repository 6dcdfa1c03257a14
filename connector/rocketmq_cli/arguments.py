"""Parses the command line: the verbs, and parsers whose errors suggest the nearest word.

A verb's module is imported only if the verb is named, so that `rmq --help` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn, TypeAlias

from rocketmq_cli.usage import UsageError, did_you_mean

Verbs: TypeAlias = "argparse._SubParsersAction[Any]"
VERBS: Final = {
    "serve": "run the bundled broker",
    "demo": "start a broker, orders and a streaming query over them",
    "topic": "list, describe, create, alter and delete topics",
    "produce": "send lines or JSON as messages",
    "tail": "print a topic's messages",
    "group": "create, list and describe consumer groups, move their offsets",
    "lag": "show how far a group is behind, once or repeatedly",
    "message": "get one message by its id, key or offset",
    "dlq": "list dead letters and send them again",
    "checkpoint": "show the offsets in a Spark checkpoint",
    "check": "find what is wrong with a set-up",
    "ui": "a cluster's topics, groups, lag and messages as web pages",
    "fsck": "verify a stopped broker's data directory, or repair it",
    "bench": "how fast a cluster takes and gives messages",
}
_CHOICES = re.compile(r"invalid choice: '?([^']*?)'? \(")
_MISSING = "the following arguments are required: "
# The verbs of other tools.
_SYNONYMS: Final = {"send": "produce", "publish": "produce", "consume": "tail", "read": "tail"}
_PACKAGE = "pyspark-rocketmq"


class Parser(argparse.ArgumentParser):
    """Argparse's parser, whose errors suggest the nearest word."""

    def error(self, message: str) -> NoReturn:
        verbs = _verbs_of(self)
        if verbs and message.startswith(_MISSING):
            self.print_help(sys.stderr)
            self.exit(2, f"\n{self.prog}: say which {message.removeprefix(_MISSING)}, see above\n")
        wrong = _CHOICES.search(message)
        if wrong is not None:
            known = verbs or _choices(self)
            word = _SYNONYMS.get(wrong[1], wrong[1]) if self.prog == "rmq" else wrong[1]
            guess = did_you_mean(word, known)
            # Without a guess, argparse's list of all choices stays.
            message = message.partition(" (")[0] + "." + guess if guess else message
        super().error(message)


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wraps descriptions, and keeps the lines of examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


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
        formatter_class=_HelpFormatter,
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
        epilog="rmq VERB --help describes a verb, with examples.",
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
    parser = make_parser(words)
    _refuse_early_options(parser, words)
    args, rest = parser.parse_known_args(words)
    if rest:
        leaf = _leaf(parser, words)
        options = [option for action in leaf._actions for option in action.option_strings]
        guess = did_you_mean(rest[0].partition("=")[0], options) if rest[0][:1] == "-" else ""
        leaf.error(f"unrecognized arguments: {' '.join(rest)}.{guess}")
    return args


def _refuse_early_options(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Exit if an option stands before its verb."""
    for at, word in enumerate(words):
        verbs = _verbs_of(parser)
        name = word.partition("=")[0]
        if verbs and name.startswith("-"):
            own = [option for action in parser._actions for option in action.option_strings]
            if any(option.startswith(name) for option in own):
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
