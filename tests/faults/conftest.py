"""A mesh for the tests that break things around it."""

from __future__ import annotations

from tests.engine import slow_parts
from tests.mesh.conftest import mesh

__all__ = ["mesh"]

collect_ignore_glob = slow_parts()
