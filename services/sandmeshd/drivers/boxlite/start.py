"""The start of a sandbox: its folder with its agent's files, its box, and the wait until its agent answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandboxLost, SandboxStartFailed
from sandmeshd.agentlink.addresses import tls_endpoint
from sandmeshd.agentlink.connection import open_link
from sandmeshd.drivers.api.templates import BASE, check_no_data, check_no_scratch, check_no_system, check_settings
from sandmeshd.drivers.boxlite.boxes import AGENT_PORT, BORN, LOOPBACK, Boxes, BoxPlan, box_name
from sandmeshd.drivers.boxlite.layout import layout_of
from sandmeshd.drivers.boxlite.requirements import NAME, NETWORK, enforced, size_of
from sandmeshd.drivers.boxlite.settings import BoxliteSettings
from sandmeshd.drivers.boxlite.view import BoxView, born_directory
from sandmeshd.drivers.node import agent_config as shared
from sandmeshd.drivers.node.agent_files import TLS, agent_files
from sandmeshd.drivers.node.identity import new_identity
from sandmeshd.drivers.node.records import SpecRecord
from sandmeshd.templates import Template

AGENT_DIRECTORY = "/run/sandmesh/agent"
POLL_SECONDS, ATTEMPT_SECONDS = 0.05, 5.0


class Starter:
    """Starts the sandboxes of one driver."""

    def __init__(
        self,
        settings: BoxliteSettings,
        boxes: Boxes,
        view: BoxView,
        templates: Mapping[str, Template],
        user_filter: bytes,
    ) -> None:
        self._settings = settings
        self._boxes = boxes
        self._view = view
        self._templates = templates
        self._user_filter = user_filter

    async def layout(self, template: Template) -> Path:
        """Return the OCI layout of a template's image.

        Raises:
            TemplateBuildFailed: There is no image, or it is none.
            CapabilityMissing: The template has what only other drivers know.
        """
        check_no_system(template, NAME)
        check_no_data(template, NAME)
        check_no_scratch(template, NAME)
        check_settings(template, NAME)
        shipped = self._templates.get(BASE)
        name = template.image.rpartition("/")[2].partition(":")[0] if not template.image_is_shipped else template.name
        if template.image_is_shipped and shipped is not None and template.python == shipped.python:
            name = BASE
        return await asyncio.to_thread(layout_of, self._settings.image_directory, name)

    async def start(self, request: pb.CreateSandboxRequest, template: Template) -> pb.RuntimeSandbox:
        """Start a sandbox, and return it when its agent answers; on failure the caller removes what was made.

        Raises:
            SandboxStartFailed: Its virtual machine does not start, or its agent does not answer.
            TemplateBuildFailed: There is no image.
        """
        layout, identity = await self.layout(template), new_identity()
        cpus, mebibytes = size_of(request.spec.limits, self._settings)
        sandbox = shared.new_sandbox(request, "", enforced(request.spec.limits, (cpus, mebibytes)))
        config = shared.agent_config(sandbox, AGENT_DIRECTORY, template)
        config.fencing_token, config.seccomp_filter = request.fencing_token, self._user_filter
        config.user_id, config.listen = shared.USER_ID, f"tcp://0.0.0.0:{AGENT_PORT}"
        shared.let_out(sandbox, config, template, self._settings.egress)
        sandbox.enforced["network"] = f"{sandbox.enforced['network']}; {NETWORK}"
        folder = self._view.folder(request.sandbox_id)
        born = born_directory(folder)
        await asyncio.to_thread(_write, born, {**agent_files(config), TLS: identity.pem})
        record = SpecRecord(sandbox, request.fencing_token)
        record.write(folder)
        command = ["--shut-in", f"{shared.USER_ID},{AGENT_PORT}", "--born", BORN]
        name = box_name(sandbox.mesh_id, sandbox.sandbox_id)
        plan = BoxPlan(name, layout, cpus, mebibytes, born, command, not self._settings.ends_with_driver)
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                await self._run(plan, sandbox, identity.pin)
        except TimeoutError:
            why = f"neither its virtual machine nor its agent answered within {self._settings.start_timeout:g} s"
            raise _failed(sandbox, why) from None
        sandbox.state = pb.RUNTIME_STATE_RUNNING
        record.write(folder)
        return sandbox

    async def _run(self, plan: BoxPlan, sandbox: pb.RuntimeSandbox, pin: str) -> None:
        await self._boxes.create(plan)
        box = await self._boxes.start(plan.name)
        if not box.port:
            raise _failed(sandbox, f"BoxLite published no port of it on {LOOPBACK}")
        self._view.note(box)
        sandbox.endpoint = tls_endpoint(LOOPBACK, box.port, pin)
        while not await _answers(sandbox):
            found = {box.name: box for box in await self._boxes.list(plan.name)}
            if plan.name not in found or not found[plan.name].is_running:
                raise _failed(sandbox, "its box ended before its agent answered")
            await asyncio.sleep(POLL_SECONDS)


def _write(born: Path, files: Mapping[str, bytes]) -> None:
    born.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    born.mkdir(mode=0o700)
    for name, data in files.items():
        path = born / name
        path.touch(0o400)
        path.chmod(0o600)
        path.write_bytes(data)
        path.chmod(0o400)


async def _answers(sandbox: pb.RuntimeSandbox) -> bool:
    try:
        async with open_link(sandbox, ATTEMPT_SECONDS):
            return True
    except SandboxLost:
        return False


def _failed(sandbox: pb.RuntimeSandbox, detail: str) -> SandboxStartFailed:
    return SandboxStartFailed(f"{sandbox.sandbox_id} could not be started: {detail}", {"detail": detail})
