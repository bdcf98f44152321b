"""What is recorded of an RPC: names and ids, never code, arguments, environment variables or secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from sandmesh.api.audit.v1 import audit_pb2 as pb
from sandmesh.api.options.v1 import options_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2
from sandmesh.api.token.v1 import token_pb2
from sandmeshd.auth.principal import Principal

# They come every few seconds from each holder of a sandbox, and only change a deadline.
RENEWALS: Final = frozenset({"KeepSession", "RenewLease"})

NAMES: Final = (
    *("name", "user_id", "project", "token_id", "snapshot_id", "exposure_id", "port", "dry_run", "slots", "removed"),
    *("created_slots", "generation", "changed"),
)
"""The fields of requests and responses whose values are recorded; of messages in them, only those named below."""

_LONGEST = 500


def is_recorded(method: MethodDescriptor) -> bool:
    """Return whether a public unary method changes something that is not a mere deadline."""
    streams = method.client_streaming or method.server_streaming
    reads = method.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS
    public = method.GetOptions().Extensions[options_pb2.visibility] == options_pb2.VISIBILITY_PUBLIC
    return public and not streams and not reads and method.name not in RENEWALS


def method_name(path: str) -> str:
    """Return the short name of a method, Service.Method, of its path."""
    service, _, name = path.removeprefix("/").partition("/")
    return f"{service.rpartition('.')[2]}.{name}"


def parsed(descriptor: Descriptor, data: object) -> Message:
    """Return a message that may still be bytes; what is malformed is empty."""
    if isinstance(data, Message):
        return data
    message = GetMessageClass(descriptor)()
    try:
        message.ParseFromString(cast("bytes", data or b""))
    except DecodeError:
        message.Clear()
    return message


def make_entry(path: str, principal: Principal | None, peer: str, outcome: str) -> pb.AuditEntry:
    """Return an entry without its time and what the RPC concerned; a principal of None was not accepted."""
    entry = pb.AuditEntry(method=method_name(path), outcome=outcome, peer="unix" if peer.startswith("unix:") else peer)
    if principal is not None:
        entry.scope, entry.user_id, entry.token_id = principal.scope_name, principal.user_id, principal.token_id
        entry.project = principal.project
    return entry


def describe(entry: pb.AuditEntry, request: Message, response: Message) -> None:
    """Add to an entry what its RPC concerned."""
    entry.sandbox_ids.extend(dict.fromkeys(_sandboxes(request, response)))
    entry.session_id = str(getattr(request, "session_id", ""))
    details = dict(_names(response)) | dict(_names(request)) | dict(_parts(request, response))
    for name, value in details.items():
        if value:
            entry.details[name] = value[:_LONGEST]


def _sandboxes(request: Any, response: Any) -> Iterator[str]:
    if named := getattr(request, "sandbox_id", ""):
        yield named
    yield from getattr(response, "sandbox_ids", ())
    if isinstance(response, session_pb2.ConnectSessionResponse):
        yield from sorted(sandbox.sandbox_id for sandbox in response.session.sandboxes.values())


def _names(message: Message) -> Iterator[tuple[str, str]]:
    for field, value in message.ListFields():
        if field.name in NAMES and field.message_type is None:
            yield field.name, ", ".join(str(one) for one in value) if field.is_repeated else str(value)


def _parts(request: Any, response: Any) -> Iterator[tuple[str, str]]:
    """Yield what messages inside of an RPC's messages name."""
    if isinstance(request, session_pb2.ConnectSessionRequest):
        yield "slots", ", ".join(slot.slot or slot.spec.template for slot in request.slots)
        yield "templates", ", ".join(slot.spec.template for slot in request.slots)
        yield "network", "; ".join(filter(None, (_network(slot.spec.network) for slot in request.slots)))
    if isinstance(request, token_pb2.CreateTokenRequest):
        yield "scope", _enum_name(token_pb2.Scope, request.scope, "SCOPE_")
    for name in ("token", "snapshot", "port"):
        part = getattr(response, name, None)
        if isinstance(part, Message):
            yield from _names(part)
    for name in ("definition", "limits"):
        part = getattr(request, name, None)
        if isinstance(part, Message):
            yield name, _scalars(part) if name == "limits" else str(getattr(part, "name", ""))


def _network(grant: sandbox_pb2.NetworkGrant) -> str:
    if grant.mode == sandbox_pb2.NETWORK_MODE_UNSPECIFIED:
        return ""
    mode = _enum_name(sandbox_pb2.NetworkMode, grant.mode, "NETWORK_MODE_")
    return f"{mode} {' '.join(grant.hosts)}".strip()


def _enum_name(enum: Any, number: int, prefix: str) -> str:
    """Return the name of a value, or the number of one that there is not: clients send what they like."""
    return enum.Name(number).removeprefix(prefix).lower() if number in enum.values() else str(number)


def _scalars(message: Message) -> str:
    values: Mapping[str, object] = {field.name: value for field, value in message.ListFields()}
    return ", ".join(f"{name}={value}" for name, value in values.items())
