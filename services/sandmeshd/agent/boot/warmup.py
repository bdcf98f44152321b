"""The warm-up of the agents' zygote: it starts an agent once, so that forked agents share what that initializes."""

from __future__ import annotations

import os
import socket
from base64 import b64encode
from contextlib import suppress

from google.protobuf.message import DecodeError

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.shared import frames
from sandmeshd.agent.boot import service
from sandmeshd.agent.processes.namespaces import control_sockets
from sandmeshd.agent.userland.core import syscalls

_LISTEN = "/tmp/warm-up"  # noqa: S108 - the zygote's own file system in memory
_LONGEST_MESSAGE = 1 << 12  # within a pipe's atomic write
_TOKEN = "warm-up"  # noqa: S105 - of an agent that only its own child can reach


def warm_up() -> None:
    """Run an agent without user code, for one client, to its end.

    Raises:
        ValueError: Its tools could not be made, as where one has no handler.
    """
    failure, failure_writer = os.pipe()
    config, config_writer = os.pipe()
    ready, ready_writer = os.pipe()
    os.write(config_writer, b64encode(_config().SerializeToString()) + b"\n")
    control, zygote = control_sockets()
    with zygote:
        zygote.send(b'{"up": true}')
        if syscalls.fork_bare() == 0:
            _call(ready, config_writer, failure_writer)
        os.close(config_writer)
        os.close(failure_writer)
        service.serve(service.AgentDescriptors(config, ready_writer), control)
    message = os.read(failure, _LONGEST_MESSAGE).decode("utf-8", "replace")
    for fd in (config, ready, failure):
        os.close(fd)
    if message:
        raise ValueError(message)
    with suppress(FileNotFoundError):
        # From Python 3.13 on the server removes it.
        os.unlink(_LISTEN)  # noqa: PTH108 - pathlib is a slow import


def _config() -> agent_pb2.AgentConfig:
    return agent_pb2.AgentConfig(
        sandbox_id=_TOKEN,
        agent_token=_TOKEN,
        listen=f"unix://{_LISTEN}",
        tool_groups=["generic", "git", "filesystem"],
        workspace="/tmp",  # noqa: S108 - as above
        ends_with_driver=True,
    )


def _call(ready: int, config_writer: int, failure_writer: int) -> None:
    """List the tools as soon as the agent listens. The end of this process ends the agent, as a driver's end does."""
    try:
        syscalls.close_all_but([0, 1, 2, ready, config_writer, failure_writer])
        os.read(ready, 1)
        hello = agent_pb2.GatewayHello(protocol=frames.LINK_PROTOCOL, sandbox_id=_TOKEN, agent_token=_TOKEN)
        requests = (agent_pb2.ToAgent(hello=hello), agent_pb2.ToAgent(channel=1, list_tools=agent_pb2.ListTools()))
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(_LISTEN)
            answer = b""
            for request in requests:
                link.sendall(frames.pack(request.SerializeToString()))
                answer = link.recv(1 << 16)
        with suppress(DecodeError):
            # A failure is short; a list that came in part is not one.
            message: str = agent_pb2.FromAgent.FromString(answer[len(frames.prefix(0)) :]).error.message
            os.write(failure_writer, message.encode())
    finally:
        os._exit(0)
