"""The start of a sandbox: its folder, its container, and the wait until its agent listens."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import structlog
from aiodocker import DockerError

from sandmesh.errors import SandboxStartFailed, WrongState
from sandmeshd.drivers.engine.container_config import AGENT_ID, HOSTS
from sandmeshd.drivers.engine.engine import NOT_FOUND, Engine, TarFiles
from sandmeshd.drivers.engine.events import EventSubscriber
from sandmeshd.drivers.engine.plan import Plan
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.agent_files import agent_files
from sandmeshd.drivers.node.images.process import KERNELS, describe_kernels
from sandmeshd.drivers.node.mounts.boot_id import mount_boot_id

log = structlog.get_logger()

TAIL_BYTES = 4096
LAST_LINES, LAST_CHARACTERS = 3, 500
"""How much of an agent's output is in the message of a start that failed."""
POLL_SECONDS = 0.004
READY, LIFETIME, AGENT_SOCKET = "ready", "life", "agent.sock"
HOSTS_FILE = "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n"
"""The names that resolve without a network (hosts(5))."""


class Starter:
    """Starts sandboxes of one driver, whose agents are reached by a socket."""

    def __init__(self, settings: DockerSettings, engine: Engine, events: EventSubscriber) -> None:
        self._settings = settings
        self._engine = engine
        self._events = events

    async def start(self, plan: Plan, ended: asyncio.Event) -> int | None:
        """Start a sandbox and return when its agent listens; `ended` is set when its container ends meanwhile.

        Returns: the descriptor whose end ends the sandbox; None if it outlives the driver. On failure the caller
        removes what was started.

        Raises:
            SandboxStartFailed: The agent did not start; `facts["detail"]` has the end of its log.
            InvalidArgument: The agent's configuration is larger than 1 MiB.
            WrongState: The image does not exist.
        """
        self._make_folder(plan)
        lifetime = _open_lifetime_pipe(plan.shared / LIFETIME) if self._settings.ends_with_driver else None
        try:
            await self._run(plan)
            await self._wait_for_agent(plan, ended)
            if plan.shared != plan.folder.sockets:
                await asyncio.to_thread(seclude, plan)
            if plan.own_boot_id:
                await self._give_boot_id(plan)
        except BaseException:
            if lifetime is not None:
                os.close(lifetime)
            raise
        return lifetime

    async def _run(self, plan: Plan, files: Sequence[TarFiles] = ()) -> None:
        try:
            await self._engine.start(plan.name, plan.container, files)
        except DockerError as error:
            if error.status != NOT_FOUND:
                raise SandboxStartFailed(f"{plan.name} could not be created: {error.message}") from None
            image = plan.container["Image"]
            message = f"the image {image} does not exist: prepare its template first (sandmesh build --driver docker)"
            raise WrongState(message, {"state": "not prepared", "image": image}) from None

    async def _give_boot_id(self, plan: Plan) -> None:
        container = await self._engine.inspect(plan.name)
        if container is not None and container["State"]["Pid"]:
            arguments = int(container["State"]["Pid"]), str(container["Id"]), plan.folder.root
            try:
                await asyncio.to_thread(mount_boot_id, *arguments)
            except OSError as error:
                # As where this process is in a container itself, and sees neither the engine's processes nor may mount.
                log.info("a sandbox has the machine's boot_id", container=plan.name, error=str(error))

    def _make_folder(self, plan: Plan) -> None:
        folder = plan.folder
        folder.root.mkdir(mode=0o700)
        plan.record.write(folder)
        folder.sockets.mkdir(exist_ok=True)
        # Only this user can pass the directories above it; inside it is below a directory of only the agent.
        shared = plan.shared
        if shared != folder.sockets:
            folder.sockets.chmod(0o755)
            shared.mkdir()
        shared.chmod(0o700 if os.geteuid() == 0 else 0o777)
        files = agent_files(plan.config)
        for name, data in files.items():
            path = shared / name
            path.write_bytes(data)
            path.chmod(0o600 if os.geteuid() == 0 else 0o644)
        hosts = folder.sockets / HOSTS
        hosts.write_text(HOSTS_FILE)
        hosts.chmod(0o644)
        if os.geteuid() == 0:
            for path in (shared, *(shared / name for name in files)):
                os.chown(path, AGENT_ID, AGENT_ID)

    async def _wait_for_agent(self, plan: Plan, ended: asyncio.Event) -> None:
        ready = plan.shared / READY
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                while not (line := _read(ready)).endswith(b"\n"):
                    if ended.is_set() and not await self._runs(plan, ended):
                        raise await self._failed(plan, "its agent ended immediately")
                    # Not every runtime causes a file event on the host; many starts together poll as often as one.
                    await asyncio.sleep(POLL_SECONDS * self._events.starting)
        except TimeoutError:
            why = f"its agent did not listen within {self._settings.start_timeout:g} s"
            raise await self._failed(plan, why) from None
        message = cast("dict[str, object]", json.loads(line))
        if message.get("ready") is not True:
            raise await self._failed(plan, str(message.get("error")))
        if python := message.get("python"):
            plan.record.sandbox.enforced[KERNELS] = describe_kernels(str(python))
            plan.record.write(plan.folder)

    async def _runs(self, plan: Plan, ended: asyncio.Event) -> bool:
        """Return whether it runs: what ended may be a container of the same name from an earlier attempt."""
        ended.clear()
        container = await self._engine.inspect(plan.name)
        return container is not None and container["State"]["Running"] is True

    async def _failed(self, plan: Plan, why: str) -> SandboxStartFailed:
        log = (await self._engine.log(plan.name))[-TAIL_BYTES:].decode("utf-8", "replace").strip()
        message = f"{plan.folder.sandbox_id} could not be started: {why}"
        if log:
            last = " | ".join(line.strip() for line in log.splitlines()[-LAST_LINES:])
            message = f"{message}; its last output: {last[-LAST_CHARACTERS:]}"
        return SandboxStartFailed(message, {"detail": log or why})


def seclude(plan: Plan) -> None:
    """Take the agent's socket out of the directory that its container has, and remove that from the host.

    Root inside can enter that directory. It is empty then, nothing can be made in it any more, and who connects
    on the host reaches the agent and nothing that user code might put in its place.
    """
    shared = plan.shared
    (shared / AGENT_SOCKET).rename(plan.folder.sockets / AGENT_SOCKET)
    for path in list(shared.iterdir()):
        path.unlink()
    shared.rmdir()


def _open_lifetime_pipe(path: Path) -> int:
    os.mkfifo(path, 0o644)
    path.chmod(0o644)
    # For reading too: otherwise it cannot be opened before the agent opens it.
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _read(path: Path) -> bytes:
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return b""
