"""The sessions of a mesh's users."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Unpack

from sandmesh._client.messages import check_options, read_name, write_batch, write_on_idle, write_spec, write_ttl
from sandmesh._client.secrets import sealed_slots
from sandmesh.api.session.v1 import session_pb2 as pb
from sandmesh.inputs import Options
from sandmesh.mesh.rpc import Rpc
from sandmesh.sandbox.session.info import SessionInfo, get_session, list_sessions, read_session
from sandmesh.sandbox.session.template_registration import register_templates

DEFAULT_USER = "default"
CREATE_SECONDS = 3000.0


class SessionsAsync:
    """The sessions of a mesh: `mesh.sessions`. To renew and use their sandboxes there is SandboxService."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def connect(
        self, session_id: str, user_id: str | None = None, sandbox_type: str = "base", **options: Unpack[Options]
    ) -> SessionInfo:
        """Return a session that has a sandbox of this type: the one it has, or a new one.

        `options` are those of BaseSandbox but `ca_cert`. None as `user_id`: the token's user; without a token, or for
        an administrator, a user that the mesh makes up. The session is not renewed: it ends after its `ttl`.

        Raises:
            InvalidArgument: A value does not fit.
            SandmeshError: The sandbox could not be created; nothing is left behind.
        """
        check_options(options)
        template = read_name("sandbox_type", sandbox_type)
        spec = write_spec(template, options)
        slot = pb.SlotSpec(
            # Its place has the type's name also where the template is another.
            slot=template if spec.template != template else "",
            spec=spec,
            ttl=write_ttl(options.get("ttl")),
            idle_timeout=write_ttl(options.get("idle_timeout"), "idle_timeout"),
            on_idle=write_on_idle(options.get("on_idle")),
            auto_resume=options.get("auto_resume"),
            batch=write_batch(options),
        )
        await register_templates(self._rpc.connection(), [slot.spec.template], self._rpc.timeout)
        slots = await sealed_slots(self._rpc.connection(), [slot], self._rpc.timeout)
        request = pb.ConnectSessionRequest(
            user_id=user_id or "", session_id=read_name("session_id", session_id), slots=slots
        )
        response = await self._rpc.send(lambda stubs: stubs.sessions.ConnectSession, request, CREATE_SECONDS)
        return read_session(response.session)

    async def get(self, session_id: str, user_id: str = DEFAULT_USER) -> SessionInfo:
        """Return a session.

        Raises:
            SessionNotFound: The user has none of that name.
        """
        user, name = read_name("user_id", user_id), read_name("session_id", session_id)
        return await get_session(self._rpc.connection(), user, name, self._rpc.timeout)

    async def list(self, user_id: str = DEFAULT_USER) -> builtins.list[SessionInfo]:
        """Return a user's sessions, by key."""
        return await list_sessions(self._rpc.connection(), read_name("user_id", user_id), self._rpc.timeout)

    async def release(
        self, session_id: str, user_id: str = DEFAULT_USER, *, slots: Sequence[str] = ()
    ) -> builtins.list[str]:
        """End a session, or only these slots of it, and return the ids of the sandboxes that are being deleted.

        A session that is gone is released too.
        """
        request = pb.ReleaseSessionRequest(
            user_id=read_name("user_id", user_id), session_id=read_name("session_id", session_id), slots=slots
        )
        response = await self._rpc.send(lambda stubs: stubs.sessions.ReleaseSession, request)
        return builtins.list(response.sandbox_ids)
