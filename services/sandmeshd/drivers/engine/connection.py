"""The connection to an engine: its URL, its TLS, and whether the engine sees this machine's files."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from datetime import datetime

from aiodocker import DockerError

from sandmesh.errors import InvalidArgument, RuntimeUnavailable
from sandmeshd.drivers.engine.engine import NOT_FOUND, Engine
from sandmeshd.drivers.engine.settings import DockerSettings

PING_SECONDS = 2.0
SCHEMES = ("unix://", "tcp://", "https://")
NO_IMAGE = "sandmesh.invalid/none"
"""The name of an image that cannot exist: `.invalid` is reserved (RFC 2606)."""


def check_url(settings: DockerSettings) -> None:
    """Check that an engine can be reached at the URL.

    Raises:
        RuntimeUnavailable: Its scheme is not supported; `facts["fix"]` says what to do.
    """
    if not settings.url.startswith(SCHEMES):
        fix = "set SANDMESH_DOCKER_URL to its socket (unix:///path), or to tcp://host:port"
        raise RuntimeUnavailable(
            f"the {settings.profile.name} driver does not reach {settings.url}: {fix}", {"fix": fix}
        )


def tls_context(settings: DockerSettings) -> ssl.SSLContext | None:
    """Return the TLS context for an engine on TCP, None if it is used without TLS.

    The files are those of Docker's own client: ca.pem, cert.pem and key.pem.

    Raises:
        InvalidArgument: One is missing or invalid.
    """
    folder = settings.certificates
    if folder is None or settings.url.startswith("unix://"):
        return None
    try:
        context = ssl.create_default_context(cafile=folder / "ca.pem")
        context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    except (OSError, ssl.SSLError) as error:
        fix = "put ca.pem, cert.pem and key.pem there, or unset DOCKER_CERT_PATH or DOCKER_TLS_VERIFY"
        raise InvalidArgument(f"the certificates in {folder} cannot be used ({error}): {fix}", {"fix": fix}) from None
    return context


def unseen(settings: DockerSettings, otherwise: str) -> RuntimeUnavailable:
    """Return the error of an engine on another machine or in a container; `otherwise` is one more fix."""
    fix = "run the driver on the engine's machine (sandmeshd driver), with its SANDMESH_RUNTIME_DIRECTORY"
    fix = f"{fix}, {otherwise}" if otherwise else fix
    message = f"the engine at {settings.url} does not see {settings.paths.runtime}, where agents listen: {fix}"
    return RuntimeUnavailable(message, {"fix": fix})


async def stopped_after(engine: Engine, finished: str) -> bool:
    """Return whether an engine was stopped when a container ended at a time, as it writes times.

    It is stopping now if it takes no new connection; else it was started again since, when it makes its default bridge.
    """
    if not await _accepts(engine.url):
        return True
    started = await engine.bridge_time()
    return bool(started) and datetime.fromisoformat(finished) < datetime.fromisoformat(started)


async def _accepts(url: str) -> bool:
    if not url.startswith("unix://"):
        return True
    try:
        async with asyncio.timeout(PING_SECONDS):
            reader, writer = await asyncio.open_unix_connection(url.removeprefix("unix://"))
            try:
                # A socket that systemd holds takes connections for an engine that does not run.
                writer.write(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
                return bool(await reader.read(1))
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return False


async def sees_files(engine: Engine, settings: DockerSettings) -> bool:
    """Return whether an engine on TCP has the directory of the agents' sockets at the same path.

    It is asked to mount a new directory into a container of an image that does not exist, which it checks last.
    """
    if settings.url.startswith("unix://"):
        return True
    probe = settings.paths.runtime / f"probe-{secrets.token_hex(8)}"
    probe.mkdir()
    try:
        mount = {"Type": "bind", "Source": str(probe), "Target": "/probe"}
        await engine.start(f"sandmesh-{probe.name}", {"Image": NO_IMAGE, "HostConfig": {"Mounts": [mount]}})
    except DockerError as error:
        if error.status != NOT_FOUND:
            raise
    except InvalidArgument:
        return False
    finally:
        probe.rmdir()
    return True
