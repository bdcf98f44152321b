"""A driver of about 100 lines: a bwrap a sandbox, a folder as its record, and nothing that it cannot enforce."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

from pydantic import Field

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import WrongState
from sandmeshd.contracts.driver import Driver
from sandmeshd.drivers.api.requirements import check, limit_values
from sandmeshd.drivers.api.settings import DriverSettings
from sandmeshd.drivers.api.templates import template_info, template_of
from sandmeshd.drivers.node.agent_bundle import AgentTree
from sandmeshd.drivers.node.agent_config import new_sandbox
from sandmeshd.drivers.node.interpreter import choose_interpreter
from sandmeshd.drivers.node.process_driver import ProcessDriver
from sandmeshd.drivers.node.processes import to_the_end
from sandmeshd.drivers.node.records import Folder, SpecRecord
from sandmeshd.templates import Template, load_templates

from .environment import Environments
from .start import Start

NAME = "tiny"
CAPABILITIES = pb.Capabilities(network_modes=[sandbox_pb2.NETWORK_MODE_NONE], snapshot=True, isolation="namespaces")


class TinySettings(DriverSettings, env_prefix="SANDMESH_TINY_"):
    """Settings of the tiny driver; each of its own fields is a variable, as SANDMESH_TINY_START_SECONDS."""

    start_seconds: float = Field(default=20.0, gt=0)
    """How long a sandbox's agent may take until it listens."""

    uid: int = Field(default=65432, ge=1)
    """The uid of sandboxes' processes where the mesh runs as root."""

    @property
    def host_uid(self) -> int:
        """The uid of sandboxes' processes, never root's."""
        return self.uid if os.geteuid() == 0 else os.geteuid()


class TinyDriver(ProcessDriver):
    """One mesh's sandboxes on this machine: what `ProcessDriver` leaves open is how they are prepared and started."""

    name = NAME

    def __init__(self, settings: TinySettings, templates: Mapping[str, Template], agent: AgentTree) -> None:
        super().__init__(settings)
        self._settings = settings
        self._interpreter = choose_interpreter(settings.host_uid, None)
        self._environments = Environments(settings.paths.cache / NAME, self._interpreter)
        self._templates = templates
        self._agent = agent

    async def get_info(self, request: pb.GetInfoRequest) -> pb.GetInfoResponse:
        """Return what the driver is and can do: no limits and no network."""
        templates = [template_info(template, self._is_prepared(template)) for template in self._templates.values()]
        node_id = self._settings.node_id
        return pb.GetInfoResponse(name=NAME, node_id=node_id, capabilities=CAPABILITIES, templates=templates)

    def _is_prepared(self, template: Template) -> bool:
        return self._agent.prepared and self._environments.is_built(template)

    async def prepare_template(self, request: pb.PrepareTemplateRequest) -> AsyncIterator[pb.PrepareTemplateResponse]:
        """Copy the agent's code, and install the template's packages."""
        template = template_of(self._templates, request.template)
        await self._agent.build()
        await self._environments.build(template)
        yield pb.PrepareTemplateResponse(message="ready", fraction=1, done=True)

    async def _create(self, folder: Folder, request: pb.CreateSandboxRequest) -> pb.RuntimeSandbox:
        template = template_of(self._templates, request.spec.template)
        check(request, NAME, {}, {}, _unmet(request))
        self._snapshots.check(request.spec)
        if not self._is_prepared(template):
            raise WrongState(f"{template.name} is not prepared", {"state": "not prepared", "template": template.name})
        enforced = {**dict.fromkeys(limit_values(request.spec.limits), "no"), "network": "none: own namespace"}
        record = SpecRecord(new_sandbox(request, folder.endpoint, enforced), request.fencing_token)
        environment, own = self._environments.path(template), self._settings
        start = Start(template, self._agent, environment, self._interpreter, own.host_uid, own.start_seconds)
        await self._remove(folder)
        try:
            await start.run(folder, record)
            return await self._follow(folder, record)
        except BaseException:
            await to_the_end(self._remove(folder))
            raise


def _unmet(request: pb.CreateSandboxRequest) -> list[str]:
    spec = request.spec
    needs = {
        "network": spec.network.mode not in (0, sandbox_pb2.NETWORK_MODE_NONE),
        "ports": bool(request.ports),
        "workspace_dir": bool(spec.workspace_dir),
    }
    return [name for name, missing in needs.items() if missing]


@asynccontextmanager
async def open_driver(
    settings: TinySettings, templates: Mapping[str, Template] | None = None
) -> AsyncGenerator[Driver]:
    """Open the driver of a mesh; the sandboxes that its folders hold are adopted."""
    agent = await asyncio.to_thread(AgentTree, settings.paths.cache)
    driver = TinyDriver(settings, load_templates() if templates is None else templates, agent)
    await driver.adopt()
    try:
        yield driver
    finally:
        await driver.close()


DRIVER = (TinySettings, open_driver)
