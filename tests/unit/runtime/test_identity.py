"""What services of a mesh prove to each other, over real gRPC."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest

from sandmesh.api.session.v1 import session_pb2 as pb
from sandmesh.api.session.v1 import session_pb2_grpc
from sandmesh.errors import InvalidArgument, Unauthenticated
from sandmesh.shared.wire_errors import translated
from sandmeshd.auth.channels import open_channel
from sandmeshd.auth.principal import SERVICE, Principal, acting_for, current_principal
from sandmeshd.auth.service_identity import KEY, Identities, identity_required, kept_secret, read_secret
from sandmeshd.runtime.addresses import check_private
from sandmeshd.runtime.rpc.interceptors import Context
from sandmeshd.runtime.rpc.server import ServiceRegistration, open_server

SECRET, OTHER = "s" * 32, "o" * 32
METHOD = "/sandmesh.api.session.v1.SessionService/GetSession"
ADA = Principal("user", "ada", "token")


async def say_caller(request: pb.GetSessionRequest, context: Context) -> pb.GetSessionResponse:
    caller = current_principal()
    return pb.GetSessionResponse(session=pb.Session(user_id=caller.user_id, session_id=caller.scope))


def registration() -> ServiceRegistration:
    """Return a service whose one method returns its principal."""
    name, _, method = METHOD.strip("/").partition("/")
    convert = (pb.GetSessionRequest.FromString, pb.GetSessionResponse.SerializeToString)
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        method: grpc.unary_unary_rpc_method_handler(say_caller, *convert)
    }
    handler = grpc.method_handlers_generic_handler(name, methods)
    return ServiceRegistration(name, lambda server: server.add_generic_rpc_handlers((handler,)))


@pytest.fixture
async def address(tmp_path: Path) -> AsyncGenerator[str]:
    """Serve it to services of the mesh only."""
    arounds = [identity_required(Identities(SECRET))]
    async with open_server([f"unix://{tmp_path}/s"], [registration()], arounds, grace=0) as listening:
        yield listening.addresses[0]


async def ask(address: str, identities: Identities | None, metadata: tuple[tuple[str, str], ...] = ()) -> pb.Session:
    async with open_channel(address, identities) as channel:
        stub = session_pb2_grpc.SessionServiceStub(channel)
        request = pb.GetSessionRequest(user_id="u", session_id="s")
        with translated():
            return (await stub.GetSession(request, metadata=metadata)).session


async def test_the_caller_goes_along_and_a_services_own_work_is_its_own(address: str) -> None:
    with acting_for(ADA):
        found = await ask(address, Identities(SECRET))
    assert (found.user_id, found.session_id) == ("ada", "user")
    assert (await ask(address, Identities(SECRET))).session_id == SERVICE.scope


async def test_a_proxy_of_the_environment_catches_no_request_between_services(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_grpc_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    arounds = [identity_required(Identities(SECRET))]
    async with open_server(["127.0.0.1:0"], [registration()], arounds, grace=0) as listening:
        assert (await ask(listening.addresses[0], Identities(SECRET))).session_id == SERVICE.scope


async def test_who_has_no_secret_or_another_is_refused_and_told_what_to_do(address: str) -> None:
    for identities in (None, Identities(OTHER)):
        with pytest.raises(Unauthenticated, match="--secret-file"):
            await ask(address, identities)


def forged(**changed: object) -> str:
    claims = {"aud": METHOD, "exp": time.time() + 30, "jti": "1", "scope": "admin", "user": "", "token": ""}
    claims |= {"private": False, "sandbox": "", "project": "", **changed}
    kept = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(kept, SECRET, "HS256")


async def test_what_is_expired_unbounded_or_for_another_method_is_refused(address: str) -> None:
    unfit = [forged(exp=time.time() - 60), forged(exp=None), forged(jti=None), forged(aud="/another/Method"), "x.y.z"]
    unsigned = jwt.encode({"aud": METHOD, "exp": time.time() + 30, "jti": "2", "scope": "admin"}, "", "none")
    for signed in (*unfit, unsigned):
        with pytest.raises(Unauthenticated, match="not valid"):
            await ask(address, None, ((KEY, signed),))
    # Nothing else is wrong with them.
    assert (await ask(address, None, ((KEY, forged()),))).session_id == "admin"


async def test_what_was_overheard_does_not_work_a_second_time(address: str) -> None:
    signed = Identities(SECRET).sign(METHOD, ADA)
    assert (await ask(address, None, ((KEY, signed),))).user_id == "ada"
    with pytest.raises(Unauthenticated, match="used before"):
        await ask(address, None, ((KEY, signed),))


async def test_a_changed_caller_does_not_fit_its_signature(address: str) -> None:
    head, _, signature = Identities(SECRET).sign(METHOD, ADA).split(".")
    other = Identities(OTHER).sign(METHOD, Principal("admin")).split(".")[1]
    with pytest.raises(Unauthenticated, match="not valid"):
        await ask(address, None, ((KEY, f"{head}.{other}.{signature}"),))


async def test_health_is_told_to_everybody(address: str) -> None:
    async with open_channel(address) as channel:
        check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert await check(b"") == b"\x08\x01"


def test_services_of_one_state_directory_share_a_secret_that_only_they_can_read(tmp_path: Path) -> None:
    first = kept_secret(tmp_path / "secret")
    assert kept_secret(tmp_path / "secret") == first
    assert len(first) == 64
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_a_shared_secret_that_was_cut_is_refused_and_never_used(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    whole = kept_secret(path)
    for cut in ("", whole[:10]):
        path.write_text(cut)
        with pytest.raises(InvalidArgument, match=f"cut to {len(cut)} characters: restore it"):
            kept_secret(path)


def test_a_secret_file_that_is_open_short_or_missing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    with pytest.raises(InvalidArgument, match="cannot be read"):
        read_secret(path)
    path.write_text("short")
    path.chmod(0o600)
    with pytest.raises(InvalidArgument, match="openssl rand"):
        read_secret(path)
    path.write_text(f"{SECRET}\n")
    assert read_secret(path) == SECRET
    path.chmod(0o644)
    with pytest.raises(InvalidArgument, match="chmod 600"):
        read_secret(path)


def test_a_service_beyond_loopback_needs_a_stated_secret() -> None:
    with pytest.raises(InvalidArgument, match="--secret-file"):
        check_private("10.0.0.1:80", has_secret=False)
    check_private("10.0.0.1:80", has_secret=True)
    for address in ("127.0.0.1:80", "localhost:80", "[::1]:80", "unix:///s"):
        check_private(address, has_secret=False)
