"""Templates from the package's data files, or from a directory of the same layout."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from sandmesh.errors import InvalidArgument
from sandmesh.shared.sandbox_types import SANDBOX_TYPES
from sandmeshd.contracts.mcp_config import check_template_config
from sandmeshd.templates.model import Template


def load_templates(root: Traversable | None = None) -> Mapping[str, Template]:
    """Load the templates by name, sorted; `root` holds `definitions` and `environments`, by default the shipped ones.

    A definition's `mcp_config` is the name of a file in `servers`, as MCP clients have it: {"mcpServers": {...}}.

    Raises:
        InvalidArgument: A file is not TOML, lacks a value, has an unknown one, or names an environment or servers that
            do not exist.
    """
    folder = root or files("sandmeshd.templates")
    entries = sorted(folder.joinpath("definitions").iterdir(), key=lambda entry: entry.name)
    found = [_template(folder, entry) for entry in entries if entry.name.endswith(".toml")]
    return MappingProxyType({template.name: template for template in found})


def _template(root: Traversable, entry: Traversable) -> Template:
    values = _read(entry)
    environment = values.pop("environment", None)
    values["name"] = name = entry.name.removesuffix(".toml")
    if name in SANDBOX_TYPES:
        values.setdefault("tool_groups", SANDBOX_TYPES[name])
    servers = values.get("mcp_config")
    if isinstance(servers, str):
        values["mcp_config"] = _servers(root.joinpath("servers", servers), values.get("tool_groups", ()))
    targets = values.get("environments", {})
    values["environments"] = {name: {"target": target} for name, target in targets.items()}
    values["python"] = _environment(root, f"{environment}.toml")
    try:
        return Template.model_validate(values)
    except ValidationError as error:
        raise InvalidArgument(f"{entry} is not a template: {error}", {"file": str(entry)}) from None


def _environment(root: Traversable, name: str) -> dict[str, Any]:
    """Read an environment; one that `extends` another has its values and packages, and its own besides."""
    own = _read(root.joinpath("environments", name))
    extended = own.pop("extends", None)
    if extended is None:
        return own
    values = _environment(root, f"{extended}.toml")
    return {**values, **own, "requirements": [*values.get("requirements", ()), *own.get("requirements", ())]}


def _servers(entry: Traversable, groups: Iterable[str]) -> str:
    try:
        text = entry.read_text("utf-8")
        check_template_config(text.encode(), groups)
    except (OSError, ValueError, TypeError, AttributeError, InvalidArgument) as error:
        raise InvalidArgument(f"{entry} cannot be read: {error}", {"file": str(entry)}) from None
    return text


def _read(entry: Traversable) -> dict[str, Any]:
    try:
        return tomllib.loads(entry.read_text("utf-8"))
    except (FileNotFoundError, tomllib.TOMLDecodeError) as error:
        raise InvalidArgument(f"{entry} cannot be read: {error}", {"file": str(entry)}) from None


def build_command(name: str) -> str:
    """Return the command that makes a template ready ahead of its first sandbox."""
    own = "" if name in load_templates() else " --template FILE (or --extension), as for `sandmesh up`"
    return f"sandmesh build {name}{own}"
