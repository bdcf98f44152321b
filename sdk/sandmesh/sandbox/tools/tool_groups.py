"""The tools of each group as methods, for sync and async boxes alike: a class a group, made of the declarations.

Type checkers read `tool_groups.pyi`, which `make stubs` writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from sandmesh._tools import PLUMBING, TOOLS
from sandmesh.sandbox.tools.tool_calls import tool_method


def mixin_name(group: str) -> str:
    """Return the name of a group's class: "computer-use" has ComputerUseTools."""
    return f"{group.title().replace('-', '').replace('_', '')}Tools"


def _mixin(group: str) -> type:
    methods = {name: tool_method(declaration) for name, declaration in TOOLS.items() if declaration.methods_of == group}
    return type(
        mixin_name(group), (), {"__doc__": f"The tools of the group {group}.", "__module__": __name__, **methods}
    )


MIXINS: Final[Mapping[str, type]] = MappingProxyType(
    {group: _mixin(group) for group in sorted({declaration.group for declaration in TOOLS.values()} - PLUMBING)}
)
"""The class of each group that types of sandboxes offer."""

globals().update({made.__name__: made for made in MIXINS.values()})
