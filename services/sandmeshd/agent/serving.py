"""The agent's life as PID 1: told who it is, ready, and gone with its driver."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from base64 import b64decode
from contextlib import suppress

import uvloop
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from sandmesh.api.agent.v1 import agent_pb2
from sandmeshd.agent.app import open_agent
from sandmeshd.agent.memory import Memory


def serve(config_fd: int, ready_fd: int, control: socket.socket, memory_fd: int = -1, life_fd: int = -1) -> int:
    """Serve until the driver lets go, a SIGTERM or the loss of the zygote. Returns: the exit code.

    `memory_fd` counts processes that were ended for want of memory; negative where that is not known. `life_fd` is
    what ends with the driver; negative where the configuration's own pipe does.
    """
    try:
        config = _read_config(config_fd)
        memory = Memory(memory_fd if config.memory_bytes else -1, config.memory_bytes)
        if life_fd >= 0:
            os.dup2(life_fd, config_fd, inheritable=False)
            os.close(life_fd)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(config, config_fd, ready_fd, control, memory))
    except (OSError, ValueError, json_format.Error, DecodeError) as error:
        _tell(ready_fd, {"error": str(error)})
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
        return json_format.Parse(bytes(line), agent_pb2.AgentConfig())
    return agent_pb2.AgentConfig.FromString(b64decode(line))


async def _serve(
    config: agent_pb2.AgentConfig, config_fd: int, ready_fd: int, control: socket.socket, memory: Memory
) -> int:
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ending.done():
            ending.set_result(code)

    loop.add_signal_handler(signal.SIGTERM, end, 0)
    signal.signal(signal.SIGCHLD, _reap)
    if config.ends_with_driver:
        loop.add_reader(config_fd, end, 0)
    else:
        os.close(config_fd)
    async with open_agent(config, control, memory) as processes:
        processes.lost.add_done_callback(lambda _: end(1))
        _tell(ready_fd, {"ready": True})
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
