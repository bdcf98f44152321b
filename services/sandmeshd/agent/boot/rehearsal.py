"""What every agent does at its start, done once by their zygote: what that imports, makes and writes is then shared."""

from __future__ import annotations

import os
import socket
from base64 import b64encode

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.shared import frames
from sandmeshd.agent.boot import service as serving
from sandmeshd.agent.processes.namespaces import control_sockets
from sandmeshd.agent.userland import syscalls

_LISTEN = "/tmp/rehearsal"  # noqa: S108 - the zygote's own file system in memory
_TOKEN = "rehearsal"  # noqa: S105 - of an agent that only its own child can reach


def rehearse() -> None:
    """Be an agent without user code, for one caller, to the end."""
    config, told = os.pipe()
    ready, answered = os.pipe()
    os.write(told, b64encode(_config().SerializeToString()) + b"\n")
    control, zygote = control_sockets()
    with zygote:
        zygote.send(b'{"up": true}')
        if syscalls.fork_bare() == 0:
            _call(ready, told)
        os.close(told)
        serving.serve(serving.Given(config, answered), control)
    for fd in (config, ready):
        os.close(fd)
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


def _call(ready: int, told: int) -> None:
    """Ask for the tools as soon as the agent listens; with this process's end the agent's driver is gone."""
    try:
        syscalls.close_all_but([0, 1, 2, ready, told])
        os.read(ready, 1)
        hello = agent_pb2.GatewayHello(protocol=frames.LINK_PROTOCOL, sandbox_id=_TOKEN, agent_token=_TOKEN)
        requests = (agent_pb2.ToAgent(hello=hello), agent_pb2.ToAgent(channel=1, list_tools=agent_pb2.ListTools()))
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(_LISTEN)
            for request in requests:
                link.sendall(frames.pack(request.SerializeToString()))
                link.recv(1 << 16)
    finally:
        os._exit(0)
