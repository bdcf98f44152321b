"""The environment variables that send programs inside to the proxy."""

from __future__ import annotations

from pathlib import Path

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmeshd.drivers.egress.grants import is_open, names_packages
from sandmeshd.drivers.egress.packages import package_variables
from sandmeshd.drivers.egress.settings import EgressSettings

PORT = 3128
_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")
_TRUST = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS")

_TRUST_ALSO = ("CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "DENO_CERT")
"""Named only where a sandbox has its own certificate authority, which is in no other list."""


def egress_port(grant: pb.NetworkGrant) -> int:
    """Return the port inside where the proxy is reached, 0 where there is none."""
    return PORT if is_open(grant) else 0


def egress_variables(grant: pb.NetworkGrant, settings: EgressSettings, certificates: str = "") -> dict[str, str]:
    """Return the variables that name the proxy, the indexes and the certificates to trust to programs inside.

    `certificates` is the file of a sandbox that trusts its secrets' authority, too; others trust what the node does.
    """
    if not is_open(grant):
        return {}
    variables = {"NODE_USE_ENV_PROXY": "1"}
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        variables[name] = variables[name.lower()] = f"http://127.0.0.1:{PORT}"
    variables["NO_PROXY"] = variables["no_proxy"] = "localhost,127.0.0.1,::1"
    # What the node's administrator trusts holds inside too: programs that bring their own list would not know it.
    bundle = next((path for path in _BUNDLES if Path(path).exists()), None)
    if certificates:
        variables |= dict.fromkeys((*_TRUST, *_TRUST_ALSO), certificates)
    elif bundle is not None:
        variables |= dict.fromkeys(_TRUST, bundle)
    return {**variables, **(package_variables(settings.indexes) if names_packages(grant) else {})}
