"""The engine's API: aiodocker, with the engine's refusals as the mesh's errors."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping, Sequence, Set
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from aiodocker import Docker, DockerError
from aiodocker.networks import DockerNetwork
from aiodocker.volumes import DockerVolume
from aiohttp import ClientError, TCPConnector

from sandmesh.errors import InternalError, InvalidArgument, RuntimeUnavailable, SandboxStartFailed

T = TypeVar("T")
BAD_NAME, NOT_FOUND, CONFLICT, NO_ENGINE = 400, 404, 409, 900
START = "install Docker (https://docs.docker.com/engine/install/) and start it, or set SANDMESH_DOCKER_URL"
JOIN = "add this user to the group docker and log in again, or run the mesh as root"
CLOSE_SECONDS = 1.0
"""How long connections may take to close when a driver ends."""


@dataclass(frozen=True)
class Files:
    """What a container is sent before it starts: a tar archive, and the directory for it."""

    path: str
    tar: bytes = field(repr=False)


@contextmanager
def told(url: str) -> Generator[None]:
    """Raise what the engine refuses as the mesh's errors; DockerError passes where something is not there or clashes.

    Raises:
        RuntimeUnavailable: It does not answer, or its disk is full; `facts["fix"]` says what to do.
        InvalidArgument: It does not accept what was asked for.
        InternalError: It failed; the message has its words.
    """
    try:
        yield
    except TimeoutError:
        fix = "look at the engine's log; restart it"
        raise RuntimeUnavailable(f"the engine at {url} does not answer in time: {fix}", {"fix": fix}) from None
    except (ClientError, OSError) as error:
        # It went away as it answered.
        raise _meant(DockerError(NO_ENGINE, str(error)), url) from None
    except DockerError as error:
        if error.status in (NOT_FOUND, CONFLICT):
            raise
        raise _meant(error, url) from None


def _meant(error: DockerError, url: str) -> RuntimeUnavailable | InvalidArgument | InternalError:
    if error.status == NO_ENGINE:
        path = url.removeprefix("unix://")
        closed = os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK)  # noqa: PTH110 - may be forbidden
        fix = JOIN if closed else START
        why = "is closed to this user" if closed else "does not answer"
        return RuntimeUnavailable(f"the engine at {url} {why}: {fix}", {"fix": fix})
    if "no space left" in error.message:
        fix = "free space where the engine keeps its data (docker system df says what takes it)"
        return RuntimeUnavailable(f"the engine's disk is full: {fix}", {"fix": fix})
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
    """Give an engine's API; whether it answers is seen at the first question."""
    async with _open_connector(tls) as connector:
        docker = Docker(url=url if tls is None else url.replace("tcp://", "https://"), connector=connector)
        try:
            yield Engine(docker, url)
        finally:
            await docker.close()


@asynccontextmanager
async def _open_connector(tls: ssl.SSLContext | None) -> AsyncGenerator[TCPConnector | None]:
    """Give what connects over TLS; its sockets are closed when the block ends.

    A connection that its connector let go is still open until the engine has answered its goodbye.
    """
    if tls is None:
        yield None
        return
    made = list[socket.socket]()

    def make(address: Any) -> socket.socket:
        made[:] = [one for one in made if one.fileno() >= 0]
        made.append(socket.socket(*address[:3]))
        return made[-1]

    connector = TCPConnector(ssl=tls, socket_factory=make)
    try:
        yield connector
    finally:
        await connector.close()
        for one in made:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while any(one.fileno() >= 0 for one in made):  # noqa: ASYNC110 - nothing tells
                    await asyncio.sleep(0.001)


class Engine:
    """What the driver asks an engine for."""

    def __init__(self, docker: Docker, url: str) -> None:
        # Half of its signatures are untyped.
        self.docker: Any = docker
        self.url = url

    async def info(self) -> Mapping[str, Any]:
        """Give what the engine is and can do."""
        with told(self.url):
            found: dict[str, Any] = await self.docker.system.info()
            return found

    async def image(self, name: str) -> Mapping[str, Any] | None:
        """Give an image, None where it is not there, or where none can have that name."""
        return await self._there(self.docker.images.inspect(name), (NOT_FOUND, BAD_NAME))

    async def pull(self, name: str) -> AsyncGenerator[str]:
        """Pull an image, saying how far it is.

        Raises:
            RuntimeUnavailable: The engine does not answer.
            DockerError: It cannot pull the image.
        """
        try:
            async for line in self.docker.images.pull(name, stream=True):
                yield str(line.get("status", ""))
        except DockerError as error:
            if error.status == NO_ENGINE:
                raise _meant(error, self.url) from None
            raise

    async def look(self, name: str) -> Mapping[str, Any] | None:
        """Give a container as it is now, None where it is not there."""
        return await self._there(self._container(name).show())

    async def _there(
        self, question: Coroutine[Any, Any, dict[str, Any]], absent: tuple[int, ...] = (NOT_FOUND,)
    ) -> Mapping[str, Any] | None:
        with told(self.url):
            try:
                return await question
            except DockerError as error:
                if error.status in absent:
                    return None
                raise

    async def list(self, *labels: str) -> list[Mapping[str, Any]]:
        """Give the containers with all of some labels, ended ones too: id, labels and state."""
        with told(self.url):
            found = await self.docker.containers.list(all=True, filters={"label": list(labels)})
        return [{name: container[name] for name in ("Id", "Labels", "State")} for container in found]

    async def unused_volumes(self, *labels: str) -> Set[str]:
        """Give the names of the volumes with all of some labels that no container has."""
        wanted = {"label": list(labels), "dangling": ["true"]}
        with told(self.url):
            # An engine gives null where it has none.
            found: Sequence[dict[str, Any]] | None = (await self.docker.volumes.list(filters=wanted))["Volumes"]
        return {str(volume["Name"]) for volume in found or ()}

    async def remove_volume(self, name: str) -> None:
        """Remove a volume. One that is not there is fine, and one that a container has by now stays."""
        with told(self.url):
            try:
                await _volume(self.docker, name).delete()
            except DockerError as error:
                if error.status not in (NOT_FOUND, CONFLICT):
                    raise

    async def unused_networks(self, *labels: str) -> Mapping[str, Mapping[str, str]]:
        """Give the labels of the networks with all of some labels that no container is on, by name."""
        with told(self.url):
            found = await self.docker.networks.list(filters={"label": list(labels), "dangling": ["true"]})
        return {str(network["Name"]): network["Labels"] for network in found}

    async def make_network(self, config: dict[str, Any]) -> str:
        """Make a network; give its id."""
        with told(self.url):
            return str((await whole(self.docker.networks.create(config))).id)

    async def remove_network(self, name: str) -> None:
        """Remove a network. One that is not there is fine."""
        with told(self.url):
            try:
                await _network(self.docker, name).delete()
            except DockerError as error:
                if error.status != NOT_FOUND:
                    raise

    async def start(self, name: str, config: dict[str, Any], files: Sequence[Files] = ()) -> None:
        """Make a container and start it, with files that are sent before.

        Raises:
            DockerError: The image is not there, or the name is taken.
            SandboxStartFailed: It was made, and did not start.
        """
        with told(self.url):
            container = await whole(self.docker.containers.create(config, name=name))
        try:
            with told(self.url):
                for sent in files:
                    await whole(container.put_archive(sent.path, sent.tar))
                await whole(container.start())
        except (InvalidArgument, InternalError) as error:
            # What was asked for was accepted before; engines blame whoever asks when a process ends as it starts.
            raise SandboxStartFailed(f"{name} could not be started: {error.message}") from None

    async def remove(self, name: str, *, frozen: bool = False) -> None:
        """Remove a container with its volumes; return when it is gone. One that is not there is fine.

        With `frozen` it may be frozen in a way in which it does not end, as gVisor's do: it is let run first.
        """
        if frozen:
            with suppress(DockerError):
                await self.resume(name)
        with told(self.url):
            while True:
                try:
                    await self._container(name).delete(force=True, v=True)
                except DockerError as error:
                    if error.status == NOT_FOUND:
                        return
                    if error.status != CONFLICT:
                        raise
                    # Somebody else removes it: the engine has no other way to wait for that.
                    await asyncio.sleep(0.02)

    async def log(self, name: str) -> bytes:
        """Give what a container wrote, nothing where it is not there or is being removed."""
        with told(self.url):
            try:
                lines = await self._container(name).log(stdout=True, stderr=True)
            except DockerError as error:
                if error.status in (NOT_FOUND, CONFLICT):
                    return b""
                raise
        return "".join(lines).encode("utf-8", "replace")

    async def pause(self, name: str) -> None:
        """Freeze a container; one that is frozen is fine."""
        await self._switch(self._container(name).pause())

    async def resume(self, name: str) -> None:
        """Let a frozen container run; one that runs is fine."""
        await self._switch(self._container(name).unpause())

    async def _switch(self, work: Coroutine[Any, Any, None]) -> None:
        with told(self.url):
            try:
                await work
            except DockerError as error:
                # It says so of one that is already what it is to be.
                if error.status != CONFLICT and "paused" not in error.message:
                    raise

    def _container(self, name: str) -> Any:
        return self.docker.containers.container(name)


def _network(docker: Any, name: str) -> Any:
    return cast("Any", DockerNetwork)(docker, name)


def _volume(docker: Any, name: str) -> Any:
    return cast("Any", DockerVolume)(docker, name)


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """Run a request to its end, also when its caller goes away: the engine goes on with what was asked for."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
        raise
