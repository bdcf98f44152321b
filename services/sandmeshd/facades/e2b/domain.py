"""The names of a domain by which E2B's clients reach sandboxes, and the variables that clients need."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sandmesh.errors import InvalidArgument, MeshUnavailable
from sandmeshd.contracts.door import DoorHost
from sandmeshd.facades.e2b.settings import E2bSettings
from sandmeshd.runtime.addresses import is_open
from sandmeshd.runtime.certificates import FILES, issue_certificate, write_certificate
from sandmeshd.runtime.http import Certificate, HttpAddresses

if TYPE_CHECKING:
    from sandmeshd.facades.e2b.door import E2bDoor

CERTIFICATE_DAYS: Final = 90
HTTPS: Final = "443"


async def serve_names(settings: E2bSettings, host: DoorHost, door: E2bDoor, url: str) -> Mapping[str, str]:
    """Serve the names of the door's domain, if it has one, and return the variables that clients need.

    Raises:
        InvalidArgument: An address is open to others, and the certificate is for trials.
        MeshUnavailable: An address cannot be listened at.
        RuntimeUnavailable: A certificate is to be made and the extra `tls` is not installed.
    """
    if settings.domain is None:
        return {"E2B_API_URL": url, "E2B_SANDBOX_URL": url, "E2B_VOLUME_API_URL": url}
    certificate, authority = await asyncio.to_thread(_certificate, host, settings.domain)
    for address in settings.listen:
        if is_open(address) and authority is not None:
            fix = "give a certificate by SANDMESH_TLS_CERT and SANDMESH_TLS_KEY, or listen at 127.0.0.1"
            raise InvalidArgument(f"{address} is open to others, and the certificate is for trials: {fix}")
    urls = await host.listen_more(HttpAddresses(settings.listen, always_tls=True), certificate)
    port = urls[0].rpartition(":")[2]
    if settings.listen == ("127.0.0.1:0",):
        await _listen_at_v6(port, certificate, host)
    door.host = settings.domain if port == HTTPS else f"{settings.domain}:{port}"
    variables = {"E2B_DOMAIN": door.host}
    if authority is not None:
        variables |= {"SSL_CERT_FILE": str(authority), "NODE_EXTRA_CA_CERTS": str(authority)}
    return variables


async def _listen_at_v6(port: str, certificate: Certificate, host: DoorHost) -> None:
    # Names below localhost lead to ::1 first on many machines; some have no IPv6.
    try:
        await host.listen_more(HttpAddresses((f"[::1]:{port}",), always_tls=True), certificate)
    except MeshUnavailable:
        return


def _certificate(host: DoorHost, domain: str) -> tuple[Certificate, Path | None]:
    """Return the certificate of a domain's names, and the file of the authority that is to be trusted for it."""
    if host.certificate is not None:
        return host.certificate, None
    host.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    paths = {kind: host.folder / name for kind, name in FILES.items()}
    # A new one at each start: it is for trials, and never too old.
    for path in paths.values():
        path.unlink(missing_ok=True)
    write_certificate(issue_certificate((domain, f"*.{domain}"), CERTIFICATE_DAYS), paths)
    return Certificate(paths["cert"], paths["key"]), paths["ca"]
