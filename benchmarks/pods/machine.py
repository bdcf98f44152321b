"""`python -m benchmarks.pods.machine KUBECONFIG`: stands in for a kubelet and the agents of its pods.

Pods that the scheduler gives to it have an address of the loopback, and an agent behind it that says hello with the
certificate of its Secret, and agrees to all that is asked. Pods that are being deleted go.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import tempfile
from base64 import b64decode
from itertools import count
from pathlib import Path
from typing import Any

import uvloop

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.shared import frames
from sandmeshd.drivers.kubernetes.cluster.credentials import open_cluster
from sandmeshd.drivers.kubernetes.cluster.requests import Cluster
from sandmeshd.drivers.kubernetes.pods.pod import AGENT_PORT
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.runtime.paths import MeshPaths

NAME = "stand-in"
WATCH_SECONDS = 3600


class _Agent(asyncio.Protocol):
    def __init__(self, sandbox_id: str) -> None:
        self._sandbox_id = sandbox_id
        self._buffer = frames.FrameBuffer(frames.MAX_LINK_MESSAGE)
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for message in self._buffer.feed(data):
            frame = agent_pb2.ToAgent.FromString(message)
            if frame.HasField("hello"):
                hello = agent_pb2.AgentHello(protocol=frames.LINK_PROTOCOL, sandbox_id=self._sandbox_id)
                answer = agent_pb2.FromAgent(hello=hello)
            else:
                answer = agent_pb2.FromAgent(channel=frame.channel, final=True, done=agent_pb2.Done())
            self._transport.write(frames.pack(answer.SerializeToString()))


class Machine:
    """The machine of all pods."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._agents: dict[str, asyncio.Server | None] = {}
        self._addresses = count(1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve the pods that there are and that come, forever."""
        path = self._cluster.path("pods")
        _, version = await self._cluster.list(path)
        print("ready", flush=True)
        async for event in self._cluster.watch(path, "", version, WATCH_SECONDS):
            pod = event["object"]
            if event["type"] in ("ADDED", "MODIFIED") and pod["spec"].get("nodeName") == NAME:
                task = asyncio.create_task(self._change(pod))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _change(self, pod: dict[str, Any]) -> None:
        name = str(pod["metadata"]["name"])
        path = self._cluster.path("pods", name)
        if pod["metadata"].get("deletionTimestamp"):
            server = self._agents.pop(name, None)
            if server is not None:
                server.close()
                await self._cluster.delete(path, str(pod["metadata"]["uid"]), 0)
        elif name not in self._agents:
            self._agents[name] = None
            number = next(self._addresses)
            address = f"127.{1 + number // 62500}.{number // 250 % 250}.{1 + number % 250}"
            self._agents[name] = await self._serve(name, pod, address)
            status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
            await self._cluster.patch(f"{path}/status", {"status": status})

    async def _serve(self, name: str, pod: dict[str, Any], address: str) -> asyncio.Server:
        secret = await self._cluster.get(self._cluster.path("secrets", name))
        file = self._folder / name
        file.write_bytes(b64decode(secret["data"]["tls"]))
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(file)
        file.unlink()
        sandbox_id = str(pod["metadata"]["annotations"]["dev.sandmesh.sandbox-id"])
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: _Agent(sandbox_id), address, AGENT_PORT, ssl=tls)


async def main(kubeconfig: str) -> None:
    """Stand in until the process is ended."""
    with tempfile.TemporaryDirectory() as folder:
        paths = MeshPaths("machine", Path(folder), Path(folder))
        settings = KubernetesSettings(paths=paths, kubeconfig=Path(kubeconfig))
        async with open_cluster(settings) as cluster:
            await Machine(cluster, Path(folder)).run()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
