"""Channels to a mesh, what goes with every RPC, and which may be sent again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from sandmesh._calls.local_socket import Metadata
from sandmesh._client.addresses import DialTarget
from sandmesh.api.audit.v1 import audit_pb2, audit_pb2_grpc
from sandmesh.api.call.v1 import call_pb2, call_pb2_grpc
from sandmesh.api.image.v1 import image_pb2, image_pb2_grpc
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
    # Without it an unanswered ping ends a connection after a minute, whatever the other says.
    ("grpc.http2.ping_timeout_ms", 5_000),
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
        image_pb2,
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


class Stubs:
    """The services of a mesh over one gRPC channel, made with the first of them that is used.

    With local sockets none is, and the channel with all its stubs would take as long to make as several calls.
    """

    def __init__(self, target: DialTarget) -> None:
        self._target = target
        self._channel: grpc.aio.Channel | None = None
        self._closed = False

    @cached_property
    def calls(self) -> call_pb2_grpc.CallServiceAsyncStub:
        """Calls of tools."""
        return call_pb2_grpc.CallServiceStub(self._opened())

    @cached_property
    def sandboxes(self) -> sandbox_pb2_grpc.SandboxServiceAsyncStub:
        """Sandboxes and their leases."""
        return sandbox_pb2_grpc.SandboxServiceStub(self._opened())

    @cached_property
    def sessions(self) -> session_pb2_grpc.SessionServiceAsyncStub:
        """Sessions."""
        return session_pb2_grpc.SessionServiceStub(self._opened())

    @cached_property
    def tokens(self) -> token_pb2_grpc.TokenServiceAsyncStub:
        """Tokens."""
        return token_pb2_grpc.TokenServiceStub(self._opened())

    @cached_property
    def ports(self) -> port_pb2_grpc.PortServiceAsyncStub:
        """Ports of sandboxes."""
        return port_pb2_grpc.PortServiceStub(self._opened())

    @cached_property
    def templates(self) -> template_pb2_grpc.TemplateServiceAsyncStub:
        """Templates."""
        return template_pb2_grpc.TemplateServiceStub(self._opened())

    @cached_property
    def images(self) -> image_pb2_grpc.ImageServiceAsyncStub:
        """Builds of images."""
        return image_pb2_grpc.ImageServiceStub(self._opened())

    @cached_property
    def quotas(self) -> quota_pb2_grpc.QuotaServiceAsyncStub:
        """Quotas and projects."""
        return quota_pb2_grpc.QuotaServiceStub(self._opened())

    @cached_property
    def secrets(self) -> secret_pb2_grpc.SecretServiceAsyncStub:
        """Secrets."""
        return secret_pb2_grpc.SecretServiceStub(self._opened())

    @cached_property
    def audit(self) -> audit_pb2_grpc.AuditServiceAsyncStub:
        """The audit log."""
        return audit_pb2_grpc.AuditServiceStub(self._opened())

    async def close(self, grace: float | None = None) -> None:
        """Close the channel for good; what is under way may take `grace` seconds."""
        self._closed = True
        if self._channel is not None:
            await self._channel.close(grace)

    def _opened(self) -> grpc.aio.Channel:
        if self._channel is None:
            if self._closed:
                raise MeshUnavailable("the connection was closed before the request was sent")
            self._channel = _make_channel(self._target)
        return self._channel


def _make_channel(target: DialTarget) -> grpc.aio.Channel:
    """Make a channel; it connects at its first RPC and again whenever it broke."""
    options = (*_OPTIONS, ("grpc.enable_http_proxy", int(target.proxied)))
    if target.secure:
        return grpc.aio.secure_channel(target.name, grpc.ssl_channel_credentials(target.certificates), options=options)
    return grpc.aio.insecure_channel(target.name, options=options)


def make_metadata(bearer_token: str | None) -> Metadata:
    """Return the metadata of every RPC."""
    return (("authorization", f"Bearer {bearer_token}"),) if bearer_token else ()


def may_repeat(request_type: str, error: SandmeshError) -> bool:
    """Return whether a request may be retried: its method is idempotent and the failure may pass."""
    return METHODS[request_type].idempotent and isinstance(error, _PASSING)
