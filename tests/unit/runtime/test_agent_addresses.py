"""Agents behind TLS: only the one whose certificate is known is spoken to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import SandboxLost
from sandmeshd.agent.link.tls import load_identity
from sandmeshd.agentlink.addresses import read_address, tls_endpoint
from sandmeshd.agentlink.connection import connect, open_link
from sandmeshd.agentlink.link import AgentLink
from sandmeshd.drivers.node.identity import TlsIdentity, new_identity

TOKEN = "what only the agent may hear"  # noqa: S105 - of a test


@asynccontextmanager
async def _heard(identity: TlsIdentity, folder: Path) -> AsyncGenerator[tuple[int, asyncio.Queue[bytes]]]:
    """Listen as an agent does with an identity, say nothing and keep what is heard, to the end of each connection."""
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            heard.put_nowait(await reader.read())
        except (OSError, ssl.SSLError):
            heard.put_nowait(b"")
        writer.close()

    path = folder / "tls"
    path.write_bytes(identity.pem)
    context = load_identity(str(path))
    assert not path.exists()
    async with await asyncio.start_server(listen, "127.0.0.1", 0, ssl=context) as server:
        yield server.sockets[0].getsockname()[1], heard


async def test_a_word_is_said_only_to_who_shows_the_certificate_that_is_known(tmp_path: Path) -> None:
    known, other = new_identity(), new_identity()
    async with asyncio.timeout(30), _heard(other, tmp_path) as (port, heard):
        endpoint = tls_endpoint("127.0.0.1", port, known.pin)
        sandbox = pb.RuntimeSandbox(sandbox_id="sb", endpoint=endpoint, agent_token=TOKEN)
        with pytest.raises(SandboxLost) as caught:
            async with open_link(sandbox):
                pass
        assert "not the sandbox's agent" in caught.value.facts["detail"]
        with pytest.raises(SandboxLost) as caught:
            await connect(endpoint, lambda: AgentLink("sb"), TOKEN, 10)
        assert "not the sandbox's agent" in caught.value.facts["detail"]
        assert [await heard.get(), await heard.get()] == [b"", b""]


async def test_the_token_is_said_to_the_agent_that_is_meant(tmp_path: Path) -> None:
    known = new_identity()
    async with asyncio.timeout(30), _heard(known, tmp_path) as (port, heard):
        endpoint = tls_endpoint("127.0.0.1", port, known.pin)
        sandbox = pb.RuntimeSandbox(sandbox_id="sb", endpoint=endpoint, agent_token=TOKEN)
        with pytest.raises(SandboxLost):
            async with open_link(sandbox, 1):
                pass
        assert TOKEN.encode() in await heard.get()


@pytest.mark.parametrize(
    ("endpoint", "host", "port", "pin"),
    [
        ("tcp://127.0.0.1:80", "127.0.0.1", 80, ""),
        ("tls://10.0.0.1:20000?pin=ab", "10.0.0.1", 20000, "ab"),
        (tls_endpoint("2001:db8::1", 20000, "ab"), "2001:db8::1", 20000, "ab"),
    ],
)
def test_an_endpoint_is_read_as_it_was_written(endpoint: str, host: str, port: int, pin: str) -> None:
    address = read_address(endpoint)
    assert (address.path, address.host, address.port, address.pin) == ("", host, port, pin)
    assert (address.tls is None) == (pin == "")


@pytest.mark.parametrize("endpoint", ["tls://10.0.0.1:20000", "tcp://10.0.0.1", "http://10.0.0.1:80", ""])
def test_what_is_no_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(ConnectionError, match="no agent can be reached"):
        read_address(endpoint)
