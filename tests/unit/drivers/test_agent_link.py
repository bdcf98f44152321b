"""A link of a driver's to an agent over TLS leaves no connection open when it ends, whatever the agent does."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandboxLost
from sandmesh.shared import frames
from sandmeshd.agentlink.addresses import tls_endpoint
from sandmeshd.agentlink.connection import open_link
from sandmeshd.drivers.node.identity import new_identity


def _greet(listener: socket.socket, context: ssl.SSLContext, over: threading.Event, *, hangs_up: bool) -> None:
    """Be an agent that says who it is, and no goodbye; or one that closes a link whose token is wrong."""
    plain, _ = listener.accept()
    with context.wrap_socket(plain, server_side=True) as connection:
        connection.recv(1 << 16)
        if hangs_up:
            connection.unwrap()
            return
        answer = agent_pb2.FromAgent(hello=agent_pb2.AgentHello(protocol=frames.LINK_PROTOCOL, sandbox_id="one"))
        connection.sendall(frames.pack(answer.SerializeToString()))
        over.wait(30)


@contextmanager
def _agent(folder: Path, *, hangs_up: bool = False) -> Generator[pb.RuntimeSandbox]:
    identity, over = new_identity(), threading.Event()
    (folder / "pem").write_bytes(identity.pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        agent = threading.Thread(target=_greet, args=(listener, context, over), kwargs={"hangs_up": hangs_up})
        agent.start()
        try:
            endpoint = tls_endpoint("127.0.0.1", listener.getsockname()[1], identity.pin)
            yield pb.RuntimeSandbox(sandbox_id="one", endpoint=endpoint)
        finally:
            over.set()
            agent.join()


async def _linked(sandbox: pb.RuntimeSandbox) -> None:
    async with open_link(sandbox):
        pass


def test_a_link_whose_agent_says_no_goodbye_is_closed_when_it_ends(tmp_path: Path) -> None:
    with _agent(tmp_path) as sandbox:
        # What is open when its loop ends warns as it is collected, which fails a test.
        asyncio.run(_linked(sandbox))
        gc.collect()


def test_an_agent_that_hangs_up_is_a_lost_sandbox(tmp_path: Path) -> None:
    with _agent(tmp_path, hangs_up=True) as sandbox, pytest.raises(SandboxLost):
        asyncio.run(_linked(sandbox))
    gc.collect()
