"""Tells a mesh of the classes of sandboxes that this program registered, before their first sandbox."""

from __future__ import annotations

from collections.abc import Iterable

from sandmesh._client.connection import Connection
from sandmesh.api.template.v1 import template_pb2
from sandmesh.errors import MethodNotFound, PermissionDenied, TemplateNotFound
from sandmesh.sandbox.registered_classes import registered


async def introduce(connection: Connection, templates: Iterable[str], timeout: float) -> None:
    """Register on the mesh what this program registered under these names, once for each connection.

    A mesh whose templates are not this program's to change keeps its own.

    Raises:
        AlreadyExists: The mesh was started with another template of that name.
        InvalidArgument: The mesh takes none such.
    """
    for name in templates:
        definition = registered().definition_of(name)
        if definition is None or connection.templates.known.get(name) == definition:
            continue
        request = template_pb2.RegisterTemplateRequest(definition=definition)
        try:
            await connection.ask(lambda stubs: stubs.templates.RegisterTemplate, request, timeout)
        except (PermissionDenied, MethodNotFound):
            connection.templates.refused.add(name)
        connection.templates.known[name] = definition


def forget(connection: Connection, templates: Iterable[str]) -> bool:
    """Forget what a mesh was told that does not know it any more; say whether there was anything."""
    told = [
        name for name in templates if name in connection.templates.known and name not in connection.templates.refused
    ]
    for name in told:
        del connection.templates.known[name]
    return bool(told)


def explained(error: TemplateNotFound, templates: Iterable[str]) -> TemplateNotFound:
    """Say what to do where the missing template is a class of this program."""
    own = [name for name in templates if registered().definition_of(name) is not None]
    if not own:
        return error
    fix = f"start it with the file of the class of {own[0]!r} (sandmesh up --extension FILE)"
    return TemplateNotFound(
        f"{error.message}; this mesh takes no classes of its users: {fix}", {**error.facts, "fix": fix}
    )
