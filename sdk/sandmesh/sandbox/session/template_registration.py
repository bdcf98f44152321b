"""Registration of this program's sandbox classes as templates of a mesh, before their first sandbox is created."""

from __future__ import annotations

from collections.abc import Iterable

from sandmesh._client.connection import Connection
from sandmesh.api.template.v1 import template_pb2
from sandmesh.errors import MethodNotFound, PermissionDenied, TemplateNotFound
from sandmesh.sandbox.class_registry import class_registry


async def register_templates(connection: Connection, templates: Iterable[str], timeout: float) -> None:
    """Register this program's definitions of these templates on the mesh, once per connection.

    A mesh that does not let this program change templates keeps its own.

    Raises:
        AlreadyExists: The mesh was started with another template of that name.
        InvalidArgument: The mesh does not accept the definition.
    """
    for name in templates:
        definition = class_registry().definition_of(name)
        if definition is None or connection.templates.known.get(name) == definition:
            continue
        request = template_pb2.RegisterTemplateRequest(definition=definition)
        try:
            await connection.ask(lambda stubs: stubs.templates.RegisterTemplate, request, timeout)
        except (PermissionDenied, MethodNotFound):
            connection.templates.refused.add(name)
        connection.templates.known[name] = definition


def forget_templates(connection: Connection, templates: Iterable[str]) -> bool:
    """Forget registrations that a restarted mesh has lost; return whether there were any."""
    registered, refused = connection.templates.known, connection.templates.refused
    lost = [name for name in templates if name in registered and name not in refused]
    for name in lost:
        del registered[name]
    return bool(lost)


def with_fix(error: TemplateNotFound, templates: Iterable[str]) -> TemplateNotFound:
    """Return the error with a fix where the missing template is a class of this program."""
    own = [name for name in templates if class_registry().definition_of(name) is not None]
    if not own:
        return error
    fix = f"start it with the file of the class of {own[0]!r} (sandmesh up --extension FILE)"
    return TemplateNotFound(
        f"{error.message}; this mesh accepts no templates from its users: {fix}", {**error.facts, "fix": fix}
    )
