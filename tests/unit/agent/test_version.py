"""The agent says which release it is from."""

from __future__ import annotations

from importlib.metadata import version

from sandmeshd.agent.app import VERSION


def test_the_agents_version_is_that_of_the_distribution() -> None:
    assert version("sandmesh") == VERSION
