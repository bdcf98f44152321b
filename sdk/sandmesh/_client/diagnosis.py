"""Why a mesh that listens cannot be used: its certificate, or TLS on only one side."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from sandmesh._client.addresses import CA_VARIABLE, DialTarget

if TYPE_CHECKING:
    from ssl import SSLContext

PROBE_SECONDS = 2.0
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


async def diagnose(target: DialTarget, detail: str) -> tuple[str, str] | None:
    """Return what is wrong between this client and what listens at an address, and what to do; None if nothing listens.

    `detail` is gRPC's message.
    """
    if target.path is not None:
        return None
    if not target.secure:
        return await _without_tls(target)
    reason = await _refused_certificate(target)
    if reason is None and _UNTRUSTED in detail:
        reason = "it cannot be verified"
    if reason is not None:
        fix = f"name the certificate of the authority that signed it (ca_cert=, {CA_VARIABLE}), by a name that it has"
        return f"the certificate of the mesh at {target.address} is not accepted: {reason}", fix
    if "WRONG_VERSION_NUMBER" in detail:
        plain = target.address.replace("grpcs://", "grpc://").replace("https://", "http://")
        return f"what listens at {target.address} does not speak TLS", f"if it is your mesh, write {plain}"
    return None


async def _refused_certificate(target: DialTarget) -> str | None:
    import ssl  # noqa: PLC0415 - few need it

    context = ssl.create_default_context(cadata=target.certificates.decode() if target.certificates else None)
    try:
        await _shake_hands(target, context)
    except ssl.SSLCertVerificationError as error:
        return error.verify_message.removesuffix(".")
    except (OSError, TimeoutError):
        return None
    return None


async def _without_tls(target: DialTarget) -> tuple[str, str] | None:
    import ssl  # noqa: PLC0415 - few need it

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        await _shake_hands(target, context)
    except (OSError, TimeoutError):
        return None
    name = target.address.rpartition("://")[2]
    fix = f"write grpcs://{name}, with ca_cert= or {CA_VARIABLE} where its authority is not the system's"
    return f"what listens at {target.address} speaks TLS, and the address does not say so", fix


async def _shake_hands(target: DialTarget, context: SSLContext) -> None:
    parts = urlsplit(f"//{target.name}")
    async with asyncio.timeout(PROBE_SECONDS):
        _, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
    writer.transport.abort()
