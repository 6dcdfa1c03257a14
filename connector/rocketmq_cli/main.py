"""The `rmq` command: runs the verb, and turns errors into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 3 a given limit is exceeded,
130 interrupted, 141 the reader of the output closed it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from rocketmq_cli import usage
from rocketmq_cli.arguments import parse

if TYPE_CHECKING:
    from rocketmq_wire.errors import RocketMQError


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(sys.argv[1:] if argv is None else argv)
    return _guarded(lambda: _run(args))


def _run(args: argparse.Namespace) -> int:
    # `rmq --help` ends before this and does not wait for it.
    from rocketmq_wire.errors import TopicNotFoundError

    try:
        return int(args.run(args))
    except TopicNotFoundError as error:
        from rocketmq_cli.connection import open_from, with_suggestion

        named = {*getattr(args, "topics", ()), getattr(args, "topic", None)} - {None}
        with open_from(args) as cluster:
            raise with_suggestion(cluster, named, error) from None


def _guarded(run: Callable[[], int]) -> int:
    try:
        code = run()
        sys.stdout.flush()
        return code
    except usage.PartlyDoneError as error:
        code = _guarded(partial(_raise, error.__cause__))
        usage.report(str(error))
        return code
    except BrokenPipeError:
        # Python flushes standard output once more at exit: redirect it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return usage.EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return usage.EXIT_INTERRUPTED
    except usage.UsageError as error:
        usage.report(str(error))
        return usage.EXIT_FAILED if isinstance(error, usage.NotThereError) else usage.EXIT_USAGE
    except OSError as error:
        usage.report(str(error))
        return usage.EXIT_FAILED
    except Exception as error:
        # `rmq --help` does not wait for this import.
        from rocketmq_wire.errors import RocketMQError

        if not isinstance(error, RocketMQError):
            raise
        usage.report(_text_of(error))
        return usage.EXIT_FAILED


def _raise(error: BaseException | None) -> NoReturn:
    assert error is not None
    raise error


def _text_of(error: RocketMQError) -> str:
    """An error's text with this command's options; for lost offsets, how to resume behind them."""
    from rocketmq_client.errors import RangeLostError
    from rocketmq_wire.errors import WrongPortError

    if isinstance(error, WrongPortError):
        return error.text("--name-server", "--endpoints")
    if not isinstance(error, RangeLostError) or error.loss.bounds is None:
        return str(error)
    loss, bounds = error.loss, error.loss.bounds
    if loss.end >= bounds.end:
        return str(error)
    where = f"{loss.queue.topic} --queue {loss.queue.index} --from {max(loss.end, bounds.start)}"
    return f"{error} `rmq tail {where}` continues behind the gap."
