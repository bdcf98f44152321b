"""The client of registries, after the OCI Distribution Specification 1.1.

It is not another's: `skopeo` (16 MB and its libraries) and `umoci` (6 MB) come with distributions, and a
mesh must work where nothing but PyPI is; PyPI's `oras` (0.07 MB, with requests and jsonschema) is synchronous, does not
check the digests of what it downloads, starts again after a lost connection, and knows neither mirrors nor indexes by
platform. What is needed of the protocol is three requests, and aiohttp is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp

from sandmesh.errors import InvalidArgument, PermissionDenied, RuntimeUnavailable, SandmeshError
from sandmeshd.images.documents import INDEXES, LARGEST_DOCUMENT, MANIFESTS, Descriptor
from sandmeshd.images.reference import Reference
from sandmeshd.images.registry.authentication import Challenge, authorize, parse_challenge
from sandmeshd.images.registry.connection import is_loopback, proxy_for
from sandmeshd.images.registry.credentials import find_credentials
from sandmeshd.images.registry.public_only import refusal_in
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.sources.source import Resolved

_CHUNK: Final = 256 << 10
_TRIES: Final = 6
_FIRST_PAUSE: Final = 0.2
_REDIRECTS: Final = 5
_ACCEPT: Final = ", ".join((*MANIFESTS, *INDEXES))
_LOST: Final = (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, TimeoutError)
_TLS: Final = (aiohttp.ClientConnectorSSLError, aiohttp.ClientConnectorCertificateError)


class RegistryClient:
    """One repository at one URL, a registry's or a mirror's."""

    def __init__(self, settings: ImageSettings, session: aiohttp.ClientSession, url: str, reference: Reference) -> None:
        self._settings = settings
        self._session = session
        self._url = url
        self._reference = reference
        self._authorization = ""

    async def read_manifest(self, wanted: str) -> Resolved:
        """Return a manifest or an index.

        Raises:
            InvalidArgument: There is none of that name, or it is too large.
            PermissionDenied: Credentials are missing or not right.
            RuntimeUnavailable: The registry does not respond.
        """
        async with self.request("GET", f"manifests/{wanted}", headers={"Accept": _ACCEPT}) as response:
            data = bytearray()
            async for part in response.content.iter_chunked(_CHUNK):
                data += part
                if len(data) > LARGEST_DOCUMENT:
                    raise InvalidArgument(f"the manifest of {self._reference} is larger than {LARGEST_DOCUMENT} bytes")
            return Resolved(bytes(data), response.headers.get("Content-Type", "").partition(";")[0])

    async def read_blob(self, blob: Descriptor, offset: int = 0) -> AsyncIterator[bytes]:
        """Yield a blob's content from an offset on; a lost connection is replaced by one from where it was.

        Raises:
            InvalidArgument: There is no such blob.
            PermissionDenied: Credentials are missing or not right.
            RuntimeUnavailable: The registry does not respond.
        """
        tries = 0
        while offset < blob.size:
            headers = {"Range": f"bytes={offset}-"} if offset else {}
            try:
                async with self.request("GET", f"blobs/{blob.digest}", headers=headers) as response:
                    skip = 0 if response.status == 206 or not offset else offset
                    async for part in response.content.iter_chunked(_CHUNK):
                        rest, skip = part[skip:], max(0, skip - len(part))
                        if rest:
                            offset, tries = offset + len(rest), 0
                            yield rest
                if offset < blob.size:
                    raise aiohttp.ClientPayloadError("it sent less than it has")
            except _LOST as error:
                tries += 1
                if tries == _TRIES:
                    raise self._silent(error) from None
                await asyncio.sleep(_FIRST_PAUSE * 2**tries)

    @asynccontextmanager
    async def request(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Yield the response of a request in the repository, or at a whole URL; a 401 is answered once.

        Raises:
            As `read_manifest`.
        """
        for last in (False, True):
            async with self._send(method, path, headers or {}, options) as response:
                if response.status == 401 and not last:
                    challenge = parse_challenge(response.headers.get("WWW-Authenticate", ""))
                else:
                    await self._check(response, path)
                    yield response
                    return
            self._authorization = await self._authorize(challenge)

    @asynccontextmanager
    async def _send(
        self, method: str, path: str, headers: Mapping[str, str], options: Mapping[str, Any]
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        url = path if "://" in path else f"{self._url}/v2/{self._reference.repository}/{path}"
        whole = {**headers, **({"Authorization": self._authorization} if self._authorization else {})}
        proxy = proxy_for(self._settings, url)
        try:
            async with self._session.request(
                method, url, headers=whole, proxy=proxy, max_redirects=_REDIRECTS, **options
            ) as response:
                if self._url.startswith("https:") and response.url.scheme != "https":
                    raise RuntimeUnavailable(
                        f"{self._url} leads to {response.url.host} without TLS", {"fix": "another mirror"}
                    )
                yield response
        except _TLS as error:
            if self._url.startswith("https:") and is_loopback(self._url) and _is_plain(error):
                self._url = self._url.replace("https:", "http:", 1)
                async with self._send(method, path, headers, options) as response:
                    yield response
                return
            fix = "SANDMESH_IMAGE_CERTIFICATES with its authority"
            raise RuntimeUnavailable(
                f"the certificate of {self._url} cannot be verified ({error}): set {fix}", {"fix": fix}
            ) from None
        except aiohttp.ClientConnectorError as error:
            raise self._silent(error) from None
        except (aiohttp.InvalidURL, aiohttp.TooManyRedirects, aiohttp.ClientResponseError) as error:
            raise self._silent(error) from None

    async def _authorize(self, challenge: Challenge | None) -> str:
        host = self._reference.registry if self._is_origin else self._url.partition("://")[2].partition("/")[0]
        if challenge is None:
            raise self._denied(host, "it wants an authentication that is not supported")
        credentials = await find_credentials(self._settings.credential_files, host)
        plain = self._url.startswith("http:")
        try:
            return await authorize(
                self._session, challenge, credentials, is_plain=plain, proxy=proxy_for(self._settings, challenge.realm)
            )
        except PermissionDenied as error:
            raise self._denied(host, str(error)) from None

    @property
    def _is_origin(self) -> bool:
        return self._reference.registry in self._url or "docker.io" in self._url

    async def _check(self, response: aiohttp.ClientResponse, path: str) -> None:
        if response.status < 400:
            return
        host = self._url.partition("://")[2]
        if response.status in {401, 403}:
            raise self._denied(host, "it refuses the credentials")
        if response.status == 404:
            raise InvalidArgument(
                f"there is no image {self._reference}: {host} has no such {path.partition('/')[0].rstrip('s')}",
                {"image": str(self._reference)},
            )
        if response.status == 429:
            fix = "wait, or log in: docker login"
            raise RuntimeUnavailable(f"{host} limits how much may be pulled: {fix}", {"fix": fix})
        raise RuntimeUnavailable(f"{host} fails: HTTP {response.status}", {"fix": "try later"})

    def _denied(self, host: str, why: str) -> PermissionDenied:
        files = ", ".join(map(str, self._settings.credential_files))
        fix = f"check the name, or log in: docker login {host} (it writes {files})"
        return PermissionDenied(f"the registry refuses {self._reference}: {why}: {fix}", {"fix": fix})

    def _silent(self, error: BaseException) -> SandmeshError:
        if refused := refusal_in(error):
            fix = "check its name, or have an administrator name the registry's inner address in SANDMESH_IMAGE_MIRRORS"
            return PermissionDenied(f"{self._url} leads to an address of this network ({refused}): {fix}", {"fix": fix})
        fix = "check its name and the network, or set SANDMESH_IMAGE_PROXY or SANDMESH_IMAGE_MIRRORS"
        return RuntimeUnavailable(f"{self._url} does not respond ({error or 'time-out'}): {fix}", {"fix": fix})


def _is_plain(error: BaseException) -> bool:
    """Return whether a server speaks no TLS at all."""
    return any(text in str(error).upper() for text in ("WRONG_VERSION_NUMBER", "RECORD LAYER", "HTTP_REQUEST"))
