"""`pyarrow` and `pyarrow.compute`, each loaded at the first use of a name in it.

They take longer to load than all else that a broker starts with, and most brokers of tests never
need them. Modules that a broker imports take them from here; type checkers see the real ones.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["pa", "pc"]


class _LateModule:
    """Looks like the module; what was asked for once is an attribute from then on."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = _LateModule("pyarrow")
    pc = _LateModule("pyarrow.compute")
