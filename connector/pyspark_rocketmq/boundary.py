"""Errors as Spark gets them: without the frames inside the connector, which Spark prints twice.

The text of an error names the facts and what to do; `ROCKETMQ_DEBUG=1` keeps its frames and causes.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from rocketmq_wire.errors import RocketMQError

C = TypeVar("C", bound=type)
_DEBUG: Final = "ROCKETMQ_DEBUG"


def bare(error: RocketMQError) -> RocketMQError:
    """The error without its frames and causes, unless they are wanted."""
    if os.environ.get(_DEBUG, "") in ("", "0"):
        error.__cause__, error.__suppress_context__ = None, True
        return error.with_traceback(None)
    return error


def bares_errors(*names: str) -> Callable[[C], C]:
    """A class whose methods of these names, and the iterators they return, raise bare errors."""

    def decorate(cls: C) -> C:
        for name in names:
            setattr(cls, name, _bared(getattr(cls, name)))
        return cls

    return decorate


def _bared(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        try:
            result = method(*args, **named)
        except RocketMQError as error:
            raise bare(error)  # noqa: B904 - it is the same one.
        return _rows(result) if isinstance(result, Iterator) else result

    return call


def _rows(rows: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from rows
    except RocketMQError as error:
        raise bare(error)  # noqa: B904 - it is the same one.
