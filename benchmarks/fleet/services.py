"""An allocator with its broker and gateway, in this process or in one of its own.

`python -m benchmarks.fleet.services` is the latter; it ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import structlog
import uvloop

from benchmarks.fleet.node_server import remote_nodes
from sandmesh.api.sandbox.v1 import sandbox_pb2_grpc
from sandmesh.api.session.v1 import session_pb2_grpc
from sandmeshd.allocator import AllocatorSettings, open_allocator
from sandmeshd.auth.channels import open_channel
from sandmeshd.auth.projects import Projects
from sandmeshd.auth.servicer import TokenServicer
from sandmeshd.auth.token_records import TokenRecords
from sandmeshd.broker import BrokerSettings, open_broker
from sandmeshd.contracts.driver import Driver
from sandmeshd.gateway import GatewaySettings, open_gateway
from sandmeshd.runtime.rpc.local_channel import local_channel
from sandmeshd.runtime.rpc.registrations import audit_service, sandbox_service, session_service, token_service
from sandmeshd.store import Store, StoreSettings, open_store
from sandmeshd.tenants.audit.records import AuditRecords
from sandmeshd.tenants.audit.servicer import AuditServicer

END_SECONDS = 30.0


class Services(Protocol):
    """An allocator with its broker and gateway."""

    gateway: session_pb2_grpc.SessionServiceAsyncStub
    pid: int

    async def round_trips(self) -> Counter[str]:
        """Return how often each script or command was sent to the store."""
        ...

    def cpu_seconds(self) -> float:
        """Return the processors' time that is theirs alone."""
        ...


class OwnServices:
    """Services of this process."""

    def __init__(self, gateway: session_pb2_grpc.SessionServiceAsyncStub, store: Store) -> None:
        self.gateway = gateway
        self.pid = os.getpid()
        self._store = store

    async def round_trips(self) -> Counter[str]:
        """Return how often each script or command was sent to the store."""
        return self._store.round_trips

    def cpu_seconds(self) -> float:
        """Return none: the process is not theirs alone."""
        return 0.0


class ServiceProcess:
    """Services of another process."""

    def __init__(self, gateway: session_pb2_grpc.SessionServiceAsyncStub, process: asyncio.subprocess.Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("the process has no pipes")
        self.gateway = gateway
        self.pid = process.pid
        self._asked, self._said = process.stdin, process.stdout

    async def started(self) -> None:
        """Return when they serve.

        Raises:
            RuntimeError: They do not.
        """
        if await self._said.readline() != b"ready\n":
            raise RuntimeError("the services did not start")

    async def round_trips(self) -> Counter[str]:
        """Return how often each script or command was sent to the store."""
        self._asked.write(b"\n")
        counted: dict[str, int] = json.loads(await self._said.readline())
        return Counter(counted)

    def cpu_seconds(self) -> float:
        """Return the process's time."""
        after_name = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Tell them to end."""
        self._asked.close()


def resident_mib(pid: int) -> float:
    """Return the memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def store_settings(folder: Path) -> StoreSettings:
    """Return those of the store that all share."""
    socket = folder / "store.sock"
    return StoreSettings(mesh_id="fleet", directory=folder / "store", socket=socket, outlives_machine=False)


@asynccontextmanager
async def open_services(
    settings: AllocatorSettings, store: Store, drivers: Mapping[str, Driver], folder: Path, number: int
) -> AsyncGenerator[Services]:
    """Open an allocator, a broker and a gateway."""
    async with (
        open_allocator(settings, store, drivers) as allocator,
        open_broker(
            BrokerSettings(), store, sandbox_pb2_grpc.SandboxServiceStub(local_channel([sandbox_service(allocator)]))
        ) as broker,
    ):
        audit = AuditServicer(AuditRecords(store, 1_000), Projects(store))
        tokens = TokenServicer(TokenRecords(store))
        channel = local_channel(
            [sandbox_service(allocator), session_service(broker), token_service(tokens), audit_service(audit)]
        )
        own = GatewaySettings(listen=(_address(folder, number),))
        async with open_gateway(own, channel, channel), _stub(folder, number) as stub:
            yield OwnServices(stub, store)


@asynccontextmanager
async def service_process(
    settings: AllocatorSettings, nodes: Sequence[str], folder: Path, number: int
) -> AsyncGenerator[Services]:
    """Open them in a process of their own; the nodes are served in the folder."""
    plan = {"settings": settings.model_dump(mode="json"), "nodes": nodes}
    (folder / f"plan-{number}").write_text(json.dumps(plan))
    command = (sys.executable, "-m", "benchmarks.fleet.services", str(folder), str(number))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    async with _stub(folder, number) as stub:
        made = ServiceProcess(stub, process)
        try:
            await made.started()
            yield made
        finally:
            made.end()
            try:
                await asyncio.wait_for(process.wait(), END_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()


@asynccontextmanager
async def _stub(folder: Path, number: int) -> AsyncGenerator[session_pb2_grpc.SessionServiceAsyncStub]:
    async with open_channel(_address(folder, number)) as channel:
        yield session_pb2_grpc.SessionServiceStub(channel)


def _address(folder: Path, number: int) -> str:
    return f"unix://{folder}/gateway-{number}"


async def main(folder: Path, number: int) -> None:
    """Serve until the standard input ends; a line there asks for the requests to the store so far."""
    plan = json.loads((folder / f"plan-{number}").read_text())
    settings = AllocatorSettings.model_validate(plan["settings"])
    asked = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(asked), sys.stdin)
    async with (
        open_store(store_settings(folder)) as store,
        remote_nodes(plan["nodes"], folder) as drivers,
        open_services(settings, store, drivers, folder, number),
    ):
        print("ready", flush=True)
        while await asked.readline():
            print(json.dumps(store.round_trips), flush=True)


if __name__ == "__main__":
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(40), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    uvloop.run(main(Path(sys.argv[1]), int(sys.argv[2])))
