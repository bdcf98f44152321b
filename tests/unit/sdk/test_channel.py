"""How long a client waits between its attempts."""

from __future__ import annotations

import itertools
import random

from sandmesh.shared.backoff import back_off


def test_waits_grow_to_their_bound_and_leave_the_programs_random_numbers_alone() -> None:
    before = random.getstate()
    waits = list(itertools.islice(back_off(), 10))
    assert random.getstate() == before
    bounds = [min(0.05 * 2**number, 2.0) for number in range(10)]
    assert all(bound / 2 <= wait <= bound for wait, bound in zip(waits, bounds, strict=True))
