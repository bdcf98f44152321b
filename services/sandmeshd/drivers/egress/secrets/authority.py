"""The certificate authority of one sandbox, trusted inside only for the hosts of its secrets.

Its key follows from the mesh's secret and the sandbox's id, so that it is stored nowhere and outlives the driver. The
name constraints (RFC 5280, 4.2.1.10) make it useless for other hosts, even with the key.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sandmesh.shared.hosts import NamedHost, is_address
from sandmeshd.auth.sealer import derived_key

# NIST SP 800-186, 3.2.1.3: the order of the group of P-256.
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_BEGIN, _END = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
"""Independent of clocks: it ends with its sandbox."""
_EVERYWHERE = (IPv4Network("0.0.0.0/0"), IPv6Network("::/0"))


class CertificateAuthority:
    """Issues certificates for the hosts of a sandbox's secrets."""

    def __init__(self, mesh_secret: str, sandbox_id: str, hosts: Iterable[NamedHost]) -> None:
        number = int.from_bytes(derived_key(mesh_secret, f"authority of {sandbox_id}"), "big")
        self._key = ec.derive_private_key(number % (_ORDER - 1) + 1, ec.SECP256R1())
        self._name = _name(f"sandmesh secrets of {sandbox_id}")
        self._hosts = tuple(hosts)
        self._contexts: dict[str, ssl.SSLContext] = {}

    @cached_property
    def certificate(self) -> bytes:
        """The authority's own certificate, in PEM."""
        usage = x509.KeyUsage(
            digital_signature=False,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = self._builder(self._name, self._key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(_constraints(self._hosts), critical=True)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def context(self, host: str) -> ssl.SSLContext:
        """Return the server side of TLS as a host that one of the secrets is for."""
        if host not in self._contexts:
            self._contexts[host] = self._new_context(host)
        return self._contexts[host]

    def _new_context(self, host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name("sandmesh egress proxy"), key)
        names: list[x509.GeneralName] = [_general_name(host)]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        _load(context, certificate + secret)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        serial = x509.random_serial_number()
        builder = x509.CertificateBuilder(self._name, subject, key.public_key(), serial, _BEGIN, _END)
        subject_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return builder.add_extension(subject_key, critical=False).add_extension(issuer_key, critical=False)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _general_name(host: str) -> x509.GeneralName:
    return x509.IPAddress(ip_address(host)) if is_address(host) else x509.DNSName(host)


def _constraints(hosts: Sequence[NamedHost]) -> x509.NameConstraints:
    names = [x509.DNSName(host.host) for host in hosts if not is_address(host.host)]
    networks = [x509.IPAddress(ip_network(host.host)) for host in hosts if is_address(host.host)]
    permitted: list[x509.GeneralName] = [*names, *networks]
    # A form of name that nothing is permitted of is not constrained at all: so it is excluded.
    no_addresses = [] if networks else [x509.IPAddress(everywhere) for everywhere in _EVERYWHERE]
    # Nothing is below this name: ".invalid" is reserved (RFC 2606).
    no_names = [] if names else [x509.DNSName("invalid")]
    excluded: list[x509.GeneralName] = list(no_addresses)
    return x509.NameConstraints([*permitted, *no_names], excluded or None)


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    # The module reads files only: this one is memory, and gone when it is closed.
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
