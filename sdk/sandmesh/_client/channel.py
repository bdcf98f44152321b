"""Channels to a mesh, what goes with every RPC, and which may be sent again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from sandmesh._calls.local_socket import Metadata
from sandmesh._client.addresses import Target
from sandmesh.api.audit.v1 import audit_pb2, audit_pb2_grpc
from sandmesh.api.call.v1 import call_pb2, call_pb2_grpc
from sandmesh.api.port.v1 import port_pb2, port_pb2_grpc
from sandmesh.api.quota.v1 import quota_pb2, quota_pb2_grpc
from sandmesh.api.sandbox.v1 import sandbox_pb2, sandbox_pb2_grpc
from sandmesh.api.secret.v1 import secret_pb2, secret_pb2_grpc
from sandmesh.api.session.v1 import session_pb2, session_pb2_grpc
from sandmesh.api.template.v1 import template_pb2, template_pb2_grpc
from sandmesh.api.token.v1 import token_pb2, token_pb2_grpc
from sandmesh.errors import MeshUnavailable, Recovering, SandmeshError, StoreUnavailable

MESSAGE_BYTES = 72 * 1024 * 1024

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Without it two channels to one address share a connection, and one's end is the other's.
    ("grpc.use_local_subchannel_pool", 1),
    # A peer that vanished without a word is found out by these.
    ("grpc.keepalive_time_ms", 4_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)


@dataclass(frozen=True)
class Method:
    """An RPC: its path, its response's class, and whether sending it twice does what sending it once does."""

    path: str
    response: type[Message]
    idempotent: bool


def _method(found: MethodDescriptor) -> Method:
    idempotent = found.GetOptions().idempotency_level != MethodOptions.IDEMPOTENCY_UNKNOWN
    path = f"/{found.containing_service.full_name}/{found.name}"
    return Method(path, GetMessageClass(found.output_type), idempotent)


METHODS: Mapping[str, Method] = {
    method.input_type.full_name: _method(method)
    for file in (
        audit_pb2,
        call_pb2,
        port_pb2,
        quota_pb2,
        sandbox_pb2,
        secret_pb2,
        session_pb2,
        template_pb2,
        token_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""The RPCs of a mesh by their request's type, which belongs to one of them."""

_PASSING = (MeshUnavailable, StoreUnavailable, Recovering)


@dataclass(frozen=True)
class Stubs:
    """The services of a mesh over one channel."""

    calls: call_pb2_grpc.CallServiceAsyncStub
    sandboxes: sandbox_pb2_grpc.SandboxServiceAsyncStub
    sessions: session_pb2_grpc.SessionServiceAsyncStub
    tokens: token_pb2_grpc.TokenServiceAsyncStub
    ports: port_pb2_grpc.PortServiceAsyncStub
    templates: template_pb2_grpc.TemplateServiceAsyncStub
    quotas: quota_pb2_grpc.QuotaServiceAsyncStub
    secrets: secret_pb2_grpc.SecretServiceAsyncStub
    audit: audit_pb2_grpc.AuditServiceAsyncStub


def make_channel(target: Target) -> grpc.aio.Channel:
    """Make a channel; it connects at its first RPC and again whenever it broke."""
    options = (*_OPTIONS, ("grpc.enable_http_proxy", int(target.proxied)))
    if target.secure:
        return grpc.aio.secure_channel(target.name, grpc.ssl_channel_credentials(target.certificates), options=options)
    return grpc.aio.insecure_channel(target.name, options=options)


def make_stubs(channel: grpc.aio.Channel) -> Stubs:
    """Make the services' stubs."""
    return Stubs(
        calls=call_pb2_grpc.CallServiceStub(channel),
        sandboxes=sandbox_pb2_grpc.SandboxServiceStub(channel),
        sessions=session_pb2_grpc.SessionServiceStub(channel),
        tokens=token_pb2_grpc.TokenServiceStub(channel),
        ports=port_pb2_grpc.PortServiceStub(channel),
        templates=template_pb2_grpc.TemplateServiceStub(channel),
        quotas=quota_pb2_grpc.QuotaServiceStub(channel),
        secrets=secret_pb2_grpc.SecretServiceStub(channel),
        audit=audit_pb2_grpc.AuditServiceStub(channel),
    )


def make_metadata(bearer_token: str | None) -> Metadata:
    """Return the metadata of every RPC."""
    return (("authorization", f"Bearer {bearer_token}"),) if bearer_token else ()


def may_repeat(request_type: str, error: SandmeshError) -> bool:
    """Return whether a request may be retried: its method is idempotent and the failure may pass."""
    return METHODS[request_type].idempotent and isinstance(error, _PASSING)
