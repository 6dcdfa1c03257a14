"""Every kept input of the fuzzer, without the fuzzer: a declared error or none."""

from __future__ import annotations

from contextlib import suppress

import pytest

from fuzz.corpus import kept
from fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_kept_inputs_give_declared_errors_alone(name: str) -> None:
    target = TARGETS[name]
    for data in (*target.seeds(), *kept(name)):
        with suppress(*target.declared):
            target.run(data)


@pytest.mark.parametrize("name", TARGETS)
def test_a_seed_is_read_without_an_error(name: str) -> None:
    """So that fuzzing begins behind the first check of each entry point."""
    target = TARGETS[name]
    target.run(target.seeds()[0])
