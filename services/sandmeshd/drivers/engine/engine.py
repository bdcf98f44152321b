"""The engine's API: aiodocker, with the engine's errors translated into the mesh's."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping, Sequence, Set
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from aiodocker import Docker, DockerError
from aiodocker.networks import DockerNetwork
from aiodocker.volumes import DockerVolume
from aiohttp import ClientError

from sandmesh.errors import InternalError, InvalidArgument, RuntimeUnavailable, SandboxStartFailed
from sandmeshd.drivers.api.connectors import open_connector
from sandmeshd.drivers.engine.settings import FULL, how_to_start

T = TypeVar("T")
BAD_NAME, NOT_FOUND, CONFLICT, NO_ENGINE = 400, 404, 409, 900
JOIN = "add this user to the group docker and log in again, or run the mesh as root"


@dataclass(frozen=True)
class TarFiles:
    """A tar archive that is extracted into a directory of a container before it starts."""

    path: str
    tar: bytes = field(repr=False)


@contextmanager
def engine_errors(url: str) -> Generator[None]:
    """Translate the engine's errors into the mesh's; DockerError passes for what does not exist or conflicts.

    Raises:
        RuntimeUnavailable: It does not answer, or its disk is full; `facts["fix"]` says what to do.
        InvalidArgument: It rejects the request.
        InternalError: It failed; the message has its reason.
    """
    try:
        yield
    except TimeoutError:
        fix = "look at the engine's log; restart it"
        raise RuntimeUnavailable(f"the engine at {url} timed out: {fix}", {"fix": fix}) from None
    except (ClientError, OSError) as error:
        # It disconnected while it answered.
        raise _translate(DockerError(NO_ENGINE, str(error)), url) from None
    except DockerError as error:
        if error.status in (NOT_FOUND, CONFLICT):
            raise
        raise _translate(error, url) from None


def _translate(error: DockerError, url: str) -> RuntimeUnavailable | InvalidArgument | InternalError:
    if error.status == NO_ENGINE:
        path = url.removeprefix("unix://")
        closed = os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK)  # noqa: PTH110 - may be forbidden
        fix = JOIN if closed else how_to_start(url)
        why = "is closed to this user" if closed else "does not answer"
        return RuntimeUnavailable(f"the engine at {url} {why}: {fix}", {"fix": fix})
    if "no space left" in error.message:
        return RuntimeUnavailable(f"the engine's disk is full: {FULL}", {"fix": FULL})
    if "address pool" in error.message:
        fix = (
            "delete sandboxes, or give the engine more default-address-pools (daemon.json): each sandbox has a network"
        )
        return RuntimeUnavailable(f"the engine has no addresses left for networks: {fix}", {"fix": fix})
    if "cannot assign requested address" in error.message:
        fix = "set SANDMESH_DOCKER_PUBLISH_ADDRESS to an address that the engine's machine has itself"
        return RuntimeUnavailable(f"the engine cannot publish there ({error.message}): {fix}", {"fix": fix})
    if error.status == BAD_NAME:
        return InvalidArgument(f"the engine does not accept this: {error.message}")
    return InternalError(f"the engine failed: {error.message}")


@asynccontextmanager
async def open_engine(url: str, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Engine]:
    """Yield an engine's API; whether the engine answers shows at the first request."""
    async with AsyncExitStack() as stack:
        connector = None if tls is None else await stack.enter_async_context(open_connector(tls))
        docker = Docker(url=url if tls is None else url.replace("tcp://", "https://"), connector=connector)
        try:
            yield Engine(docker, url)
        finally:
            await docker.close()


class Engine:
    """The requests to an engine that the driver makes."""

    def __init__(self, docker: Docker, url: str) -> None:
        # Half of its signatures are untyped.
        self.docker: Any = docker
        self.url = url

    async def info(self) -> Mapping[str, Any]:
        """Return the engine's description of itself."""
        with engine_errors(self.url):
            info: dict[str, Any] = await self.docker.system.info()
            return info

    async def image(self, name: str) -> Mapping[str, Any] | None:
        """Return an image, None if it does not exist or the name is invalid."""
        return await self._find(self.docker.images.inspect(name), (NOT_FOUND, BAD_NAME))

    async def pull(self, name: str, auth: dict[str, str] | None = None) -> AsyncGenerator[str]:
        """Pull an image, with the credentials of its registry if there are any, yielding the progress.

        Raises:
            RuntimeUnavailable: The engine does not answer.
            DockerError: It cannot pull the image.
        """
        try:
            async for line in self.docker.images.pull(name, auth=auth, stream=True):
                yield str(line.get("status", ""))
        except DockerError as error:
            if error.status == NO_ENGINE:
                raise _translate(error, self.url) from None
            raise

    async def inspect(self, name: str) -> Mapping[str, Any] | None:
        """Return a container as it is now, None if it does not exist."""
        return await self._find(self._container(name).show())

    async def _find(
        self, request: Coroutine[Any, Any, dict[str, Any]], absent: tuple[int, ...] = (NOT_FOUND,)
    ) -> Mapping[str, Any] | None:
        with engine_errors(self.url):
            try:
                return await request
            except DockerError as error:
                if error.status in absent:
                    return None
                raise

    async def list(self, *labels: str) -> list[Mapping[str, Any]]:
        """List the containers with all of some labels, ended ones too: id, labels and state."""
        with engine_errors(self.url):
            containers = await self.docker.containers.list(all=True, filters={"label": list(labels)})
        return [{name: container[name] for name in ("Id", "Labels", "State")} for container in containers]

    async def unused_volumes(self, *labels: str) -> Set[str]:
        """Return the names of the volumes with all of some labels that no container has."""
        filters = {"label": list(labels), "dangling": ["true"]}
        with engine_errors(self.url):
            # An engine returns null if it has none.
            volumes: Sequence[dict[str, Any]] | None = (await self.docker.volumes.list(filters=filters))["Volumes"]
        return {str(volume["Name"]) for volume in volumes or ()}

    async def remove_volume(self, name: str) -> None:
        """Remove a volume, if it exists and no container has it."""
        with engine_errors(self.url):
            try:
                await _volume(self.docker, name).delete()
            except DockerError as error:
                if error.status not in (NOT_FOUND, CONFLICT):
                    raise

    async def unused_networks(self, *labels: str) -> Mapping[str, Mapping[str, str]]:
        """Return the labels, by name, of the networks with all of some labels that no container is on."""
        with engine_errors(self.url):
            networks = await self.docker.networks.list(filters={"label": list(labels), "dangling": ["true"]})
        return {str(network["Name"]): network["Labels"] for network in networks}

    async def make_network(self, config: dict[str, Any]) -> str:
        """Create a network and return its id."""
        with engine_errors(self.url):
            return str((await uninterrupted(self.docker.networks.create(config))).id)

    async def bridge_time(self) -> str:
        """Return when the engine made its default bridge, which it does at each start; empty if it has none."""
        bridge = await self._find(_network(self.docker, "bridge").show())
        return str(bridge["Created"]) if bridge else ""

    async def remove_network(self, name: str) -> None:
        """Remove a network, if it exists."""
        with engine_errors(self.url):
            try:
                await _network(self.docker, name).delete()
            except DockerError as error:
                if error.status != NOT_FOUND:
                    raise

    async def start(self, name: str, config: dict[str, Any], files: Sequence[TarFiles] = ()) -> None:
        """Create a container, extract `files` in it, and start it.

        Raises:
            DockerError: The image does not exist, or the name is taken.
            SandboxStartFailed: It was created, but did not start.
        """
        with engine_errors(self.url):
            container = await uninterrupted(self.docker.containers.create(config, name=name))
        try:
            with engine_errors(self.url):
                for archive in files:
                    await uninterrupted(container.put_archive(archive.path, archive.tar))
                await uninterrupted(container.start())
        except (InvalidArgument, InternalError) as error:
            # The request was accepted before; engines report a process that ends immediately as a bad request.
            raise SandboxStartFailed(f"{name} could not be started: {error.message}") from None

    async def remove(self, name: str, *, frozen: bool = False) -> None:
        """Remove a container with its volumes, if it exists; return when it is gone.

        With `frozen` it is resumed first: a frozen container of gVisor's cannot be ended.
        """
        if frozen:
            with suppress(DockerError):
                await self.resume(name)
        with engine_errors(self.url):
            while True:
                try:
                    await self._container(name).delete(force=True, v=True)
                except DockerError as error:
                    if error.status == NOT_FOUND:
                        return
                    if error.status != CONFLICT:
                        raise
                    # Another client is removing it: the engine offers no other way to wait for that.
                    await asyncio.sleep(0.02)

    async def log(self, name: str) -> bytes:
        """Return what a container wrote, nothing if it does not exist or is being removed."""
        with engine_errors(self.url):
            try:
                lines = await self._container(name).log(stdout=True, stderr=True)
            except DockerError as error:
                if error.status in (NOT_FOUND, CONFLICT):
                    return b""
                raise
        return "".join(lines).encode("utf-8", "replace")

    async def pause(self, name: str) -> None:
        """Freeze a container, if it is not frozen."""
        await self._ignore_no_change(self._container(name).pause())

    async def resume(self, name: str) -> None:
        """Resume a container, if it is frozen."""
        await self._ignore_no_change(self._container(name).unpause())

    async def _ignore_no_change(self, request: Coroutine[Any, Any, None]) -> None:
        with engine_errors(self.url):
            try:
                await request
            except DockerError as error:
                # The engine reports a container that is in that state already as an error.
                if error.status != CONFLICT and "paused" not in error.message:
                    raise

    def _container(self, name: str) -> Any:
        return self.docker.containers.container(name)


def _network(docker: Any, name: str) -> Any:
    return cast("Any", DockerNetwork)(docker, name)


def _volume(docker: Any, name: str) -> Any:
    return cast("Any", DockerVolume)(docker, name)


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Run a request to its end even if its caller is cancelled, as the engine completes it anyway."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
        raise
