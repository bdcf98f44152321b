"""The templates of one mesh: those that are shipped, those that it was started with, and those added while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sandmesh.api.template.v1 import template_pb2 as pb
from sandmesh.errors import AlreadyExists
from sandmeshd.templates.defined import make_template
from sandmeshd.templates.loader import load_templates
from sandmeshd.templates.model import Template


class TemplateBook(Mapping[str, Template]):
    """Templates by name. Who reads it sees what was added since."""

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
        """Add the template of a definition; say whether anything changed.

        A replaceable one takes the place of an earlier replaceable one, and nothing else's.

        Raises:
            InvalidArgument: The definition does not fit.
            AlreadyExists: There is another template of that name.
        """
        made = make_template(definition, self._shipped)
        there = self._templates.get(made.name)
        if there == made:
            return False
        if there is not None and not (replaceable and made.name in self._added):
            message = f"the mesh has another template {made.name!r}: give this one another name"
            raise AlreadyExists(message, {"template": made.name})
        self._templates[made.name] = made
        if replaceable:
            self._added.add(made.name)
        return True


def open_book(extensions: Sequence[str] = (), files: Sequence[Path] = ()) -> TemplateBook:
    """Give the templates of a mesh: shipped ones, those of installed packages, of extensions and of files.

    Raises:
        InvalidArgument: An extension does not import or registers nothing, or a file is no template.
        AlreadyExists: Two have one name.
    """
    # Extensions import the SDK, which the templates by themselves need not.
    from sandmeshd.templates.extensions import read_extensions  # noqa: PLC0415
    from sandmeshd.templates.files import read_file  # noqa: PLC0415

    book = TemplateBook()
    for definition in (*read_extensions(extensions), *(read_file(path) for path in files)):
        book.add(definition)
    return book
