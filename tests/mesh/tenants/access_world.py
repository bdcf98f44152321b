"""A mesh with users, what is theirs, and a way to send any public RPC as anybody."""

from __future__ import annotations

import asyncio
import hashlib
import pkgutil
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import sandmesh.api
from sandmesh.api.audit.v1 import audit_pb2
from sandmesh.api.call.v1 import call_pb2
from sandmesh.api.image.v1 import image_pb2
from sandmesh.api.options.v1 import options_pb2
from sandmesh.api.port.v1 import port_pb2
from sandmesh.api.quota.v1 import quota_pb2, quota_pb2_grpc
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.secret.v1 import secret_pb2
from sandmesh.api.session.v1 import session_pb2, session_pb2_grpc
from sandmesh.api.template.v1 import template_pb2
from sandmesh.api.token.v1 import token_pb2, token_pb2_grpc
from sandmesh.errors import from_detail
from sandmesh.shared.wire_errors import translated
from sandmeshd.auth.channels import open_channel
from tests.mesh.conftest import run_mesh

SECONDS = 20.0
ROOT = "sesame-of-the-root"


def public_methods() -> Iterator[MethodDescriptor]:
    """Yield every method that the gateway serves."""
    for module in pkgutil.walk_packages(sandmesh.api.__path__, "sandmesh.api."):
        if module.name.endswith("_pb2"):
            for service in import_module(module.name).DESCRIPTOR.services_by_name.values():
                yield from (method for method in service.methods if _is_public(method))


def _is_public(method: MethodDescriptor) -> bool:
    return bool(method.GetOptions().Extensions[options_pb2.visibility] == options_pb2.VISIBILITY_PUBLIC)


@dataclass(frozen=True)
class Owned:
    """One user's session with a sandbox, a call that runs in it, a snapshot of it, and a token."""

    user_id: str
    session_id: str
    sandbox_id: str
    fencing_token: int
    call_id: str
    token_id: str

    @property
    def snapshot_id(self) -> str:
        """The sandbox's snapshot."""
        return f"snap_{self.sandbox_id[3:]}"


@dataclass
class World:
    """Who is there; `secrets` has what each shows, by name."""

    channel: grpc.aio.Channel
    address: str
    secrets: dict[str, str] = field(default_factory=dict[str, str])
    http: str = ""
    """The URL of its HTTP listener."""

    def metadata(self, who: str) -> tuple[tuple[str, str], ...]:
        """Return what somebody sends along."""
        return (("authorization", f"Bearer {self.secrets[who]}"),) if who in self.secrets else ()

    async def send(self, method: MethodDescriptor, request: Message, who: str, seconds: float = SECONDS) -> Message:
        """Send a request as somebody and give the first answer; what it is refused with is raised."""
        with translated():
            answer: Message = await asyncio.wait_for(self._send(method, request, who), seconds)
        batch = getattr(answer, "batch", None)
        if batch is not None and batch.HasField("error"):
            raise from_detail(batch.error)
        return answer

    async def _send(self, method: MethodDescriptor, request: Message, who: str) -> Any:
        path = f"/{method.containing_service.full_name}/{method.name}"
        convert = (type(request).SerializeToString, GetMessageClass(method.output_type).FromString)
        metadata = self.metadata(who)
        if not method.server_streaming:
            return await self.channel.unary_unary(path, *convert)(request, metadata=metadata)
        stream: Any
        if method.client_streaming:
            stream = self.channel.stream_stream(path, *convert)(_kept_open(request), metadata=metadata)
        else:
            stream = self.channel.unary_stream(path, *convert)(request, metadata=metadata)
        try:
            return await anext(aiter(stream))
        finally:
            stream.cancel()

    async def token(self, name: str, user: str = "", ttl: Duration | None = None) -> token_pb2.CreateTokenResponse:
        """Make a token as the administrator, and let somebody of that name show it."""
        scope = token_pb2.SCOPE_USER if user else token_pb2.SCOPE_ADMIN
        request = token_pb2.CreateTokenRequest(name=name, scope=scope, user_id=user, ttl=ttl)
        stub = token_pb2_grpc.TokenServiceStub(self.channel)
        made = await stub.CreateToken(request, metadata=self.metadata("root"))
        self.secrets[name] = made.secret
        return made

    async def reader(self, name: str, user: str = "") -> None:
        """Create a token that only reads, what is a user's or what is everybody's."""
        request = token_pb2.CreateTokenRequest(name=name, scope=token_pb2.SCOPE_READ_ONLY, user_id=user)
        made = await token_pb2_grpc.TokenServiceStub(self.channel).CreateToken(request, metadata=self.metadata("root"))
        self.secrets[name] = made.secret

    async def guest(self, name: str, sandbox_id: str) -> None:
        """Create a token for one sandbox alone."""
        request = token_pb2.CreateTokenRequest(name=name, scope=token_pb2.SCOPE_SANDBOX, sandbox_id=sandbox_id)
        made = await token_pb2_grpc.TokenServiceStub(self.channel).CreateToken(request, metadata=self.metadata("root"))
        self.secrets[name] = made.secret

    async def lead(self, name: str, project: str, user: str) -> None:
        """Assign a user to a project, and create a token of that project's administrator."""
        quotas = quota_pb2_grpc.QuotaServiceStub(self.channel)
        assignment = quota_pb2.AssignProjectRequest(user_id=user, project=project)
        await quotas.AssignProject(assignment, metadata=self.metadata("root"))
        request = token_pb2.CreateTokenRequest(name=name, scope=token_pb2.SCOPE_PROJECT_ADMIN, project=project)
        made = await token_pb2_grpc.TokenServiceStub(self.channel).CreateToken(request, metadata=self.metadata("root"))
        self.secrets[name] = made.secret

    async def own(self, user: str) -> Owned:
        """Make what an administrator's request may name as a user's."""
        session_id = secrets.token_hex(4)
        setting = secret_pb2.SetSecretRequest(name="API_KEY", value="nothing-worth-knowing", hosts=["api.example.org"])
        storing = next(method for method in public_methods() if method.name == "SetSecret")
        await self.send(storing, setting, user)
        secret = sandbox_pb2.SandboxSecret(name="API_KEY", hosts=["api.example.org"])
        spec = sandbox_pb2.SandboxSpec(template="base", secrets={"API_KEY": secret}, environment={"OWN": "hers"})
        slot = session_pb2.SlotSpec(spec=spec)
        # Nobody renews it, and a busy machine takes its time for hundreds of requests.
        request = session_pb2.ConnectSessionRequest(session_id=session_id, slots=[slot], ttl=Duration(seconds=3600))
        stub = session_pb2_grpc.SessionServiceStub(self.channel)
        made = (await stub.ConnectSession(request, metadata=self.metadata(user))).session
        sandbox = made.sandboxes["base"]
        first = begin(sandbox.sandbox_id)
        run = next(method for method in public_methods() if method.name == "RunCall")
        await self.send(run, call_pb2.RunCallRequest(start=first.start), user)
        token = await self.token(f"spare-{session_id}", user)
        fencing = sandbox.lease.fencing_token
        owned = Owned(user, session_id, sandbox.sandbox_id, fencing, first.call_id, token.token.token_id)
        saving = next(method for method in public_methods() if method.name == "CreateSnapshot")
        await self.send(saving, REQUESTS["SandboxService.CreateSnapshot"](owned), user)
        exposing = next(method for method in public_methods() if method.name == "ExposePort")
        await self.send(exposing, REQUESTS["PortService.ExposePort"](owned), user)
        return owned


def begin(sandbox_id: str) -> call_pb2.CallFrame:
    """Start a call that goes on printing, and takes input."""
    call_id = secrets.token_hex(8)
    arguments = b'{"command": "while echo on; do sleep 0.2; done"}'
    start = call_pb2.CallStart(sandbox_id=sandbox_id, call_id=call_id, tool="run_shell_command", arguments=arguments)
    start.takes_input = True
    return call_pb2.CallFrame(call_id=call_id, start=start)


async def _kept_open(request: Message) -> AsyncIterator[Message]:
    yield request
    await asyncio.Event().wait()


@asynccontextmanager
async def open_world(**changed: object) -> AsyncGenerator[World]:
    """Run a mesh that asks for tokens, with ada, bob and two administrators."""
    settings = {"listen": ("127.0.0.1:0",), "require_token": True, "bearer_token": ROOT, **changed}
    async with run_mesh(**settings) as mesh, open_channel(mesh.addresses[1]) as channel:
        world = World(
            channel,
            f"grpc://{mesh.addresses[1]}",
            {"root": "sesame-of-the-root", "a stranger": "smesh_" + "a" * 16 + "_" + "b" * 52},
            next(iter(mesh.http.addresses), ""),
        )
        await world.token("ada", "ada")
        await world.token("bob", "bob")
        await world.token("an administrator")
        await world.reader("a reader of ada's", "ada")
        await world.reader("a reader")
        await world.token("one whose token expired", "ada", Duration(nanos=1_000_000))
        gone = await world.token("one whose token was revoked", "ada")
        stub = token_pb2_grpc.TokenServiceStub(channel)
        request = token_pb2.RevokeTokenRequest(token_id=gone.token.token_id)
        await stub.RevokeToken(request, metadata=world.metadata("root"))
        yield world


Make = Callable[[Owned], Message]

REQUESTS: dict[str, Make] = {
    "CallService.Multiplex": lambda own: call_pb2.MultiplexRequest(frames=[begin(own.sandbox_id)]),
    "CallService.RunCall": lambda own: call_pb2.RunCallRequest(start=begin(own.sandbox_id).start),
    "CallService.OpenCall": lambda own: call_pb2.OpenCallRequest(frame=begin(own.sandbox_id)),
    "CallService.AttachCall": lambda own: call_pb2.AttachCallRequest(
        attach=call_pb2.Attach(sandbox_id=own.sandbox_id, call_id=own.call_id)
    ),
    "CallService.SendInput": lambda own: call_pb2.SendInputRequest(
        sandbox_id=own.sandbox_id, call_id=own.call_id, input=call_pb2.Input(sequence=1, data=b"x")
    ),
    "CallService.SignalCall": lambda own: call_pb2.SignalCallRequest(
        sandbox_id=own.sandbox_id, call_id=own.call_id, signal=call_pb2.Signal(number=15)
    ),
    "CallService.ResizeCall": lambda own: call_pb2.ResizeCallRequest(
        sandbox_id=own.sandbox_id, call_id=own.call_id, resize=call_pb2.Resize(rows=24, columns=80)
    ),
    "CallService.CancelCall": lambda own: call_pb2.CancelCallRequest(sandbox_id=own.sandbox_id, call_id=own.call_id),
    "CallService.ListTools": lambda own: call_pb2.ListToolsRequest(sandbox_id=own.sandbox_id),
    "SandboxService.RenewLease": lambda own: sandbox_pb2.RenewLeaseRequest(
        sandbox_id=own.sandbox_id, fencing_token=own.fencing_token
    ),
    "SandboxService.ReleaseSandbox": lambda own: sandbox_pb2.ReleaseSandboxRequest(
        sandbox_id=own.sandbox_id, fencing_token=own.fencing_token
    ),
    "SandboxService.GetSandbox": lambda own: sandbox_pb2.GetSandboxRequest(sandbox_id=own.sandbox_id),
    "SandboxService.GetSandboxLogs": lambda own: sandbox_pb2.GetSandboxLogsRequest(sandbox_id=own.sandbox_id),
    "SandboxService.ListTemplates": lambda _: sandbox_pb2.ListTemplatesRequest(),
    "SandboxService.GetNetwork": lambda own: sandbox_pb2.GetNetworkRequest(sandbox_id=own.sandbox_id),
    "SandboxService.ChangeNetwork": lambda own: sandbox_pb2.ChangeNetworkRequest(
        sandbox_id=own.sandbox_id, allow=["example.org:8443"]
    ),
    "SandboxService.PauseSandbox": lambda own: sandbox_pb2.PauseSandboxRequest(
        sandbox_id=own.sandbox_id, fencing_token=own.fencing_token
    ),
    "SandboxService.ResumeSandbox": lambda own: sandbox_pb2.ResumeSandboxRequest(
        sandbox_id=own.sandbox_id, fencing_token=own.fencing_token
    ),
    "SandboxService.CreateSnapshot": lambda own: sandbox_pb2.CreateSnapshotRequest(
        sandbox_id=own.sandbox_id, fencing_token=own.fencing_token, snapshot_id=own.snapshot_id
    ),
    "SandboxService.ListSnapshots": lambda own: sandbox_pb2.ListSnapshotsRequest(),
    "SandboxService.DeleteSnapshot": lambda own: sandbox_pb2.DeleteSnapshotRequest(snapshot_id=own.snapshot_id),
    "SandboxService.ListEvents": lambda own: sandbox_pb2.ListEventsRequest(sandbox_id=own.sandbox_id),
    "SandboxService.WatchSandboxes": lambda own: sandbox_pb2.WatchSandboxesRequest(
        sandbox_id=own.sandbox_id, after_event_id="0-0"
    ),
    "SandboxService.GetMeshHealth": lambda own: sandbox_pb2.GetMeshHealthRequest(),
    "SandboxService.SweepMesh": lambda own: sandbox_pb2.SweepMeshRequest(dry_run=True),
    "PortService.ExposePort": lambda own: port_pb2.ExposePortRequest(sandbox_id=own.sandbox_id, port=8080),
    "PortService.ListExposedPorts": lambda own: port_pb2.ListExposedPortsRequest(sandbox_id=own.sandbox_id),
    "ImageService.UploadBuildContext": lambda own: image_pb2.UploadBuildContextRequest(
        digest=f"sha256:{hashlib.sha256(b'x').hexdigest()}", size=1, data=b"x"
    ),
    "ImageService.BuildImage": lambda own: image_pb2.BuildImageRequest(dockerfile=b"FROM scratch"),
    "PortService.RevokePort": lambda own: port_pb2.RevokePortRequest(sandbox_id=own.sandbox_id, exposure_id="none"),
    "AuditService.ListAudit": lambda own: audit_pb2.ListAuditRequest(),
    "QuotaService.SetQuota": lambda own: quota_pb2.SetQuotaRequest(
        user_id=own.user_id, limits=quota_pb2.QuotaLimits(sandboxes=1000)
    ),
    "QuotaService.ListQuotas": lambda own: quota_pb2.ListQuotasRequest(),
    "QuotaService.AssignProject": lambda own: quota_pb2.AssignProjectRequest(user_id=own.user_id, project="research"),
    "QuotaService.ListUsage": lambda own: quota_pb2.ListUsageRequest(sandbox_id=own.sandbox_id),
    "SecretService.SetSecret": lambda own: secret_pb2.SetSecretRequest(
        name="API_KEY", value="nothing-worth-knowing", hosts=["api.example.org"], user_id=own.user_id
    ),
    "SecretService.ListSecrets": lambda own: secret_pb2.ListSecretsRequest(),
    "SecretService.DeleteSecret": lambda own: secret_pb2.DeleteSecretRequest(name="API_KEY", user_id=own.user_id),
    "SecretService.SealSecret": lambda own: secret_pb2.SealSecretRequest(
        value="nothing-worth-knowing", hosts=["api.example.org"]
    ),
    "SecretService.ChangeSandboxSecret": lambda own: secret_pb2.ChangeSandboxSecretRequest(
        sandbox_id=own.sandbox_id, variable="API_KEY", value="nothing-worth-knowing"
    ),
    "SandboxService.ListSandboxes": lambda own: sandbox_pb2.ListSandboxesRequest(page_size=1000),
    "SandboxService.GetCapacity": lambda own: sandbox_pb2.GetCapacityRequest(),
    "SessionService.ConnectSession": lambda own: session_pb2.ConnectSessionRequest(
        user_id=own.user_id, session_id=own.session_id
    ),
    "SessionService.GetSession": lambda own: session_pb2.GetSessionRequest(
        user_id=own.user_id, session_id=own.session_id
    ),
    "SessionService.ListSessions": lambda own: session_pb2.ListSessionsRequest(user_id=own.user_id),
    "SessionService.KeepSession": lambda own: session_pb2.KeepSessionRequest(
        user_id=own.user_id, session_id=own.session_id
    ),
    "SessionService.ReleaseSession": lambda own: session_pb2.ReleaseSessionRequest(
        user_id=own.user_id, session_id=own.session_id
    ),
    "TemplateService.RegisterTemplate": lambda own: template_pb2.RegisterTemplateRequest(
        definition=template_pb2.TemplateDefinition(name="registered")
    ),
    "TokenService.GetPrincipal": lambda _: token_pb2.GetPrincipalRequest(),
    "TokenService.CreateToken": lambda own: token_pb2.CreateTokenRequest(
        name=secrets.token_hex(4), scope=token_pb2.SCOPE_ADMIN
    ),
    "TokenService.ListTokens": lambda own: token_pb2.ListTokensRequest(),
    "TokenService.RevokeToken": lambda own: token_pb2.RevokeTokenRequest(token_id=own.token_id),
}
"""A request for every public method that names what somebody owns."""
