"""Which addresses a gateway may listen at, and whether those who come there must show a token."""

from __future__ import annotations

from sandmesh.errors import InvalidArgument
from sandmeshd.gateway.settings import GatewaySettings
from sandmeshd.runtime.addresses import is_open


def token_required(settings: GatewaySettings) -> bool:
    """Return whether clients on TCP must show a token."""
    if settings.require_token is not None:
        return settings.require_token
    protected = settings.bearer_token is not None or settings.tls_cert is not None
    return protected or any(is_open(address) for address in settings.listen)


def check_addresses(settings: GatewaySettings) -> None:
    """Refuse addresses beyond loopback without TLS and tokens, unless the settings say in words that they may be.

    Raises:
        InvalidArgument: One is open to others and something that protects it is missing.
    """
    address = next((address for address in (*settings.listen, *settings.http_listen) if is_open(address)), None)
    if address is None or settings.allow_insecure:
        return
    if settings.tls_cert is None:
        missing = "there is no TLS, so tokens and data could be read on the way"
        fix = (
            "for a trial, `sandmesh certificate --name HOST --directory tls`, then give "
            "--tls-cert tls/cert.pem --tls-key tls/key.pem"
        )
    elif not token_required(settings):
        missing, fix = "no token is required", "leave out --no-require-token"
    else:
        return
    message = (
        f"the gateway does not listen at {address}, which is open to others: {missing}; {fix}, "
        "listen at 127.0.0.1, or accept the risk with SANDMESH_ALLOW_INSECURE=true (--allow-insecure)"
    )
    raise InvalidArgument(message, {"address": address, "fix": fix})
