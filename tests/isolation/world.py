"""A driver whose sandboxes ask a resolver of the test's, and hosts on this machine for them to reach."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmeshd.agentlink.calls import AgentCall
from sandmeshd.agentlink.connection import open_link
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver, sweep_state
from sandmeshd.drivers.conformance.inside import Finished, run
from sandmeshd.runtime.paths import MeshPaths, default_runtime_directory, default_state_directory
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from tests.unit.drivers.egress.harness import Here, Names

GRANTS = {"none": sandbox_pb2.NETWORK_MODE_NONE, "public": sandbox_pb2.NETWORK_MODE_PUBLIC}


@dataclass
class Box:
    """A sandbox of the world's."""

    runtime: pb.RuntimeSandbox

    async def shell(self, command: str) -> Finished:
        """Run a command."""
        return await run(self.runtime, command)

    async def cell(self, code: str) -> str:
        """Run a cell in the sandbox's kernel and give all texts that came of it."""
        async with open_link(self.runtime, 60) as link:
            call = AgentCall(link)
            call.start(self.runtime.sandbox_id, "run_ipython_cell", {"code": code})
            texts = [_text(event) for event in await call.wait()]
        return "".join(texts)

    async def json(self, program: str) -> Any:
        """Run a Python program that prints one JSON value, and give the value."""
        done = await self.shell(f"python3 - <<'END'\n{program}\nEND")
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)


def _text(event: call_pb2.CallEvent) -> str:
    if event.HasField("output"):
        return event.output.data.decode()
    return str(json.loads(event.content.json).get("text", "")) if event.HasField("content") else ""


@dataclass
class World:
    """A driver, and who answers its questions for names."""

    driver: Driver
    mesh_id: str
    names: Names

    async def make(self, name: str, *hosts: str, **environment: str) -> Box:
        """Make a sandbox that may reach hosts, or what one word says."""
        mode = GRANTS.get(hosts[0] if hosts else "none", sandbox_pb2.NETWORK_MODE_HOSTS)
        grant = sandbox_pb2.NetworkGrant(mode=mode, hosts=[host for host in hosts if host not in GRANTS])
        spec = sandbox_pb2.SandboxSpec(template="base", network=grant, environment=environment)
        request = pb.CreateSandboxRequest(sandbox_id=name, mesh_id=self.mesh_id, spec=spec)
        return Box((await self.driver.create_sandbox(request)).sandbox)

    async def remove(self, name: str) -> None:
        """Remove a sandbox."""
        await self.driver.delete_sandbox(pb.DeleteSandboxRequest(sandbox_id=name))

    @asynccontextmanager
    async def box(self, *hosts: str, **environment: str) -> AsyncGenerator[Box]:
        """Start a sandbox for the duration of a block."""
        name = f"sb_{secrets.token_hex(13)}"
        try:
            yield await self.make(name, *hosts, **environment)
        finally:
            await self.remove(name)


@asynccontextmanager
async def new_paths() -> AsyncGenerator[MeshPaths]:
    """Create the directories of a mesh of its own, and remove them afterwards."""
    paths = MeshPaths(f"egress-{secrets.token_hex(5)}", default_state_directory(), default_runtime_directory())
    paths.make()
    try:
        yield paths
    finally:
        await sweep_state(paths)
        for folder in (paths.state, paths.runtime):
            remove_tree(folder)


@asynccontextmanager
async def open_world(names: Names, paths: MeshPaths, **settings: object) -> AsyncGenerator[World]:
    """Open a driver on a mesh."""
    validated = BubblewrapSettings.model_validate({"paths": paths, **settings})
    async with open_driver(validated, names, outlet=Here()) as driver:
        async for _ in driver.prepare_template(pb.PrepareTemplateRequest(template="base")):
            pass
        yield World(driver, paths.mesh_id, names)
