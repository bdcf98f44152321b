"""Secrets as users write them, and their values on the way to the mesh: only one request has a value in plain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.secret.v1 import secret_pb2
from sandmesh.api.session.v1 import session_pb2
from sandmesh.errors import InvalidArgument
from sandmesh.inputs import Secret
from sandmesh.shared.secret_rules import check_secret_name, check_secret_value, read_secret_hosts

if TYPE_CHECKING:
    from sandmesh._client.connection import Connection

_PLAIN: Final = b"\0plain\0"
"""What begins a value in a spec that has not left this program."""


def write_secrets(value: object, environment: object) -> dict[str, sandbox_pb2.SandboxSecret]:
    """Write the secrets of a sandbox.

    Raises:
        InvalidArgument: A variable, a host or a value does not fit; the message names it, and never has the value.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidArgument("secrets is a mapping of environment variables to Secret", {"argument": "secrets"})
    secrets = cast("Mapping[object, object]", value)
    return {str(variable): _write(variable, one, environment) for variable, one in secrets.items()}


def _write(variable: object, value: object, environment: object) -> sandbox_pb2.SandboxSecret:
    check_secret_name(variable if isinstance(variable, str) else "", "secrets")
    field = f"secrets[{variable!r}]"
    if isinstance(environment, Mapping) and variable in environment:
        raise InvalidArgument(f"{field} is in env, too: drop one", {"argument": "secrets"})
    secret = _read(field, value)
    hosts = [str(host) for host in read_secret_hosts(_texts(field, secret.hosts), f"{field}.hosts")]
    if secret.value is None:
        name = str(variable) if secret.name is None else secret.name
        check_secret_name(name, f"{field}.name")
        return sandbox_pb2.SandboxSecret(hosts=hosts, name=name)
    if secret.name is not None:
        raise InvalidArgument(f"{field} has a value or the name of a stored secret: drop one", {"argument": "secrets"})
    check_secret_value(secret.value, f"{field}.value")
    return sandbox_pb2.SandboxSecret(hosts=hosts, sealed=_PLAIN + secret.value.encode())


def _read(field: str, value: object) -> Secret:
    if isinstance(value, Secret):
        return value
    message = f"{field} is Secret or a mapping of hosts, value and name"
    if not isinstance(value, Mapping):
        raise InvalidArgument(message, {"argument": "secrets"})
    fields = cast("Mapping[str, Any]", value)
    if not fields.keys() <= {"hosts", "value", "name"}:
        raise InvalidArgument(message, {"argument": "secrets"})
    return Secret(hosts=fields.get("hosts", ()), value=fields.get("value"), name=fields.get("name"))


def _texts(field: str, hosts: object) -> list[str]:
    if isinstance(hosts, str) or not isinstance(hosts, Sequence):
        raise InvalidArgument(f"{field}.hosts is a list of hosts", {"argument": "secrets"})
    texts = list(cast("Sequence[object]", hosts))
    if not all(isinstance(host, str) for host in texts):
        raise InvalidArgument(f"{field}.hosts is a list of hosts", {"argument": "secrets"})
    return cast("list[str]", texts)


async def sealed_slots(
    connection: Connection, slots: Sequence[session_pb2.SlotSpec], timeout: float
) -> list[session_pb2.SlotSpec]:
    """Return slots whose secrets the mesh has encrypted; those without values cost nothing.

    Raises:
        SandmeshError: The mesh refuses a value, or does not answer.
    """
    return [await _sealed(connection, slot, timeout) for slot in slots]


async def _sealed(connection: Connection, slot: session_pb2.SlotSpec, timeout: float) -> session_pb2.SlotSpec:
    plain = {v: s for v, s in slot.spec.secrets.items() if s.sealed.startswith(_PLAIN)}
    if not plain:
        return slot
    result = session_pb2.SlotSpec()
    result.CopyFrom(slot)
    for variable, secret in plain.items():
        value = secret.sealed.removeprefix(_PLAIN).decode()
        request = secret_pb2.SealSecretRequest(value=value, hosts=secret.hosts)
        response = await connection.ask(lambda stubs: stubs.secrets.SealSecret, request, timeout)
        result.spec.secrets[variable].sealed = response.sealed
    return result
