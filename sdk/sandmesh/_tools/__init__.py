"""Declarations of the tools, shared by the SDK, the agent and the MCP adapter: a module a family of them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sandmesh._tools import (
    browser,
    desktop,
    filesystem,
    generic,
    git,
    kernels,
    mcp,
    mobile,
    processes,
    training,
)
from sandmesh._tools.declaration import PLUMBING, TOOLS, Param, Tool, build, description, dump
from sandmesh._tools.forms import ToolSchema

if TYPE_CHECKING:
    from sandmesh._tools.validation import input_schema, parse

MODULES = (browser, desktop, filesystem, generic, git, kernels, mcp, mobile, processes, training)
"""The modules that declare tools: a tool that is written there is everywhere."""

__all__ = [
    "MODULES",
    "PLUMBING",
    "TOOLS",
    "Param",
    "Tool",
    "ToolSchema",
    "build",
    "declared_classes",
    "description",
    "dump",
    "input_schema",
    "parse",
]


def declared_classes() -> dict[str, type]:
    """Return the classes of all tools by name, and the types of their parameters."""
    return {
        name: value
        for module in MODULES
        for name, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and not name.startswith("_")
    }


def __getattr__(name: str) -> object:
    """Import what needs pydantic at its first use."""
    if name not in ("input_schema", "parse"):
        raise AttributeError(f"module 'sandmesh._tools' has no attribute {name!r}")
    found: object = getattr(import_module("sandmesh._tools.validation"), name)
    return found
