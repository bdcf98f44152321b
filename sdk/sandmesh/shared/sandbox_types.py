"""The types of sandboxes that every mesh has, with the groups of tools that each offers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SANDBOX_TYPES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "base": ("generic", "git"),
        "filesystem": ("generic", "git", "filesystem"),
        "browser": ("generic", "git", "browser"),
        "gui": ("generic", "git", "filesystem", "computer-use"),
        "mobile": ("generic", "git", "mobile"),
        "training": ("training",),
        "bfcl": ("training",),
        "appworld": ("training",),
        "dummy": (),
    }
)
"""A type is a line here and its template, `services/sandmeshd/templates/definitions/<type>.toml`; a dummy has neither a
template nor tools. Its classes, its tools as functions and what MCP clients are offered are made from this table."""

DEFAULT_TYPE: Final = "base"

_SPELLINGS: Final = {"bfcl": "BFCL", "appworld": "APPWorld"}
"""Names in classes that are not their types' with a capital letter."""


def class_name(sandbox_type: str, *, is_async: bool) -> str:
    """Return the name of a type's class: "filesystem" has FilesystemSandbox and FilesystemSandboxAsync."""
    name = _SPELLINGS.get(sandbox_type) or sandbox_type.title().replace("_", "").replace("-", "")
    return f"{name}Sandbox{'Async' if is_async else ''}"


def first_type(group: str) -> str:
    """Return the first type that offers a group of tools."""
    return next(name for name, groups in SANDBOX_TYPES.items() if group in groups)


def offers(sandbox_type: str, wanted_type: str) -> bool:
    """Return whether a type offers all tools of another; what is not in the table may offer any."""
    groups = SANDBOX_TYPES.get(sandbox_type)
    return not groups or set(SANDBOX_TYPES.get(wanted_type, ())) <= set(groups)
