"""Without any one protection of the broker the checker of the simulation finds a broken promise."""

from __future__ import annotations

import pytest

from support.message_checker import Violation
from support.simulation.life import Life
from support.simulation.protections import PROTECTIONS, Protection

SEEDS = 12
OPERATIONS = 60


def first_violation(protection: Protection) -> Violation | None:
    """What the first lives without a protection come to."""
    with protection.switched_off():
        for seed in range(SEEDS):
            violation = violation_of(Life(seed, OPERATIONS, protection.scene))
            if violation is not None:
                return violation
    return None


def violation_of(life: Life) -> Violation | None:
    try:
        life.run()
    except Violation as violation:
        return violation
    return None


@pytest.mark.parametrize("name", PROTECTIONS)
def test_without_one_protection_a_promise_breaks(name):
    violation = first_violation(PROTECTIONS[name])
    assert violation is not None
    assert violation.kind in PROTECTIONS[name].breaks, violation


SCENES = [protection for protection in PROTECTIONS.values() if protection.scene is not None]


@pytest.mark.parametrize("protection", SCENES, ids=lambda protection: protection.name)
def test_with_all_protections_its_life_keeps_every_promise(protection):
    Life(0, OPERATIONS, protection.scene).run()
