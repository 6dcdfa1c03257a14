"""Takes the tests of another suite over into one of this folder, whose fixtures they then use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any

import pytest


def adopt(
    module: ModuleType, *, without: Mapping[str, str], short: Collection[str] = ()
) -> dict[str, Callable[..., Any]]:
    """Every test of a module but those named, with the reason why; `short` ones are marked so."""
    tests = {name: test for name, test in vars(module).items() if name.startswith("test_")}
    unknown = {*without, *short} - set(tests)
    assert not unknown, f"{module.__name__} has no {sorted(unknown)}"
    for name in short:
        tests[name] = pytest.mark.short(tests[name])
    return {name: test for name, test in tests.items() if name not in without}
