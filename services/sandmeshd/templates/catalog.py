"""The templates of a mesh: those that are shipped, those that it was started with, and those added while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sandmesh.api.template.v1 import template_pb2 as pb
from sandmesh.errors import AlreadyExists
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
    from sandmeshd.templates.extensions import read_extensions  # noqa: PLC0415
    from sandmeshd.templates.template_files import read_file  # noqa: PLC0415

    catalog = TemplateCatalog()
    for definition in (*read_extensions(extensions), *(read_file(path) for path in files)):
        catalog.add(definition)
    return catalog
