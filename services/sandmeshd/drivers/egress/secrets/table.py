"""The secrets of one sandbox: which hosts they are for, and what their placeholders stand for at the moment."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.shared.hosts import NamedHost, read_host
from sandmeshd.auth.sealer import Sealer
from sandmeshd.drivers.egress.policy import EgressRefused, EgressTarget

TLS_PORT = 443

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True)
class TableSecret:
    """A secret; `value` is None where it was taken away."""

    variable: str
    placeholder: bytes
    hosts: tuple[NamedHost, ...]
    value: bytes | None = field(repr=False)

    def is_for(self, target: EgressTarget) -> bool:
        """Return whether a target gets the value."""
        ports = ((host, TLS_PORT if host.port is None else host.port) for host in self.hosts)
        return any(port == target.port and host.covers(target.host) for host, port in ports)


def read_secrets(secrets: Mapping[str, pb.SandboxSecret], sealer: Sealer) -> tuple[TableSecret, ...]:
    """Read the secrets of a spec.

    Raises:
        InvalidArgument: A value was sealed for others, or a host is not one.
    """
    found: list[TableSecret] = []
    for variable, secret in sorted(secrets.items()):
        value = sealer.unseal(secret.sealed, secret.user_id, secret.hosts).encode() if secret.sealed else None
        hosts = tuple(read_host(host) for host in secret.hosts)
        found.append(TableSecret(variable, secret.placeholder.encode(), hosts, value))
    return tuple(found)


class SecretTable:
    """The secrets of one sandbox, as they are now."""

    def __init__(self, secrets: Iterable[TableSecret] = ()) -> None:
        self._secrets = {secret.variable: secret for secret in secrets}

    def change(self, secrets: Iterable[TableSecret]) -> None:
        """Replace secrets by others of the same variables."""
        self._secrets |= {secret.variable: secret for secret in secrets}

    def covers(self, target: EgressTarget) -> bool:
        """Return whether a secret is for a target."""
        return any(secret.is_for(target) for secret in self._secrets.values())

    def values_for(self, target: EgressTarget) -> list[bytes]:
        """Return the values that a target gets."""
        return [secret.value for secret in self._secrets.values() if secret.value is not None and secret.is_for(target)]

    def filled(self, target: EgressTarget, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        """Return headers of a request over TLS with values in place of placeholders.

        Raises:
            Refused: A placeholder is not for the target, or its value was taken away.
        """
        return [(name, self._filled(target, value)) for name, value in headers]

    def check(self, target: EgressTarget, data: bytes) -> None:
        """Check what leaves for a target outside of such headers.

        Raises:
            Refused: A placeholder is in it.
        """
        for secret in self._secrets.values():
            if secret.placeholder in data:
                raise _astray(secret, target)

    def scan(self, target: EgressTarget) -> Callable[[bytes], None]:
        """Return what checks bytes for a target, as they come in pieces.

        It raises Refused as `check` does. What programs encrypt themselves it cannot see into.
        """
        longest = max((len(secret.placeholder) for secret in self._secrets.values()), default=1)
        tail = b""

        def look(data: bytes) -> None:
            nonlocal tail
            seen = tail + data
            self.check(target, seen)
            tail = seen[len(seen) - min(longest - 1, len(seen)) :]

        return look

    def check_foreign(self, target: EgressTarget, data: bytes) -> None:
        """Check the rest of a request over TLS.

        Raises:
            Refused: A placeholder that is not for the target is in it.
        """
        for secret in self._secrets.values():
            if secret.placeholder in data and not secret.is_for(target):
                raise _astray(secret, target)

    def _filled(self, target: EgressTarget, value: bytes) -> bytes:
        login = _login(value)
        if login is not None:
            filled = self._replaced(target, login)
            return value if filled == login else value[:6] + base64.b64encode(filled)
        return self._replaced(target, value)

    def _replaced(self, target: EgressTarget, value: bytes) -> bytes:
        for secret in self._secrets.values():
            if secret.placeholder not in value:
                continue
            if not secret.is_for(target):
                raise _astray(secret, target)
            if secret.value is None:
                reason = f"the secret {secret.variable} has no value any more"
                raise EgressRefused(
                    target.host, target.port, reason, "Set it again: sandmesh secret set, or box.secrets.set"
                )
            value = value.replace(secret.placeholder, secret.value)
        return value


def _login(value: bytes) -> bytes | None:
    """Return the user and password of a header for basic authentication (RFC 7617)."""
    if value[:6].lower() != b"basic ":
        return None
    try:
        return base64.b64decode(value[6:].strip(), validate=True)
    except binascii.Error:
        return None


def _astray(secret: TableSecret, target: EgressTarget) -> EgressRefused:
    hosts = ", ".join(map(str, secret.hosts))
    reason = f"the placeholder of the secret {secret.variable} was sent to {target}"
    return EgressRefused(target.host, target.port, reason, f"It is only for {hosts}, in headers of requests over TLS.")
