"""The templates of a mesh: those that are shipped, those that it was started with, and those added while it runs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from sandmesh.api.template.v1 import template_pb2 as pb
from sandmesh.errors import AlreadyExists, InvalidArgument
from sandmesh.templates.definitions import DefinitionFields, write_definition
from sandmeshd.templates.loader import load_templates
from sandmeshd.templates.model import Template
from sandmeshd.templates.template_builder import make_template


class TemplateCatalog(Mapping[str, Template]):
    """Templates by name; templates that are added later appear in it."""

    def __init__(self, shipped: Mapping[str, Template] | None = None) -> None:
        self._shipped = load_templates() if shipped is None else shipped
        self._templates = dict(self._shipped)
        self._added: set[str] = set()

    def __getitem__(self, name: str) -> Template:
        return self._templates[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._templates)

    def __len__(self) -> int:
        return len(self._templates)

    def add(self, definition: pb.TemplateDefinition, *, replaceable: bool = False) -> bool:
        """Add the template of a definition; return whether anything changed.

        A replaceable one replaces an earlier replaceable one, and no other.

        Raises:
            InvalidArgument: The definition is invalid.
            AlreadyExists: The mesh has another template of that name.
        """
        template = make_template(definition, self._shipped)
        present = self._templates.get(template.name)
        if present == template:
            return False
        if present is not None and not (replaceable and template.name in self._added):
            message = f"the mesh has another template {template.name!r}: choose another name for this one"
            raise AlreadyExists(message, {"template": template.name})
        self._templates[template.name] = template
        if replaceable:
            self._added.add(template.name)
        return True


def open_catalog(extensions: Sequence[str] = (), files: Sequence[Path] = ()) -> TemplateCatalog:
    """Return the templates of a mesh: shipped ones, those of installed packages, of extensions and of files.

    Raises:
        InvalidArgument: An extension does not import or registers nothing, or a file is not a template.
        AlreadyExists: Two have the same name.
    """
    # Extensions import the SDK, which the templates by themselves need not.
    from sandmeshd.templates.catalog import read_file  # noqa: PLC0415
    from sandmeshd.templates.extensions import read_extensions  # noqa: PLC0415

    catalog = TemplateCatalog()
    for definition in (*read_extensions(extensions), *(read_file(path) for path in files)):
        catalog.add(definition)
    return catalog


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
