"""Connections to registries: TLS with private authorities, proxies, and plain HTTP for the machine's own."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from sandmesh.errors import InvalidArgument
from sandmeshd.images.reference import DOCKER_HUB
from sandmeshd.images.registry.public_only import socket_factory
from sandmeshd.images.settings import ImageSettings

_HUB_HOST: Final = "registry-1.docker.io"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_CONNECT_SECONDS, _SILENT_SECONDS = 15.0, 60.0
_FOLDERS: Final = (Path("/etc/docker/certs.d"), Path("/etc/containers/certs.d"))


def is_loopback(url: str) -> bool:
    """Return whether a URL is this machine's own, where plain HTTP is as good as TLS."""
    return (urlsplit(url).hostname or "") in _LOOPBACK


def url_of(registry: str) -> str:
    """Return the URL of a registry."""
    return f"https://{_HUB_HOST if registry == DOCKER_HUB else registry}"


def proxy_for(settings: ImageSettings, url: str) -> str | None:
    """Return the proxy that leads to a URL, None where none is needed."""
    host = urlsplit(url).hostname or ""
    if settings.image_proxy is None or is_loopback(url):
        return None
    suffixes = (entry.strip().lstrip("*.") for entry in settings.image_no_proxy.split(","))
    bypassed = any(suffix and f".{host}".endswith(f".{suffix}") for suffix in suffixes)
    return None if bypassed or settings.image_no_proxy.strip() == "*" else settings.image_proxy.get_secret_value()


@asynccontextmanager
async def open_session(
    settings: ImageSettings, url: str, *, is_mirror: bool = False
) -> AsyncGenerator[aiohttp.ClientSession]:
    """Open a session for a registry.

    Raises:
        InvalidArgument: A file of certificates is not there, or is none.
        PermissionDenied: The registry is in a network of the machine's, and no administrator has named it.
    """
    factory = await socket_factory(settings, url, is_mirror=is_mirror)
    context = _ssl_context(settings, urlsplit(url).netloc)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_SILENT_SECONDS)
    connector = aiohttp.TCPConnector(ssl=context, limit=8, socket_factory=factory)
    headers = {"User-Agent": "sandmesh"}
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers=headers, auto_decompress=False, max_line_size=16384
    ) as session:
        yield session


def _ssl_context(settings: ImageSettings, host: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authorities = [path for folder in _FOLDERS for path in sorted((folder / host).glob("*.crt"))]
    if settings.image_certificates is not None:
        authorities.append(settings.image_certificates)
    for path in authorities:
        try:
            context.load_verify_locations(path)
        except (OSError, ssl.SSLError) as error:
            raise InvalidArgument(f"{path} is not a file of certificates (PEM): {error}") from None
    return context
