"""Objects by name, in any storage that Apache OpenDAL speaks: https://opendal.apache.org."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar
from urllib.parse import urlsplit

import opendal
from opendal import exceptions
from opendal.layers import RetryLayer

from sandmesh.errors import StorageUnavailable
from sandmeshd.storage.settings import StorageSettings

R = TypeVar("R")

# They have no class in common.
FAILURES = (
    exceptions.Error,
    exceptions.Unexpected,
    exceptions.Unsupported,
    exceptions.ConfigInvalid,
    exceptions.NotFound,
    exceptions.PermissionDenied,
    exceptions.IsADirectory,
    exceptions.NotADirectory,
    exceptions.AlreadyExists,
    exceptions.IsSameFile,
    exceptions.ConditionNotMatch,
    exceptions.RateLimited,
    exceptions.RangeNotSatisfied,
    exceptions.Conflict,
)


class Objects:
    """Put, get, list and delete objects; every failure is StorageUnavailable."""

    def __init__(self, settings: StorageSettings) -> None:
        options = {name: value for name, value in _options(settings).items() if value}
        operator = opendal.AsyncOperator(_SCHEMES[settings.service], **options)
        self._operator = operator.layer(RetryLayer(max_times=3, min_delay=0.1, max_delay=1.0, jitter=True))
        self._seconds = settings.timeout_seconds

    async def put(self, name: str, data: bytes) -> None:
        """Write an object whole: readers see the old one or the new one."""
        await self._with_timeout(self._operator.write(name, data), name)

    async def get(self, name: str) -> bytes | None:
        """Read an object; return None where it does not exist."""
        try:
            async with asyncio.timeout(self._seconds):
                return bytes(await self._operator.read(name))
        except exceptions.NotFound:
            return None
        except (*FAILURES, TimeoutError) as error:
            raise _unavailable(name, error) from None

    async def names(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of the objects below a prefix that ends with a slash."""
        try:
            async for entry in await self._operator.list(prefix, recursive=True):
                if not entry.path.endswith("/"):
                    yield entry.path
        except exceptions.NotFound:
            return
        except FAILURES as error:
            raise _unavailable(prefix, error) from None

    async def delete(self, name: str) -> None:
        """Delete an object if it exists."""
        await self._with_timeout(self._operator.delete(name), name)

    async def _with_timeout(self, operation: Awaitable[R], name: str) -> R:
        try:
            async with asyncio.timeout(self._seconds):
                return await operation
        except (*FAILURES, TimeoutError) as error:
            raise _unavailable(name, error) from None


_SCHEMES = {"local": "fs", "s3": "s3", "oss": "oss", "gcs": "gcs", "azblob": "azblob"}


def _options(settings: StorageSettings) -> dict[str, str]:
    key_id = settings.key_id.get_secret_value() if settings.key_id else ""
    secret = settings.key_secret.get_secret_value() if settings.key_secret else ""
    root, endpoint = str(settings.root), settings.endpoint
    if settings.service == "local":
        # A name appears when its object is whole.
        return {"root": root, "atomic_write_dir": f"{root}/.incoming"}
    if settings.service == "azblob":
        return {
            "root": root,
            "container": settings.bucket,
            "endpoint": endpoint,
            "account_name": key_id,
            "account_key": secret,
        }
    if settings.service == "gcs":
        return {"root": root, "bucket": settings.bucket, "endpoint": endpoint, "credential": secret}
    keys = {"access_key_id": key_id, ("secret_access_key" if settings.service == "s3" else "access_key_secret"): secret}
    options = {"root": root, "bucket": settings.bucket, "endpoint": endpoint, **keys}
    if settings.service == "s3":
        return {**options, "region": settings.region or "us-east-1"}
    # A bucket is a subdomain of its service, which an IP address cannot have.
    return {**options, "addressing_style": "path" if _is_address(endpoint) else "virtual"}


def _is_address(endpoint: str) -> bool:
    host = urlsplit(endpoint if "://" in endpoint else f"//{endpoint}").hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def _unavailable(name: str, error: Exception) -> StorageUnavailable:
    detail = failure_detail(error)
    return StorageUnavailable(f"the storage of workspaces does not serve {name}: {detail}", {"detail": detail})


def failure_detail(error: Exception) -> str:
    """Return the detail of an error of the library: its first line, and the cause that it found."""
    lines = [line.strip() for line in str(error).split("\n\nBacktrace:")[0].splitlines() if line.strip()]
    cause = lines[lines.index("Source:") + 1 :] if "Source:" in lines else []
    return ": ".join([*lines[:1], *cause[:1]])[:500] or type(error).__name__
