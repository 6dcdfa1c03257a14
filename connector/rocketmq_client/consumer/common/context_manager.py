"""`with consumer: ...` starts a consumer and ends it, whatever happens in between."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

S = TypeVar("S", bound="ConsumerContext")


class ConsumerContext(ABC):
    """What begins with `start` and has an end."""

    @abstractmethod
    def start(self: S) -> S:
        """Begin; gives itself back."""

    @abstractmethod
    def _end(self, *, has_failed: bool) -> None:
        """Stop; `has_failed` says that what was being done was left by an error."""

    def __enter__(self: S) -> S:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(has_failed=error is not None)
