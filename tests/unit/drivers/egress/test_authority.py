"""A sandbox's certificate authority stands for the hosts of its secrets, and for no others."""

from __future__ import annotations

import ssl

import pytest

from sandmesh.shared.hosts import read_host
from sandmeshd.drivers.egress.secrets.authority import CertificateAuthority

MESH_SECRET = "a secret of a mesh that is long enough"  # noqa: S105 - a test's


def handshake(trusted: bytes, server: ssl.SSLContext, name: str) -> None:
    """Let a client that trusts a certificate, and nothing else, meet a server.

    Raises:
        ssl.SSLError: The client does not trust it.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=trusted.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue


@pytest.mark.parametrize(
    ("host", "name"),
    [("api.test", "api.test"), ("*.api.test", "eu.api.test"), ("10.0.0.5:8443", "10.0.0.5"), ("[fd00::5]", "fd00::5")],
)
def test_it_is_trusted_as_its_hosts(host: str, name: str) -> None:
    authority = CertificateAuthority(MESH_SECRET, "sb_one", [read_host(host)])
    handshake(authority.certificate, authority.context(name), name)


@pytest.mark.parametrize(
    ("host", "name"), [("api.test", "evil.test"), ("api.test", "10.0.0.5"), ("10.0.0.5", "a.test")]
)
def test_it_is_worthless_for_others_even_with_its_key(host: str, name: str) -> None:
    authority = CertificateAuthority(MESH_SECRET, "sb_one", [read_host(host)])
    with pytest.raises(ssl.SSLCertVerificationError, match=r"(permitted|excluded) subtree violation"):
        handshake(authority.certificate, authority.context(name), name)


def test_it_is_the_same_after_a_restart_and_another_for_each_sandbox_and_mesh() -> None:
    first = CertificateAuthority(MESH_SECRET, "sb_one", [read_host("api.test")])
    again = CertificateAuthority(MESH_SECRET, "sb_one", [read_host("api.test")])
    handshake(first.certificate, again.context("api.test"), "api.test")
    for secret, sandbox in ((MESH_SECRET, "sb_two"), (MESH_SECRET + "!", "sb_one")):
        other = CertificateAuthority(secret, sandbox, [read_host("api.test")])
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(first.certificate, other.context("api.test"), "api.test")
