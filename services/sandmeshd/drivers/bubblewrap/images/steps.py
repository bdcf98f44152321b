"""Steps of images' builds: each in a sandbox whose root is the image, with root inside, and without an agent."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from base64 import b64encode
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager, suppress
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Any, Final, cast

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import InvalidArgument, RuntimeUnavailable, SandboxStartFailed
from sandmeshd.drivers.bubblewrap.arguments import SOCKETS
from sandmeshd.drivers.bubblewrap.images.id_ranges import IdRange, IdRanges
from sandmeshd.drivers.bubblewrap.images.plan import CHANGES, ETC
from sandmeshd.drivers.bubblewrap.images.socket_egress import serving_socket
from sandmeshd.drivers.bubblewrap.images.step_limits import StepLimits, watch_size
from sandmeshd.drivers.bubblewrap.images.step_pipes import StepDirectories, StepPipes, open_pipes
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.starts.exec_start import launch, memory_file
from sandmeshd.drivers.egress.policy import EgressRefused
from sandmeshd.drivers.egress.variables import egress_port, egress_variables
from sandmeshd.drivers.node.agent_bundle import AgentTree
from sandmeshd.drivers.node.agent_config import AGENT, USER, WORKSPACE
from sandmeshd.drivers.node.interpreter import VERSION, choose_interpreter
from sandmeshd.drivers.node.portable_python.bundle import PortablePython
from sandmeshd.drivers.node.portable_python.contents import PORTABLE
from sandmeshd.drivers.node.processes import reap, to_the_end
from sandmeshd.drivers.node.seccomp import SeccompFilters, build_filters
from sandmeshd.images.builds.runner import ImageStep, Output, Sink, StepOutcome
from sandmeshd.runtime.processes.child_process import readable

_PIECE: Final = 1 << 18
_OF_HOST: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS")
"""Variables that name a file of this machine, which is not in images."""
_TRUST_ALSO: Final = ("CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO", "npm_config_cafile")
_BUNDLE: Final = "/run/sandmesh/certificates.pem"
_OUT_OF_MEMORY: Final = (
    "{} processes were killed since the memory of the step was full: use less, or raise SANDMESH_IMAGE_BUILD_MEMORY"
)


class StepRunner:
    """Carries out steps; opened by `open_runner`."""

    def __init__(
        self, settings: BubblewrapSettings, filters: SeccompFilters, agent: AgentTree, python: PortablePython
    ) -> None:
        self._settings = settings
        self._filters = filters
        self._agent = agent
        self._python = python
        self._ranges = IdRanges(settings)
        self._limits = StepLimits(settings)
        self._certificates = ""
        """What commands trust in the place of their image's authorities; empty: those."""

    async def prepare(self) -> None:
        """Build what steps need of this machine.

        Raises:
            CapabilityMissing: There are no ids for images.
            RuntimeUnavailable: The mesh's interpreter cannot be taken into images.
            InvalidArgument: The certificates that commands are to trust cannot be read.
        """
        self._ranges.check()
        file = self._settings.image_store and self._settings.image_store.image_build_certificates
        if file:
            try:
                self._certificates = await asyncio.to_thread(file.read_text)
            except (OSError, UnicodeDecodeError) as error:
                raise InvalidArgument(f"SANDMESH_IMAGE_BUILD_CERTIFICATES: {file} cannot be read: {error}") from None
        await self._agent.build()
        await self._python.build()

    async def run(self, step: ImageStep, folder: Path, layer: Sink, output: Output) -> StepOutcome:
        """Carry out a step: see `Runner`."""
        with closing(self._ranges.lease()) as ids:
            try:
                return await self._run(step, folder, (layer, output), ids)
            finally:
                ids.close()
                self._ranges.release(ids.first)

    async def _run(self, step: ImageStep, folder: Path, outputs: tuple[Sink, Output], ids: IdRange) -> StepOutcome:
        place = _make_folder(folder, ids)
        grant = _grant(step.network, only_public=step.only_public)
        refused: list[EgressRefused] = []
        async with AsyncExitStack() as stack:
            if step.network:
                listener = stack.enter_context(_bound(place.sockets / "proxy"))
                egress = serving_socket(listener, grant, self._settings.egress, refused.append)
                await stack.enter_async_context(egress)
            pipes = stack.enter_context(open_pipes(place, step.input))
            text = json.dumps(self._inside(step, grant, pipes))
            described = stack.enter_context(memory_file(text.encode("utf-8", "surrogateescape")))
            seccomp = stack.enter_context(memory_file(self._filters.image_agent))
            root = self._root(step, place, ids, pipes, (described, seccomp))
            group = await stack.enter_async_context(self._limits.group(folder))
            async with self._running([*group.join_command], root, pipes, (described, seccomp, ids.lock)):
                answer = await self._follow(pipes, place, outputs)
            killed = group.killed
        hints = [_OUT_OF_MEMORY.format(killed)] if killed else []
        return StepOutcome(_code(answer, place, hints), [*(f"{one}" for one in refused), *hints])

    async def _follow(self, pipes: StepPipes, place: StepDirectories, outputs: tuple[Sink, Output]) -> dict[str, Any]:
        """Read what a step writes until it ends, unless what it leaves on disk becomes too large before."""
        reading = asyncio.create_task(_follow(pipes, *outputs))
        watching = asyncio.create_task(watch_size(place.disk, self._limits.most_bytes))
        try:
            done, _ = await asyncio.wait((reading, watching), return_when=asyncio.FIRST_COMPLETED)
            return await (reading if reading in done else cast("asyncio.Task[dict[str, Any]]", watching))
        finally:
            for task in (reading, watching):
                task.cancel()
            await asyncio.gather(reading, watching, return_exceptions=True)

    def _inside(self, step: ImageStep, grant: sandbox_pb2.NetworkGrant, pipes: StepPipes) -> dict[str, Any]:
        """Return what `sandmeshd.agent.boot.build_step.step` takes."""
        command = None
        if step.command is not None:
            proxy = egress_variables(grant, self._settings.egress)
            known = {name: value for name, value in proxy.items() if name not in _OF_HOST}
            mounts = list(step.command["mounts"])
            if self._certificates and step.network:
                mounts.append(
                    {
                        "kind": "secret",
                        "target": _BUNDLE,
                        "value": self._certificates,
                        "uid": 0,
                        "gid": 0,
                        "mode": 0o444,
                    }
                )
                known |= dict.fromkeys((*_OF_HOST, *_TRUST_ALSO), _BUNDLE)
            command = {**step.command, "environment": {**known, **step.command["environment"]}, "mounts": mounts}
        return {
            "directories": step.directories,
            "copy": step.copy,
            "command": command,
            "filter": b64encode(self._filters.image_user).decode(),
            "hidden": SOCKETS,
            "changes": CHANGES,
            "port": egress_port(grant) if step.network else 0,
            **pipes.inside(),
        }

    def _root(
        self, step: ImageStep, place: StepDirectories, ids: IdRange, pipes: StepPipes, files: tuple[int, int]
    ) -> dict[str, object]:
        """Return what `sandmeshd.agent.boot.image.root` takes."""
        described, seccomp = files
        binds = [(str(self._python.path), PORTABLE, False), (str(self._agent.site), AGENT, False)]
        kept = [*pipes.kept(), described, *([ids.lock] if ids.lock >= 0 else [])]
        return {
            "layers": [str(path) for path in step.layers],
            "images": [[str(path) for path in layers] for layers in step.images],
            "images_directory": f"{SOCKETS}/images",
            "caches": [(str(path), f"{SOCKETS}/caches/{number}") for number, path in enumerate(step.caches)],
            "map_layers": os.geteuid() == 0,
            "maps": ids.maps(),
            "binds": [*binds, (str(place.sockets), SOCKETS, True)],
            # What is written to /tmp stays in the image, as it does elsewhere.
            "memory": [],
            "scratch": self._settings.scratch_bytes,
            "disk": str(place.disk),
            "disk_bytes": 0,
            "workspace": WORKSPACE,
            "changes": CHANGES,
            "working_directory": "/",
            "etc": ETC,
            "host_name": USER,
            "low_ports": True,
            "status": pipes.status,
            "ready": pipes.ready[1],
            "filter": seccomp,
            "kept": kept,
            "argv": [f"{PORTABLE}/bin/python{VERSION}", "-I", "-S", AGENT, "--build-step", str(described)],
        }

    @asynccontextmanager
    async def _running(
        self, join: list[str], root: Mapping[str, object], pipes: StepPipes, files: tuple[int, ...]
    ) -> AsyncGenerator[None]:
        """Start the sandbox; end it with the block, and wait until nothing of it runs."""
        command = [sys.executable, "-I", "-S", str(self._agent.site), "--image-root", json.dumps(root)]
        passed = tuple(fd for fd in (*pipes.theirs(), *files) if fd >= 0)
        monitor = launch([*join, *command], pipes.log, passed)
        try:
            pipes.close_theirs()
            yield
        finally:
            pipes.close_life()
            await to_the_end(_ended(monitor))


def _make_folder(folder: Path, ids: IdRange) -> StepDirectories:
    """Make a step's directories in its folder, as a sandbox has them."""
    place = StepDirectories(disk=folder / "disk", sockets=folder / "sockets", log=folder / "log")
    for path, mode in ((place.disk, 0o700), (place.sockets, 0o777)):
        path.mkdir()
        path.chmod(0o700 if os.geteuid() == 0 else mode)
        if os.geteuid() == 0:
            os.chown(path, ids.first, ids.first)
    return place


def _grant(network: tuple[str, ...], *, only_public: bool) -> sandbox_pb2.NetworkGrant:
    """Return what a step's network is as a grant, as the SDK has it."""
    if "public" in network:
        rest = [word for word in network if word != "public"]
        public = sandbox_pb2.NETWORK_MODE_PUBLIC
        return sandbox_pb2.NetworkGrant(mode=public, hosts=rest, only_public=only_public)
    mode = sandbox_pb2.NETWORK_MODE_HOSTS if network else sandbox_pb2.NETWORK_MODE_NONE
    return sandbox_pb2.NetworkGrant(mode=mode, hosts=network, only_public=only_public)


@contextmanager
def _bound(path: Path) -> Generator[socket.socket]:
    """Yield a unix socket at a path of any length."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")
            path.chmod(0o666)
            listener.listen()
            listener.setblocking(False)
            yield listener
    finally:
        os.close(folder)


async def _follow(pipes: StepPipes, layer: Sink, output: Output) -> dict[str, Any]:
    """Read what a step writes, until it ends; return its answer."""

    async def write(data: bytes) -> None:
        await asyncio.to_thread(layer.write, data)

    async def show(data: bytes) -> None:
        output(data)

    answer = bytearray()

    async def note(data: bytes) -> None:
        answer.extend(data)

    works = ((pipes.output[0], show), (pipes.layer[0], write), (pipes.ready[0], note))
    tasks = [asyncio.create_task(_read_all(descriptor, take)) for descriptor, take in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    found: dict[str, Any] = json.loads(answer or b"{}")
    return found


async def _read_all(descriptor: int, take: Callable[[bytes], Awaitable[None]]) -> None:
    reader = asyncio.StreamReader(limit=_PIECE)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(os.dup(descriptor)))
    try:
        while data := await reader.read(_PIECE):
            await take(data)
    finally:
        transport.close()


async def _ended(monitor: int) -> None:
    await readable(monitor)
    reap(monitor)
    os.close(monitor)


def _code(answer: Mapping[str, Any], place: StepDirectories, hints: Sequence[str]) -> int:
    """Return a step's exit code.

    Raises:
        InvalidArgument, SandboxStartFailed, RuntimeUnavailable: As `Runner.run`.
    """
    match answer:
        case {"done": {"code": int(code)}}:
            return code
        case {"refused": str(why)}:
            raise InvalidArgument(why)
        case {"errno": int(number)} if number in {ENOSPC, EDQUOT}:
            fix = "free space there, remove images (sandmesh image prune), or choose another SANDMESH_IMAGES"
            raise RuntimeUnavailable(f"the disk is full: {fix}", {"fix": fix})
        case _:
            detail = ""
            with suppress(OSError):
                detail = place.log.read_text(errors="replace")[-4096:]
            why = str(answer.get("error") or next(iter(hints), "it ended"))
            raise SandboxStartFailed(f"a step of a build could not be carried out: {why}", {"detail": detail or why})


@asynccontextmanager
async def open_runner(settings: BubblewrapSettings) -> AsyncGenerator[StepRunner]:
    """Open what carries out steps on this machine.

    Raises:
        CapabilityMissing: There are no ids for images; the error has the fix.
        RuntimeUnavailable: libseccomp is missing, or the mesh's interpreter cannot be taken into images.
    """
    filters = await asyncio.to_thread(build_filters)
    agent = await asyncio.to_thread(AgentTree, settings.paths.cache)
    interpreter = await asyncio.to_thread(choose_interpreter, settings.reader_uid, settings.python)
    runner = StepRunner(settings, filters, agent, PortablePython(settings.paths.cache, interpreter))
    await runner.prepare()
    yield runner
