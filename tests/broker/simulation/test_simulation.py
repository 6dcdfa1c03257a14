"""Lives of a whole broker in virtual time keep every promise; `./run simulate` runs many more."""

from __future__ import annotations

import pytest

from support.simulation.life import Life

OPERATIONS = 200


@pytest.mark.parametrize("seed", range(16))
def test_a_life_with_faults_of_disk_network_and_clock_keeps_every_promise(seed):
    Life(seed, OPERATIONS).run()


def test_a_seed_repeats_its_life():
    assert Life(1, 80).run() == Life(1, 80).run() != Life(2, 80).run()
