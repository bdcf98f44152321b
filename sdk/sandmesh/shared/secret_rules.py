"""What a secret may be: its variable, its value and its hosts."""

from __future__ import annotations

import re

from sandmesh.errors import InvalidArgument
from sandmesh.shared.hosts import ANY_PORT, PACKAGES, NamedHost, read_host

MOST_SECRETS = 64
MOST_HOSTS = 32
LONGEST_NAME = 128
LONGEST_VALUE = 8192

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")


def check_secret_name(name: str, field: str) -> None:
    """Check the name of a secret, or of the variable that has its placeholder.

    Raises:
        InvalidArgument: It cannot be an environment variable's.
    """
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        rule = f"letters, digits and underscores, the first no digit, at most {LONGEST_NAME}"
        raise InvalidArgument(f"{field}: {name!r} cannot be an environment variable: use {rule}", {"field": field})


def check_secret_value(value: str, field: str) -> None:
    """Check that a value can be part of a header; the message never has it.

    Raises:
        InvalidArgument: It is empty or too long, or has control or other characters that no header has.
    """
    if len(value) > LONGEST_VALUE or not _VALUE.fullmatch(value):
        rule = f"1 to {LONGEST_VALUE} printable ASCII characters without spaces, line ends or others around them"
        message = (
            f"{field}: the value cannot be put into a header: it has control or other characters, or no fit length"
        )
        raise InvalidArgument(f"{message}; use {rule}", {"field": field})


def read_secret_hosts(hosts: list[str], field: str) -> list[NamedHost]:
    """Read the hosts of a secret, in the order of their canonical forms.

    Raises:
        InvalidArgument: There are none, or too many, or one is not a host or names everything.
    """
    if not hosts:
        raise InvalidArgument(
            f'{field}: a secret needs hosts: name those that get it, as in ["api.openai.com"]', {"field": field}
        )
    if len(hosts) > MOST_HOSTS:
        raise InvalidArgument(f"{field}: a secret has at most {MOST_HOSTS} hosts", {"field": field})
    return sorted({_read(host, field) for host in hosts}, key=str)


def _read(text: str, field: str) -> NamedHost:
    name = text.partition(":")[0]
    if name in ("*", "public", "none", "", PACKAGES) or (name.startswith("*.") and "." not in name[2:].strip(".")):
        message = f"{field}: {text!r} names everything: name the hosts that get the secret, as in api.openai.com"
        raise InvalidArgument(message, {"field": field})
    host = read_host(text)
    if host.port == ANY_PORT:
        message = f"{field}: {text!r} names all ports: name the one where the host speaks TLS; without one it is 443"
        raise InvalidArgument(message, {"field": field})
    return host


def is_within(host: NamedHost, wider: NamedHost) -> bool:
    """Return whether all names of a host are another's, too."""
    if not host.below:
        return wider.covers(host.host)
    return wider.below and (host.host == wider.host or wider.covers(host.host))
