"""The agent's life as PID 1: told who it is, ready, and gone with its driver."""

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
from sandmeshd.agent.app import open_agent, tell_zygote
from sandmeshd.agent.processes.memory import Memory


@dataclass(frozen=True)
class Given:
    """The descriptors that an agent is given at its birth; negative ones are not there."""

    config: int
    ready: int
    memory: int = -1
    """What counts processes that were ended for want of memory."""
    life: int = -1
    """What ends with the driver, where the configuration's own pipe does not."""


def serve(given: Given, control: socket.socket, *, told: bool = False) -> int:
    """Serve until the driver lets go, a SIGTERM or the loss of the zygote. Returns: the exit code.

    With `told` the zygote knows already what it is.
    """
    try:
        config = _read_config(given.config)
        memory = Memory(given.memory if config.memory_bytes else -1, config.memory_bytes)
        if given.life >= 0:
            os.dup2(given.life, given.config, inheritable=False)
            os.close(given.life)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(config, given, control, memory, told))
    except (OSError, ValueError, DecodeError) as error:
        _tell(given.ready, {"error": str(error)})
        return 1


def _read_config(fd: int) -> agent_pb2.AgentConfig:
    line = bytearray()
    while not line.endswith(b"\n"):
        # One byte could be the last of the line: what follows it on the pipe is only its end.
        data = os.read(fd, 1 << 16)
        if not data:
            raise ValueError("the driver gave no whole configuration")
        line += data
    if line.startswith(b"{"):
        return _parsed(bytes(line))
    return agent_pb2.AgentConfig.FromString(b64decode(line))


def _parsed(line: bytes) -> agent_pb2.AgentConfig:
    # Drivers write the other form: this one is a person's, and slow to import.
    json_format: Any = import_module("google.protobuf.json_format")
    try:
        config: agent_pb2.AgentConfig = json_format.Parse(line, agent_pb2.AgentConfig())
    except json_format.Error as error:
        raise ValueError(str(error)) from None
    return config


async def _serve(
    config: agent_pb2.AgentConfig, given: Given, control: socket.socket, memory: Memory, told: bool
) -> int:
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ending.done():
            ending.set_result(code)

    loop.add_signal_handler(signal.SIGTERM, end, 0)
    signal.signal(signal.SIGCHLD, _reap)
    if not told:
        tell_zygote(config, control)
    if config.ends_with_driver:
        loop.add_reader(given.config, end, 0)
    else:
        os.close(given.config)
    async with open_agent(config, control, memory) as processes:
        processes.lost.add_done_callback(lambda _: end(1))
        _tell(given.ready, {"ready": True})
        code = await ending
        # What ends from now on needs no burial.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return code


def _reap(_number: int, _frame: object) -> None:
    """Bury what became a child of PID 1 by losing its parent."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0] > 0:
            pass


def _tell(fd: int, line: dict[str, object]) -> None:
    with suppress(OSError):
        os.write(fd, json.dumps(line).encode() + b"\n")
        os.close(fd)
