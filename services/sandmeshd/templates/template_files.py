"""Templates as files: one YAML or TOML file each, with the names of `SandboxRegistry.register`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, cast

import yaml

from sandmesh.api.template.v1 import template_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmesh.templates.definitions import DefinitionFields, write_definition

KNOWN = tuple(DefinitionFields.__annotations__)


def read_file(path: Path) -> pb.TemplateDefinition:
    """Read a template; its name defaults to that of the file.

    Raises:
        InvalidArgument: It cannot be read, is neither YAML nor TOML, or has an invalid value.
    """
    values = _read(path)
    unknown = [name for name in values if name not in KNOWN]
    if unknown:
        raise _invalid(path, f"{unknown[0]!r} is not a field; the fields are {', '.join(KNOWN)}")
    try:
        return write_definition(cast("DefinitionFields", {"name": path.stem, **values, **_servers(path, values)}))
    except InvalidArgument as error:
        raise _invalid(path, error.message) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
        values = tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except (OSError, UnicodeError, tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise _invalid(path, str(error)) from None
    if not isinstance(values, dict):
        raise _invalid(path, "it is not a mapping of names to values")
    return cast("dict[str, Any]", values)


def _servers(path: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Read the configuration of MCP servers, where the template names a file that has it."""
    named = values.get("mcp_config")
    if not isinstance(named, str):
        return {}
    try:
        return {"mcp_config": json.loads((path.parent / named).read_text("utf-8"))}
    except (OSError, ValueError) as error:
        raise _invalid(path, f"mcp_config {named}: {error}") from None


def _invalid(path: Path, reason: str) -> InvalidArgument:
    return InvalidArgument(f"{path} is not a template: {reason}", {"file": str(path)})
