"""The agent as PID 1: it reads its configuration, reports that it is ready, and ends with its driver."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from base64 import b64decode
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import uvloop
from google.protobuf.message import DecodeError

from sandmesh.api.agent.v1 import agent_pb2
from sandmeshd.agent.app import configure_zygote, open_agent
from sandmeshd.agent.boot.image.entry import complete
from sandmeshd.agent.processes.memory import Memory
from sandmeshd.agent.python.image_python import find_python
from sandmeshd.agent.userland.core.account import Account


@dataclass(frozen=True)
class AgentDescriptors:
    """The descriptors that an agent starts with; negative ones are absent."""

    config: int
    ready: int
    memory: int = -1
    """The counter of processes killed for exceeding the memory limit."""
    life: int = -1
    """A pipe that closes with the driver, where the configuration's own pipe does not."""


def serve(
    descriptors: AgentDescriptors,
    control: socket.socket,
    *,
    zygote_configured: bool = False,
    account: Account | None = None,
) -> int:
    """Serve until the driver closes its pipe, a SIGTERM or the loss of the zygote; `account` is an image's.

    Returns: the exit code.
    """
    try:
        config = _read_config(descriptors.config)
        if account is not None:
            complete(config, account)
        memory = _memory(config, descriptors)
        if descriptors.life >= 0:
            os.dup2(descriptors.life, descriptors.config, inheritable=False)
            os.close(descriptors.life)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(config, descriptors, control, memory, zygote_configured, account))
    except (OSError, ValueError, DecodeError) as error:
        _report(descriptors.ready, {"error": str(error)})
        return 1


def _memory(config: agent_pb2.AgentConfig, descriptors: AgentDescriptors) -> Memory:
    return Memory(descriptors.memory if config.memory_bytes else -1, config.memory_bytes)


def _read_config(fd: int) -> agent_pb2.AgentConfig:
    line = bytearray()
    while not line.endswith(b"\n"):
        # Nothing but the end of the pipe follows the line.
        data = os.read(fd, 1 << 16)
        if not data:
            raise ValueError("the driver's configuration is not complete")
        line += data
    if line.startswith(b"{"):
        return _parse_json(bytes(line))
    return agent_pb2.AgentConfig.FromString(b64decode(line))


def _parse_json(line: bytes) -> agent_pb2.AgentConfig:
    # Drivers use the other form: this one is for people, and slow to import.
    json_format: Any = import_module("google.protobuf.json_format")
    try:
        config: agent_pb2.AgentConfig = json_format.Parse(line, agent_pb2.AgentConfig())
    except json_format.Error as error:
        raise ValueError(str(error)) from None
    return config


async def _serve(
    config: agent_pb2.AgentConfig,
    descriptors: AgentDescriptors,
    control: socket.socket,
    memory: Memory,
    zygote_configured: bool,
    account: Account | None,
) -> int:
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ending.done():
            ending.set_result(code)

    loop.add_signal_handler(signal.SIGTERM, end, 0)
    signal.signal(signal.SIGCHLD, _reap)
    if config.HasField("birth"):
        if config.ends_with_driver:
            loop.add_reader(descriptors.config, end, 0)
        born = await _await_birth(config, descriptors.ready, ending, account)
        loop.remove_reader(descriptors.config)
        if born is None:
            return ending.result()
        config, memory = born, _memory(born, descriptors)
    if not zygote_configured:
        configure_zygote(config, control)
    in_image = account is not None
    python = find_python(config.environment) if in_image else ""
    if config.ends_with_driver:
        loop.add_reader(descriptors.config, end, 0)
    else:
        os.close(descriptors.config)
    async with open_agent(config, control, memory, in_image=in_image) as processes:
        processes.lost.add_done_callback(lambda _: end(1))
        _report(descriptors.ready, {"ready": True, **({"python": python} if python else {})})
        code = await ending
        # Processes that end from now on need not be reaped.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return code


async def _await_birth(
    config: agent_pb2.AgentConfig, ready: int, ending: asyncio.Future[int], account: Account | None
) -> agent_pb2.AgentConfig | None:
    """Wait for the configuration that is still to come; None where the agent ends before."""
    late_birth: Any = import_module("sandmeshd.agent.boot.late_birth")
    waiting = asyncio.create_task(late_birth.await_birth(config, lambda: _report(ready, {"waiting": True}, more=True)))
    await asyncio.wait([waiting, ending], return_when=asyncio.FIRST_COMPLETED)
    if ending.done():
        waiting.cancel()
        return None
    born: agent_pb2.AgentConfig = waiting.result()
    if account is not None:
        complete(born, account)
    return born


def _reap(_number: int, _frame: object) -> None:
    """Reap orphans, which become children of PID 1."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] > 0:
            pass


def _report(fd: int, line: dict[str, object], *, more: bool = False) -> None:
    with suppress(OSError):
        os.write(fd, json.dumps(line).encode() + b"\n")
        if not more:
            os.close(fd)
