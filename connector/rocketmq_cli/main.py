"""The `rmq` command: runs the verb, and turns errors into one line and an exit code.

Exit codes: 0 done, 1 failed, 2 the command line is wrong, 3 a given limit is exceeded,
130 interrupted, 141 the reader of the output closed it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from rocketmq_cli import usage
from rocketmq_cli.arguments import parse
from rocketmq_wire.errors import RocketMQError


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(sys.argv[1:] if argv is None else argv)
    return _guarded(lambda: args.run(args))


def _guarded(run: Callable[[], int]) -> int:
    try:
        code = run()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Python flushes standard output once more at exit: redirect it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return usage.EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return usage.EXIT_INTERRUPTED
    except (RocketMQError, usage.UsageError, OSError) as error:
        usage.report(_text_of(error) if isinstance(error, RocketMQError) else str(error))
        return usage.EXIT_USAGE if isinstance(error, usage.UsageError) else usage.EXIT_FAILED


def _text_of(error: RocketMQError) -> str:
    """An error's text; for lost offsets with the command that resumes behind them."""
    from rocketmq_client.errors import RangeLostError

    if not isinstance(error, RangeLostError) or error.loss.bounds is None:
        return str(error)
    loss, bounds = error.loss, error.loss.bounds
    if loss.end >= bounds.end:
        return str(error)
    where = f"{loss.queue.topic} --queue {loss.queue.index} --from {max(loss.end, bounds.start)}"
    return f"{error} `rmq tail {where}` continues behind the gap."
