"""The suite that every driver passes, directly and over gRPC.

    from sandmeshd.drivers.conformance import REQUIREMENTS, Subject

    @pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda requirement: requirement.__name__)
    async def test_conformance(requirement, subject):
        await requirement(subject)

A requirement is a coroutine function whose name is the sentence that holds; it raises AssertionError where it does not.
`Subject` says how to open the driver and what to look at on its node. Needs no pytest.
"""

from sandmeshd.drivers.conformance.subject import Boundary, Requirement, Subject
from sandmeshd.drivers.conformance.suite import CORE, OF_IMAGES, REQUIREMENTS

__all__ = ["CORE", "OF_IMAGES", "REQUIREMENTS", "Boundary", "Requirement", "Subject"]
