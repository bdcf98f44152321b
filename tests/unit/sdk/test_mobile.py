"""The tools on devices as functions, and the two forms of a tap."""

from __future__ import annotations

import pytest

from sandmesh import tools
from sandmesh._tools import TOOLS, build
from sandmesh.errors import InvalidArgument


def test_each_tool_of_devices_is_a_function_for_their_sandboxes() -> None:
    names = [name for name, declaration in TOOLS.items() if declaration.group == "mobile"]
    assert len(names) == 7
    assert {getattr(tools, name).sandbox_type for name in names} == {"mobile"}


def test_a_tap_takes_a_coordinate_or_two_numbers_and_nothing_else() -> None:
    assert build(tools.MobileTap, [1, 2]) == build(tools.MobileTap, coordinate=[1, 2])
    assert build(tools.MobileTap, 1, 2) == build(tools.MobileTap, coordinate=1, y=2)
    with pytest.raises(InvalidArgument):
        build(tools.MobileTap, "1, 2")  # type: ignore[arg-type]  # a wrong type is refused
