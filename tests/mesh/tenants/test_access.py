"""Every public RPC, tried by everybody who may not and by those who may."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from sandmesh.api.options.v1 import options_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2
from sandmesh.errors import (
    CapabilityMissing,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    SandboxNotFound,
    SandmeshError,
    SnapshotNotFound,
    TokenNotFound,
    Unauthenticated,
)
from tests.mesh.tenants.access_world import REQUESTS, SECONDS, Owned, World, open_world, public_methods

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEAD, OTHER_LEAD = "research's administrator", "sales' administrator"
FOR_ADMINISTRATORS = (options_pb2.ACCESS_ADMIN, options_pb2.ACCESS_PROJECT)
# What a project's administrator may not do even with what is the project's.
BEYOND_A_PROJECT = ("CreateToken", "SealSecret")
OUTSIDERS = {
    "nobody": "missing",
    "a stranger": "invalid",
    "one whose token expired": "expired",
    "one whose token was revoked": "revoked",
}

ENDING = (
    "ReleaseSandbox",
    "ReleaseSession",
    "CancelCall",
    "SignalCall",
    "RevokeToken",
    "DeleteSnapshot",
    "DeleteSecret",
)
LISTING = ("ListSandboxes", "ListEvents", "ListSnapshots", "ListSecrets", "SealSecret")
# Says who the caller is.
SAYS_WHO = "GetPrincipal"
LISTING_PROJECTS = ("ListTokens", "ListQuotas", "ListUsage", "ListAudit")
NAMING_USERS = ("SetSecret", "DeleteSecret")
SILENT_SECONDS = 1.0
# What owners are told in place of an answer, once they got that far.
REFUSED_LATER = {"ResizeCall": "no terminal"}
SHOWING = (
    "ListEvents",
    "WatchSandboxes",
    "GetSandbox",
    "ListSandboxes",
    "GetSession",
    "ListSessions",
    "ConnectSession",
    "KeepSession",
    "CreateSnapshot",
    "ListSnapshots",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Run one mesh for all of them."""
    async with open_world() as opened:
        await opened.lead(LEAD, "research", "ada")
        await opened.lead(OTHER_LEAD, "sales", "bob")
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def adas(world: World) -> Owned:
    """Return what is ada's, which others try to get at."""
    return await world.own("ada")


def short(method: MethodDescriptor) -> str:
    return f"{method.containing_service.name}.{method.name}"


def access(method: MethodDescriptor) -> Any:
    return method.GetOptions().Extensions[options_pb2.access]


every_method = pytest.mark.parametrize("method", list(public_methods()), ids=short)


@every_method
async def test_every_public_method_says_whom_it_serves_and_is_tried_here(method: MethodDescriptor) -> None:
    assert access(method) != options_pb2.ACCESS_UNSPECIFIED
    assert short(method) in REQUESTS, "say in access_world.REQUESTS how the method names what somebody owns"


@every_method
@pytest.mark.parametrize("who", OUTSIDERS)
async def test_nobody_comes_in_without_a_token_in_force(
    world: World, adas: Owned, method: MethodDescriptor, who: str
) -> None:
    with pytest.raises(Unauthenticated) as caught:
        await world.send(method, REQUESTS[short(method)](adas), who)
    assert caught.value.facts["token"] == OUTSIDERS[who]


async def refusal(world: World, method: MethodDescriptor, adas: Owned, who: str) -> SandmeshError | None:
    seconds = SILENT_SECONDS if method.name == "WatchSandboxes" else SECONDS
    try:
        answer: Any = await world.send(method, REQUESTS[short(method)](adas), who, seconds)
    except (NotFound, PermissionDenied) as error:
        return error
    except TimeoutError:
        assert method.name == "WatchSandboxes", "only a watch that has nothing to tell may stay silent"
        return None
    assert method.name in (*LISTING, *LISTING_PROJECTS) or access(method) == options_pb2.ACCESS_ANYONE
    if method.name == "ListAudit":
        # What bob tried with ada's sandbox is in the audit of bob's project.
        assert {entry.user_id for entry in answer.entries} <= {"", "bob"}
    else:
        assert not {adas.sandbox_id, adas.token_id, "research", '"ada"'} & set(re.findall(r'[\w-]+|"\w+"', str(answer)))
    return None


others = pytest.mark.parametrize("who", ["bob", OTHER_LEAD])


@every_method
@others
async def test_another_user_and_another_projects_administrator_get_at_nothing_of_adas(
    world: World, adas: Owned, method: MethodDescriptor, who: str
) -> None:
    error = await refusal(world, method, adas, who)
    names_a_user = method.containing_service.name == "SessionService" or method.name in NAMING_USERS
    closed = (options_pb2.ACCESS_ADMIN,) if who == OTHER_LEAD else FOR_ADMINISTRATORS
    refused = who == OTHER_LEAD and method.name in BEYOND_A_PROJECT
    if access(method) in closed or names_a_user or refused:
        assert isinstance(error, PermissionDenied)
    elif error is not None:
        assert isinstance(error, SandboxNotFound | SnapshotNotFound | TokenNotFound)


@every_method
@others
async def test_to_others_a_sandbox_of_adas_is_as_one_that_never_was(
    world: World, adas: Owned, method: MethodDescriptor, who: str
) -> None:
    nothing = Owned("nobody", "none", "sb_" + "a" * 26, 1, adas.call_id, adas.token_id)
    hers, none = await refusal(world, method, adas, who), await refusal(world, method, nothing, who)
    assert type(hers) is type(none)
    if hers is not None and none is not None:
        messages = [
            error.message.replace(of.sandbox_id[3:], "").replace(f"'{of.user_id}'", "")
            for error, of in ((hers, adas), (none, nothing))
        ]
        assert messages[0] == messages[1]


@every_method
async def test_the_owner_and_administrators_are_served(world: World, adas: Owned, method: MethodDescriptor) -> None:
    for who in ("ada", LEAD, "an administrator", "root"):
        owned = await world.own("ada") if method.name in ENDING else adas
        request = REQUESTS[short(method)](owned)
        closed = {"ada": FOR_ADMINISTRATORS, LEAD: (options_pb2.ACCESS_ADMIN,)}.get(who, ())
        if access(method) in closed or (who == LEAD and method.name in BEYOND_A_PROJECT):
            with pytest.raises(PermissionDenied):
                await world.send(method, request, who)
            continue
        try:
            answer = await world.send(method, request, who)
        except (InvalidArgument, CapabilityMissing) as error:
            assert REFUSED_LATER[method.name] in error.message  # noqa: PT017 - whether it is refused is the method's
            continue
        if method.name in SHOWING:
            assert owned.sandbox_id in str(answer)


@every_method
@pytest.mark.parametrize("who", ["a reader of ada's", "a reader"])
async def test_a_read_only_token_reads_and_changes_nothing(
    world: World, adas: Owned, method: MethodDescriptor, who: str
) -> None:
    request = REQUESTS[short(method)](adas)
    reads = method.GetOptions().idempotency_level == descriptor_pb2.MethodOptions.NO_SIDE_EFFECTS
    closed = who != "a reader" and access(method) in FOR_ADMINISTRATORS
    if closed or not reads:
        with pytest.raises(PermissionDenied, match="for administrators" if closed else "read-only"):
            await world.send(method, request, who)
        return
    answer = await world.send(method, request, who)
    if method.name in SHOWING:
        assert adas.sandbox_id in str(answer)
    assert not list(secret_fields(answer)), "what can be used is shown only to those who may use it"
    assert not re.search(r"/p/[a-z2-7]{30}|smesh_[a-z2-7]{16}_|e2b_[0-9a-f]{40}", str(answer))


def secret_fields(message: Message) -> Iterator[str]:
    """Yield the names of the fields that are set and marked as secret, wherever in a message they are."""
    for field, value in message.ListFields():
        if field.GetOptions().Extensions[options_pb2.secret]:
            yield field.full_name
        elif isinstance(value, Message):
            yield from secret_fields(value)
        elif field.message_type is not None:
            for inner in value.values() if field.message_type.GetOptions().map_entry else value:
                if isinstance(inner, Message):
                    yield from secret_fields(inner)


async def test_what_readers_do_not_see_is_there_for_the_owner(world: World, adas: Owned) -> None:
    found: set[str] = set()
    for method in public_methods():
        if method.name in ("GetSandbox", "ListSandboxes", "GetSession", "ListSessions", "ListExposedPorts"):
            found |= set(secret_fields(await world.send(method, REQUESTS[short(method)](adas), "ada")))
    assert found == {"sandmesh.api.sandbox.v1.SandboxSpec.environment", "sandmesh.api.port.v1.ExposedPort.url"}


def names_a_sandbox(method: MethodDescriptor) -> bool:
    return method.containing_service.name == "CallService" or "sandbox_id" in method.input_type.fields_by_name


@every_method
async def test_a_token_for_a_sandbox_is_for_that_one_alone(world: World, adas: Owned, method: MethodDescriptor) -> None:
    hers = await world.own("ada") if method.name in ENDING else adas
    await world.guest(f"a guest of {hers.sandbox_id} {method.name}", hers.sandbox_id)
    who = f"a guest of {hers.sandbox_id} {method.name}"
    if method.name == SAYS_WHO:
        found: Any = await world.send(method, REQUESTS[short(method)](hers), who)
        assert (found.sandbox_id, found.user_id) == (hers.sandbox_id, "")
        return
    if access(method) in FOR_ADMINISTRATORS or not names_a_sandbox(method):
        with pytest.raises(PermissionDenied, match=r"for administrators|the token is only for the sandbox"):
            await world.send(method, REQUESTS[short(method)](hers), who)
        return
    try:
        answer: Any = await world.send(method, REQUESTS[short(method)](hers), who)
    except (InvalidArgument, CapabilityMissing) as error:
        assert REFUSED_LATER[method.name] in error.message  # noqa: PT017 - whether it is refused is the method's
    else:
        assert method.name not in SHOWING or hers.sandbox_id in str(answer)


@every_method
async def test_a_token_for_a_sandbox_gets_at_no_other_of_the_same_user(
    world: World, adas: Owned, method: MethodDescriptor
) -> None:
    if "a guest of another" not in world.secrets:
        await world.guest("a guest of another", (await world.own("ada")).sandbox_id)
    seconds = SILENT_SECONDS if method.name == "WatchSandboxes" else SECONDS
    try:
        answer: Any = await world.send(method, REQUESTS[short(method)](adas), "a guest of another", seconds)
    except (NotFound, PermissionDenied) as error:
        assert isinstance(error, SandboxNotFound if names_a_sandbox(method) else PermissionDenied) or (  # noqa: PT017
            access(method) in FOR_ADMINISTRATORS
        )
    except TimeoutError:
        assert method.name == "WatchSandboxes", "only a watch that has nothing to tell may stay silent"
    else:
        assert method.name in (*LISTING, SAYS_WHO)
        assert adas.sandbox_id not in str(answer)


async def test_a_token_for_a_sandbox_that_does_not_exist_is_not_made(world: World) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="there is no sandbox sb_none"):
        await world.guest("a guest of nobody", "sb_none")


async def test_nobody_begins_with_another_users_snapshot(world: World) -> None:
    owned = await world.own("ada")
    connect = next(method for method in public_methods() if method.name == "ConnectSession")

    async def begin(who: str) -> str:
        spec = sandbox_pb2.SandboxSpec(template="base", snapshot_id=owned.snapshot_id)
        slots = [session_pb2.SlotSpec(spec=spec)]
        request = session_pb2.ConnectSessionRequest(session_id="begins", slots=slots)
        made: Any = await world.send(connect, request, who)
        return str(made.session.sandboxes["base"].spec.snapshot_id)

    with pytest.raises(SnapshotNotFound):
        await begin("bob")
    assert await begin("ada") == owned.snapshot_id
