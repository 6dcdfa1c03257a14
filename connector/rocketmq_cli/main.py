"""The `rmq` command: finds the verb, runs it, and turns what goes wrong into one line and a code.

Exit codes: 0 done, 1 it failed, 2 the command line is wrong, 130 interrupted, 141 the reader of
our output went away. A verb's module imports what is heavy only when it runs: help stays instant.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from rocketmq_cli import demo, fsck, produce, serve, tail, topic
from rocketmq_cli.usage import UsageError
from rocketmq_wire.errors import RocketMQError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

_VERBS = (serve, topic, produce, tail, demo, fsck)


def make_parser() -> argparse.ArgumentParser:
    """The whole command line: every verb adds its own part."""
    parser = argparse.ArgumentParser(
        prog="rmq",
        description="RocketMQ from the command line, and a small broker of its own.",
        epilog="rmq VERB --help says more of a verb.",
    )
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for verb in _VERBS:
        verb.add_parser(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["serve"]:
        # The broker reads its own command line, so that both ways to start it stay alike.
        return _guarded(lambda: serve.run(words[1:]))
    args = make_parser().parse_args(words)
    return _guarded(lambda: args.run(args))


def _guarded(run: Callable[[], int]) -> int:
    try:
        code = run()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Python flushes standard output once more at exit: give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except RocketMQError as error:
        return _fail(str(error), EXIT_FAILED)
    except UsageError as error:
        return _fail(str(error), EXIT_USAGE)
    except OSError as error:
        return _fail(str(error), EXIT_FAILED)


def _fail(text: str, code: int) -> int:
    print(f"rmq: {text}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
