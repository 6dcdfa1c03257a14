"""`with consumer: ...` starts a consumer and ends it, also after an exception."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

S = TypeVar("S", bound="ConsumerContext")


class ConsumerContext(ABC):
    """A consumer that `with` starts and ends."""

    @abstractmethod
    def start(self: S) -> S:
        """Start, and return itself."""

    @abstractmethod
    def _end(self, *, has_failed: bool) -> None:
        """Stop; `has_failed` is True if an exception left the `with` block."""

    def __enter__(self: S) -> S:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(has_failed=error is not None)
