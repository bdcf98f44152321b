"""The conformance suite on the bubblewrap driver; as root a second time as an ordinary user."""

from __future__ import annotations

import pytest

from sandmeshd.drivers.conformance import REQUIREMENTS, Requirement, Subject
from tests.ordinary import ordinary_home, run_tests

SOME = "test_conformance and (direct-fork or grpc-exec)"
"""What an ordinary user repeats: each way to start and each way to call once."""


# The first of all tests builds what sandboxes are made from, of packages from an index that may be slow.
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.__name__)
async def test_conformance(requirement: Requirement, subject: Subject) -> None:
    await requirement(subject)


@pytest.mark.needs("root")
def test_the_suite_passes_as_an_ordinary_user(prepared: None) -> None:
    with ordinary_home() as home:
        run_tests(home, __file__, "-k", SOME)
