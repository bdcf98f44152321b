"""The doors of a mesh for clients of other systems; none is open unless it is configured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from sandmesh.errors import InvalidArgument, MeshUnavailable
from sandmeshd.facades.address import MeshAddress
from sandmeshd.mesh.settings import MeshSettings
from sandmeshd.runtime.addresses import is_open
from sandmeshd.runtime.certificates import FILES, issue_certificate, write_certificate
from sandmeshd.runtime.http import Certificate, HttpAddresses, HttpListener

if TYPE_CHECKING:
    from sandmeshd.facades.e2b.door import Door

CERTIFICATE_DAYS = 90
HTTPS = "443"


@asynccontextmanager
async def open_e2b(
    settings: MeshSettings, secret: str, mesh: MeshAddress, listener: HttpListener
) -> AsyncGenerator[Mapping[str, str]]:
    """Serve E2B's clients until the block ends, where the settings say so. Yields the variables that they need.

    Raises:
        InvalidArgument: The settings contradict each other, or an address is open to others.
        MeshUnavailable: An address cannot be listened at.
        RuntimeUnavailable: A certificate is to be made and the extra `tls` is not installed.
    """
    if not settings.e2b_door.enabled:
        if settings.e2b_door.domain is not None:
            raise InvalidArgument("SANDMESH_E2B_DOMAIN is of the door for E2B's clients: set SANDMESH_E2B=true too")
        yield {}
        return
    if settings.workers > 1:
        raise InvalidArgument("E2B's clients are served by one process: set SANDMESH_WORKERS to 1 (--workers 1)")
    # Its imports are nobody's who does not serve them.
    opened = await asyncio.to_thread(import_module, "sandmeshd.facades.e2b.app")
    folder = settings.paths.state / "e2b"
    async with opened.open_door(mesh, secret, settings.e2b_door.domain, folder) as door:
        listener.add(door.add)
        urls = await listener.open()
        if not urls:
            raise InvalidArgument("E2B's clients need the HTTP listener: set SANDMESH_HTTP_LISTEN")
        url = settings.gateway.http_url or urls[0]
        if settings.e2b_door.domain is None:
            yield {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_VOLUME_API_URL": url}
        else:
            yield await _serve_domain(settings, settings.e2b_door.domain, listener, door)


async def _serve_domain(settings: MeshSettings, domain: str, listener: HttpListener, door: Door) -> dict[str, str]:
    certificate, authority = await asyncio.to_thread(_certificate, settings, domain)
    for address in settings.e2b_door.listen:
        if is_open(address) and authority is not None:
            fix = "give a certificate by SANDMESH_TLS_CERT and SANDMESH_TLS_KEY, or listen at 127.0.0.1"
            raise InvalidArgument(f"{address} is open to others, and the certificate is for trials: {fix}")
    urls = await listener.open_more(HttpAddresses(settings.e2b_door.listen, always_tls=True), certificate)
    port = urls[0].rpartition(":")[2]
    if settings.e2b_door.listen == ("127.0.0.1:0",):
        await _listen_at_v6(port, certificate, listener)
    door.host = domain if port == HTTPS else f"{domain}:{port}"
    variables = {"E2B_DOMAIN": door.host}
    if authority is not None:
        variables |= {"SSL_CERT_FILE": str(authority), "NODE_EXTRA_CA_CERTS": str(authority)}
    return variables


async def _listen_at_v6(port: str, certificate: Certificate, listener: HttpListener) -> None:
    # Names below localhost lead to ::1 first on many machines; some have no IPv6.
    try:
        await listener.open_more(HttpAddresses((f"[::1]:{port}",), always_tls=True), certificate)
    except MeshUnavailable:
        return


def _certificate(settings: MeshSettings, domain: str) -> tuple[Certificate, Path | None]:
    """Return the certificate of a domain's names, and the file of the authority that is to be trusted for it."""
    gateway = settings.gateway
    if gateway.tls_cert is not None and gateway.tls_key is not None:
        return Certificate(gateway.tls_cert, gateway.tls_key), None
    folder = settings.paths.state / "e2b"
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    paths = {kind: folder / name for kind, name in FILES.items()}
    # A new one at each start: it is for trials, and never too old.
    for path in paths.values():
        path.unlink(missing_ok=True)
    write_certificate(issue_certificate((domain, f"*.{domain}"), CERTIFICATE_DAYS), paths)
    return Certificate(paths["cert"], paths["key"]), paths["ca"]
