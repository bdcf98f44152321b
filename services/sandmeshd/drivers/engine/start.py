"""Starts a sandbox: its folder, its container, and the wait until its agent listens."""

from __future__ import annotations

import asyncio
import json
import os
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from aiodocker import DockerError

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.errors import InvalidArgument, SandboxStartFailed, WrongState
from sandmeshd.drivers.engine.engine import NOT_FOUND, Engine, Files
from sandmeshd.drivers.engine.events import Follower
from sandmeshd.drivers.engine.posture import HOSTS
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.records import Folder, Record

AGENT_ID = 900
CONFIG_BYTES = 1 << 20
TAIL_BYTES = 4096
POLL_SECONDS = 0.004
CONFIG, READY, LIFE, USER = "config", "ready", "life", "user"
NAMES = "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n"
"""What resolves without a network, as hosts(5) has it."""


@dataclass(frozen=True)
class Plan:
    """One sandbox to be started: its record, what its agent is told, and what the engine is."""

    folder: Folder
    record: Record
    config: agent_pb2.AgentConfig
    container: dict[str, Any]
    name: str
    port: int = 0
    """The port of the engine's machine that was leased for it."""


class Starter:
    """Starts sandboxes of one driver, whose agents are reached by a socket."""

    def __init__(self, settings: DockerSettings, engine: Engine, follower: Follower) -> None:
        self._settings = settings
        self._engine = engine
        self._follower = follower

    async def start(self, plan: Plan, ended: asyncio.Event) -> int | None:
        """Start a sandbox and return when its agent listens; `ended` is set when its container ends meanwhile.

        What it gives is the descriptor that ends the sandbox when it closes; None where it outlives the driver. When
        it fails the caller removes what was begun.

        Raises:
            SandboxStartFailed: The agent did not come up; `facts["detail"]` has its last words.
            InvalidArgument: What the agent must be told is larger than 1 MiB.
            WrongState: The image is not there.
        """
        self._make_folder(plan)
        held = _hold(plan.folder.sockets / LIFE) if self._settings.ends_with_driver else None
        try:
            await self._run(plan)
            await self._ready(plan, ended)
        except BaseException:
            if held is not None:
                os.close(held)
            raise
        return held

    async def _run(self, plan: Plan, files: Sequence[Files] = ()) -> None:
        try:
            await self._engine.start(plan.name, plan.container, files)
        except DockerError as error:
            if error.status != NOT_FOUND:
                raise SandboxStartFailed(f"{plan.name} could not be made: {error.message}") from None
            image = plan.container["Image"]
            message = f"the image {image} is not there: prepare its template first (sandmesh build --driver docker)"
            raise WrongState(message, {"state": "not prepared", "image": image}) from None

    def _make_folder(self, plan: Plan) -> None:
        folder = plan.folder
        folder.root.mkdir(mode=0o700)
        plan.record.write(folder)
        folder.sockets.mkdir(exist_ok=True)
        # Above it nobody but this user passes; inside it is below a directory that is the agent's alone.
        folder.sockets.chmod(0o700 if os.geteuid() == 0 else 0o777)
        files = files_of(plan.config)
        for name, data in files.items():
            path = folder.sockets / name
            path.write_bytes(data)
            path.chmod(0o600 if os.geteuid() == 0 else 0o644)
        hosts = folder.sockets / HOSTS
        hosts.write_text(NAMES)
        hosts.chmod(0o644)
        if os.geteuid() == 0:
            for path in (folder.sockets, *(folder.sockets / name for name in files)):
                os.chown(path, AGENT_ID, AGENT_ID)

    async def _ready(self, plan: Plan, ended: asyncio.Event) -> None:
        folder = plan.folder
        ready = folder.sockets / READY
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                while not (line := _read(ready)).endswith(b"\n"):
                    if ended.is_set() and not await self._runs(plan, ended):
                        raise await self._failed(plan, "its agent ended at once")
                    # No event of the host tells of it under every runtime; many together look as often as one.
                    await asyncio.sleep(POLL_SECONDS * self._follower.starting)
        except TimeoutError:
            why = f"its agent did not listen within {self._settings.start_timeout:g} s"
            raise await self._failed(plan, why) from None
        answer = cast("dict[str, object]", json.loads(line))
        if answer.get("ready") is not True:
            raise await self._failed(plan, str(answer.get("error")))

    async def _runs(self, plan: Plan, ended: asyncio.Event) -> bool:
        """Say whether it runs all the same: what ended may be another of its name, that was half made before it."""
        ended.clear()
        container = await self._engine.look(plan.name)
        return container is not None and container["State"]["Running"] is True

    async def _failed(self, plan: Plan, why: str) -> SandboxStartFailed:
        log = (await self._engine.log(plan.name))[-TAIL_BYTES:].decode("utf-8", "replace").strip()
        return SandboxStartFailed(f"{plan.folder.sandbox_id} could not be started: {why}", {"detail": log or why})


def _hold(path: Path) -> int:
    os.mkfifo(path, 0o644)
    path.chmod(0o644)
    # For reading too: otherwise it could not be opened before the agent has.
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def files_of(config: agent_pb2.AgentConfig) -> dict[str, bytes]:
    """Give what agent and zygote are told, by the names of the files in the agent's directory.

    Raises:
        InvalidArgument: It is larger than 1 MiB.
    """
    return {CONFIG: _written(config), USER: _of_user(config)}


def _written(config: agent_pb2.AgentConfig) -> bytes:
    line = b64encode(config.SerializeToString()) + b"\n"
    if len(line) > CONFIG_BYTES:
        raise InvalidArgument("the environment variables are larger than 1 MiB", {"field": "spec.environment"})
    return line


def _of_user(config: agent_pb2.AgentConfig) -> bytes:
    """Give what the agent's zygote is told, as the agent would: it need not wait for that."""
    told = {"python": config.python, "environment": dict(config.environment), "hidden": "", "user": config.user_id}
    return json.dumps({**told, "seccomp": b64encode(config.seccomp_filter).decode()}).encode()


def _read(path: Path) -> bytes:
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return b""
