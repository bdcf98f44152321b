"""How an engine is reached that is no socket here, and whether it sees this machine's files as it must."""

from __future__ import annotations

import secrets
import ssl

from aiodocker import DockerError

from sandmesh.errors import InvalidArgument, RuntimeUnavailable
from sandmeshd.drivers.engine.engine import NOT_FOUND, Engine
from sandmeshd.drivers.engine.settings import DockerSettings

SCHEMES = ("unix://", "tcp://", "https://")
NO_IMAGE = "sandmesh.invalid/none"
"""The name of no image: `.invalid` is nobody's (RFC 2606)."""


def check_url(settings: DockerSettings) -> None:
    """Refuse what no engine listens at, and certificates that nothing would be checked by.

    Raises:
        RuntimeUnavailable: It is none; `facts["fix"]` says what to do.
    """
    if not settings.url.startswith(SCHEMES):
        fix = "set SANDMESH_DOCKER_URL to its socket (unix:///path), or to tcp://host:port"
        raise RuntimeUnavailable(f"the {settings.kind.name} driver does not reach {settings.url}: {fix}", {"fix": fix})


def tls_context(settings: DockerSettings) -> ssl.SSLContext | None:
    """Give what an engine on TCP is asked with, None where that is without TLS.

    The files are those of Docker's own client: ca.pem, cert.pem and key.pem.

    Raises:
        InvalidArgument: One is not there, or is none.
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
    """Give the error of an engine on another machine, or in a container, with what else there is to do."""
    fix = "run the driver on the engine's machine (sandmeshd driver), with its SANDMESH_RUNTIME_DIRECTORY"
    fix = f"{fix}, {otherwise}" if otherwise else fix
    message = f"the engine at {settings.url} does not see {settings.paths.runtime}, where agents listen: {fix}"
    return RuntimeUnavailable(message, {"fix": fix})


async def sees_files(engine: Engine, settings: DockerSettings) -> bool:
    """Say whether an engine which is reached over TCP has the directory of the agents' sockets where it is here.

    It is asked to mount a directory that was just made into a container of no image, which it looks for last.
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
