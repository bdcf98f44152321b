"""Tokens, templates, snapshots and ports of a mesh."""

from __future__ import annotations

import base64
import builtins
import secrets
from collections.abc import Mapping
from typing import Any, Literal, cast

from sandmesh._client.messages import check_port, read_name, write_ttl
from sandmesh.api.port.v1 import port_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.template.v1 import template_pb2
from sandmesh.api.token.v1 import token_pb2
from sandmesh.errors import InvalidArgument
from sandmesh.inputs import Snapshot
from sandmesh.mesh.messages import read_port, read_snapshot, read_template, read_token
from sandmesh.mesh.records import (
    CreatedToken,
    PortInfo,
    Scope,
    SnapshotInfo,
    SnapshotList,
    TemplateInfo,
    TemplateRegistration,
    TokenInfo,
)
from sandmesh.mesh.rpc import Rpc
from sandmesh.mesh.sandboxes import SandboxesAsync
from sandmesh.results import Listing
from sandmesh.sandbox.class_registry import class_registry
from sandmesh.templates.definitions import DefinitionFields, write_definition

_SCOPES = {
    "user": token_pb2.SCOPE_USER,
    "admin": token_pb2.SCOPE_ADMIN,
    "read-only": token_pb2.SCOPE_READ_ONLY,
}
_OTHER_SCOPES = {"sandbox": "create_for_sandbox", "project-admin": "create_for_project"}

# A snapshot takes as long as its bytes do.
SNAPSHOT_SECONDS = 3000.0


class TokensAsync:
    """The tokens of a mesh: `mesh.tokens`. Every method needs the scope admin or project-admin.

    With the latter these are the tokens of the project's users and sandboxes; other scopes get PermissionDenied.
    """

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def create(
        self,
        name: str,
        *,
        scope: Scope = "user",
        user_id: str | None = None,
        ttl: float | None = None,
        private_network: bool = False,
        form: Literal["mesh", "e2b"] = "mesh",
    ) -> CreatedToken:
        """Create a token and return its secret, which cannot be read again.

        `name` is unique among the tokens in force. The scope user allows what belongs to `user_id`, by default a user
        called as the token; admin allows everything. read-only shows what is `user_id`'s, without one everything, and
        creates, calls, changes and ends nothing. None as `ttl` (seconds): until it is revoked.
        With `private_network` a user's grants may name hosts of private networks, and addresses that are not public.
        With the form e2b the secret is written as E2B's clients want their key.

        Raises:
            AlreadyExists: A token in force has the name.
            InvalidArgument: A value does not fit, or a token of the scope admin has a user.
        """
        if scope not in _SCOPES:
            call = f": call {_OTHER_SCOPES[scope]}" if scope in _OTHER_SCOPES else ""
            message = f"scope must be one of {', '.join(_SCOPES)}, not {scope!r}{call}"
            raise InvalidArgument(message, {"argument": "scope"})
        if form not in ("mesh", "e2b"):
            raise InvalidArgument(f"form must be 'mesh' or 'e2b', not {form!r}", {"argument": "form"})
        request = token_pb2.CreateTokenRequest(
            name=read_name("name", name),
            scope=_SCOPES[scope],
            user_id=user_id or (name if scope == "user" else ""),
            ttl=write_ttl(ttl),
            private_network=private_network,
            form=token_pb2.FORM_E2B if form == "e2b" else token_pb2.FORM_MESH,
        )
        return await self._create(request)

    async def create_for_sandbox(self, name: str, sandbox_id: str, *, ttl: float | None = None) -> CreatedToken:
        """Create a token of the scope sandbox and return its secret, which cannot be read again.

        It allows to use this one sandbox as its user may, and to make and list nothing else. None as `ttl` (seconds):
        until it is revoked.

        Raises:
            AlreadyExists: A token in force has the name.
            InvalidArgument: A value does not fit.
            SandboxNotFound: There is no such sandbox.
        """
        request = token_pb2.CreateTokenRequest(
            name=read_name("name", name),
            scope=token_pb2.SCOPE_SANDBOX,
            sandbox_id=read_name("sandbox_id", sandbox_id),
            ttl=write_ttl(ttl),
        )
        return await self._create(request)

    async def create_for_project(
        self, name: str, project: str, *, ttl: float | None = None, private_network: bool = False
    ) -> CreatedToken:
        """Create a token of the scope project-admin and return its secret, which cannot be read again.

        It allows everything with the sandboxes, sessions, snapshots and secrets of the project's users, shows the
        project's usage, quotas and audit, and creates tokens for these users and sandboxes. None as `ttl` (seconds):
        until it is revoked. With `private_network` its grants may name hosts of private networks, and so may those of
        the tokens that it creates.

        Raises:
            AlreadyExists: A token in force has the name.
            InvalidArgument: A value does not fit, or there is no such project.
        """
        request = token_pb2.CreateTokenRequest(
            name=read_name("name", name),
            scope=token_pb2.SCOPE_PROJECT_ADMIN,
            project=read_name("project", project),
            ttl=write_ttl(ttl),
            private_network=private_network,
        )
        return await self._create(request)

    async def _create(self, request: token_pb2.CreateTokenRequest) -> CreatedToken:
        response = await self._rpc.send(lambda stubs: stubs.tokens.CreateToken, request)
        return CreatedToken(_message=response, token=read_token(response.token), secret=response.secret)

    async def list(self, *, include_ended: bool = False) -> builtins.list[TokenInfo]:
        """Return the tokens in force, by name, and with `include_ended` those that ended in the last 30 days."""
        request = token_pb2.ListTokensRequest(include_ended=include_ended)
        response = await self._rpc.send(lambda stubs: stubs.tokens.ListTokens, request)
        return Listing(read_token(token) for token in response.tokens)

    async def revoke(self, token: TokenInfo | str) -> TokenInfo:
        """Revoke a token (or the one with this id): its requests are refused immediately; streams end within a second.

        Raises:
            TokenNotFound: There is none of that id.
        """
        token_id = token.token_id if isinstance(token, TokenInfo) else read_name("token", token)
        request = token_pb2.RevokeTokenRequest(token_id=token_id)
        return read_token((await self._rpc.send(lambda stubs: stubs.tokens.RevokeToken, request)).token)


class TemplatesAsync:
    """The templates of a mesh: `mesh.templates`."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def list(self) -> builtins.list[TemplateInfo]:
        """Return the templates that the mesh's nodes have, by name."""
        response = await self._rpc.send(lambda stubs: stubs.sandboxes.ListTemplates, sandbox_pb2.ListTemplatesRequest())
        return Listing(read_template(template) for template in response.templates)

    async def register(self, template: Mapping[str, Any] | type) -> TemplateRegistration:
        """Add a template to the mesh until it ends, or replace one that was added so; existing sandboxes stay.

        `template` is a mapping with the keys of a template's file (name, extends, image, limits, ...), or a class that
        SandboxRegistry.register decorated.

        Raises:
            InvalidArgument: A value does not fit, or the class is not registered.
            AlreadyExists: The mesh was started with another template of that name.
            PermissionDenied: The token's scope is not admin.
        """
        definition = _registered_definition(template) if isinstance(template, type) else _definition(template)
        request = template_pb2.RegisterTemplateRequest(definition=definition)
        response = await self._rpc.send(lambda stubs: stubs.templates.RegisterTemplate, request)
        return TemplateRegistration(
            _message=response, name=definition.name, generation=response.generation, changed=response.changed
        )


def _definition(template: Mapping[str, Any]) -> template_pb2.TemplateDefinition:
    known = DefinitionFields.__annotations__
    for name in template:
        if name not in known:
            message = f"a template has no {name!r}, but {', '.join(known)}"
            raise InvalidArgument(message, {"argument": "template"})
    return write_definition(cast("DefinitionFields", template))


def _registered_definition(sandbox_class: type) -> template_pb2.TemplateDefinition:
    found = class_registry().definition_of(class_registry().type_of(sandbox_class) or "")
    if found is None:
        message = f"{sandbox_class.__qualname__} has no template: decorate it with SandboxRegistry.register"
        raise InvalidArgument(message, {"argument": "template"})
    return found


class MeshSnapshotsAsync:
    """The snapshots of a mesh: `mesh.snapshots`."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def create(
        self, sandbox_id: str, *, timeout: float = SNAPSHOT_SECONDS, kernels: bool = False, ttl: float | None = None
    ) -> SnapshotInfo:
        """Save a sandbox's workspace and home; its processes are held still meanwhile.

        Memory is not saved. With `kernels` that of its Python kernels is held for 5 minutes: sandboxes can start from
        the snapshot so long, and continue them. With `ttl` it deletes itself after so many seconds, at most 7 days.

        Raises:
            SandboxNotFound: There is none, or it is another user's.
            CapabilityMissing: Its driver cannot take snapshots, or not of kernels.
            TooLarge: It holds more than a snapshot may have.
            WrongState: It is not READY, or a kernel cannot be copied.
        """
        lease = (await SandboxesAsync(self._rpc).get(sandbox_id)).lease
        request = sandbox_pb2.CreateSnapshotRequest(
            sandbox_id=sandbox_id,
            fencing_token=0 if lease is None else lease.fencing_token,
            snapshot_id="snap_" + base64.b32encode(secrets.token_bytes(17)).decode().lower()[:26],
            kernels=kernels,
        )
        if ttl is not None:
            request.ttl.FromMilliseconds(round(ttl * 1e3))
        response = await self._rpc.send(lambda stubs: stubs.sandboxes.CreateSnapshot, request, timeout)
        return read_snapshot(response.snapshot)

    async def list(self) -> SnapshotList:
        """Return the caller's snapshots, an administrator's everybody's; the oldest first."""
        request = sandbox_pb2.ListSnapshotsRequest()
        response = await self._rpc.send(lambda stubs: stubs.sandboxes.ListSnapshots, request)
        return SnapshotList(
            snapshots=tuple(read_snapshot(snapshot) for snapshot in response.snapshots),
            silent_nodes=tuple(response.silent_nodes),
        )

    async def delete(self, snapshot: Snapshot | str) -> None:
        """Delete a snapshot, or the one with this id; sandboxes that were started from it stay.

        Raises:
            SnapshotNotFound: There is none, or it is another user's.
        """
        snapshot_id = snapshot.snapshot_id if isinstance(snapshot, Snapshot) else read_name("snapshot", snapshot)
        request = sandbox_pb2.DeleteSnapshotRequest(snapshot_id=snapshot_id)
        await self._rpc.send(lambda stubs: stubs.sandboxes.DeleteSnapshot, request)


class MeshPortsAsync:
    """The exposed ports of a mesh's sandboxes: `mesh.ports`."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def expose(self, sandbox_id: str, port: int, *, ttl: float = 3600.0) -> PortInfo:
        """Create a URL that carries HTTP and WebSocket to a port of a sandbox for `ttl` seconds (1 s to 30 days).

        Anyone with the URL can use it. Nothing needs to listen at the port yet.

        Raises:
            SandboxNotFound: There is none, or it is another user's.
            CapabilityMissing: The mesh serves no HTTP.
            InvalidArgument: The port or `ttl` is out of range.
        """
        request = port_pb2.ExposePortRequest(sandbox_id=sandbox_id, port=check_port(port), ttl=write_ttl(ttl))
        return read_port((await self._rpc.send(lambda stubs: stubs.ports.ExposePort, request)).port)

    async def show_desktop(self, sandbox_id: str, *, readonly: bool = False, ttl: float = 3600.0) -> PortInfo:
        """Create the URL of a page that shows a sandbox's desktop, for `ttl` seconds (1 s to 30 days).

        Anyone with the URL sees the desktop and, unless it is `readonly`, can take over from the agent.

        Raises:
            SandboxNotFound: There is none, or it is another user's.
            CapabilityMissing: The mesh serves no HTTP, or the sandbox has no desktop.
        """
        kind = port_pb2.EXPOSURE_KIND_DESKTOP_READONLY if readonly else port_pb2.EXPOSURE_KIND_DESKTOP
        return await self._show(sandbox_id, kind, ttl)

    async def show_browser(self, sandbox_id: str, *, readonly: bool = False, ttl: float = 3600.0) -> PortInfo:
        """Create the URL of a page that shows the page of a sandbox's browser, for `ttl` seconds (1 s to 30 days).

        Anyone with the URL sees the page and, unless it is `readonly`, can take over from the agent.

        Raises:
            SandboxNotFound: There is none, or it is another user's.
            CapabilityMissing: The mesh serves no HTTP, or the sandbox has no browser.
        """
        kind = port_pb2.EXPOSURE_KIND_BROWSER_READONLY if readonly else port_pb2.EXPOSURE_KIND_BROWSER
        return await self._show(sandbox_id, kind, ttl)

    async def show_mobile(self, sandbox_id: str, *, readonly: bool = False, ttl: float = 3600.0) -> PortInfo:
        """Create the URL of a page that shows a sandbox's Android device, for `ttl` seconds (1 s to 30 days).

        Anyone with the URL sees the screen and, unless it is `readonly`, can take over from the agent.

        Raises:
            SandboxNotFound: There is none, or it is another user's.
            CapabilityMissing: The mesh serves no HTTP, or the sandbox has no device.
        """
        kind = port_pb2.EXPOSURE_KIND_MOBILE_READONLY if readonly else port_pb2.EXPOSURE_KIND_MOBILE
        return await self._show(sandbox_id, kind, ttl)

    async def _show(self, sandbox_id: str, kind: port_pb2.ExposureKind.ValueType, ttl: float) -> PortInfo:
        request = port_pb2.ExposePortRequest(sandbox_id=sandbox_id, kind=kind, ttl=write_ttl(ttl))
        return read_port((await self._rpc.send(lambda stubs: stubs.ports.ExposePort, request)).port)

    async def list(self, sandbox_id: str) -> builtins.list[PortInfo]:
        """Return the URLs that lead to a sandbox's ports now, the oldest first.

        Raises:
            SandboxNotFound: There is none, or it is another user's.
        """
        request = port_pb2.ListExposedPortsRequest(sandbox_id=read_name("sandbox_id", sandbox_id))
        response = await self._rpc.send(lambda stubs: stubs.ports.ListExposedPorts, request)
        return Listing(read_port(port) for port in response.ports)

    async def revoke(self, sandbox_id: str, exposure_id: str) -> None:
        """Revoke a URL and close the connections through it; one that has ended is revoked too.

        Raises:
            SandboxNotFound: There is none, or it is another user's.
        """
        request = port_pb2.RevokePortRequest(sandbox_id=sandbox_id, exposure_id=exposure_id)
        await self._rpc.send(lambda stubs: stubs.ports.RevokePort, request)
