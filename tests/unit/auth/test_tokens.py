"""Tokens in a real store: made, shown, ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from sandmesh.api.token.v1 import token_pb2 as pb
from sandmesh.errors import AlreadyExists, InvalidArgument, PermissionDenied, TokenNotFound, Unauthenticated
from sandmeshd.auth.principal import Principal, acting_for
from sandmeshd.auth.servicer import TokenServicer
from sandmeshd.auth.token_records import TokenRecords
from sandmeshd.store import Store, StoreSettings, open_store

CONTEXT: Any = None  # the servicer asks nothing of it


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    """Run the embedded store."""
    settings = StoreSettings(mesh_id="m", directory=tmp_path / "data", socket=tmp_path / "run" / "s")
    async with open_store(settings) as opened:
        yield opened


@pytest.fixture
def tokens(store: Store) -> TokenServicer:
    """Serve tokens of that store."""
    return TokenServicer(TokenRecords(store))


async def create(tokens: TokenServicer, name: str, user: str = "ada", ttl_ms: int = 0) -> pb.CreateTokenResponse:
    scope = pb.SCOPE_USER if user else pb.SCOPE_ADMIN
    ttl = Duration(seconds=ttl_ms // 1000, nanos=ttl_ms % 1000 * 1_000_000) if ttl_ms else None
    return await tokens.CreateToken(pb.CreateTokenRequest(name=name, scope=scope, user_id=user, ttl=ttl), CONTEXT)


async def check(tokens: TokenServicer, secret: str) -> pb.Token:
    return (await tokens.CheckToken(pb.CheckTokenRequest(secret=secret), CONTEXT)).token


async def how_refused(tokens: TokenServicer, secret: str) -> str:
    with pytest.raises(Unauthenticated) as caught:
        await check(tokens, secret)
    return caught.value.facts["token"]


async def names(tokens: TokenServicer, everything: bool = False) -> list[str]:
    answer = await tokens.ListTokens(pb.ListTokensRequest(include_ended=everything), CONTEXT)
    return [token.name for token in answer.tokens]


async def revoke(tokens: TokenServicer, token_id: str) -> pb.Token:
    return (await tokens.RevokeToken(pb.RevokeTokenRequest(token_id=token_id), CONTEXT)).token


async def test_a_secret_says_whose_it_is(tokens: TokenServicer) -> None:
    made = await create(tokens, "laptop")
    assert made.secret.startswith(f"smesh_{made.token.token_id}_")
    found = await check(tokens, made.secret)
    assert (found.name, found.user_id, found.scope) == ("laptop", "ada", pb.SCOPE_USER)


async def test_only_a_users_token_is_allowed_private_networks(tokens: TokenServicer) -> None:
    request = pb.CreateTokenRequest(name="lab", scope=pb.SCOPE_USER, user_id="ada", private_network=True)
    made = await tokens.CreateToken(request, CONTEXT)
    assert (await check(tokens, made.secret)).private_network
    assert not (await check(tokens, (await create(tokens, "laptop")).secret)).private_network
    request = pb.CreateTokenRequest(name="ops", scope=pb.SCOPE_ADMIN, private_network=True)
    with pytest.raises(InvalidArgument, match="private_network is for the scopes USER"):
        await tokens.CreateToken(request, CONTEXT)


async def test_the_store_never_has_the_secret(tokens: TokenServicer, store: Store) -> None:
    made = await create(tokens, "laptop")
    kept = await store.hash("access", made.token.token_id)
    proof = made.secret.rpartition("_")[2].encode()
    assert kept["name"] == b"laptop"
    assert not any(proof in value for value in kept.values())


@pytest.mark.parametrize("shown", ["", "sesame", "smesh_", "smesh_abcdefghij234567_" + "a" * 52])
async def test_what_is_no_token_is_invalid(tokens: TokenServicer, shown: str) -> None:
    assert await how_refused(tokens, shown) == "invalid"


async def test_another_proof_for_a_known_id_is_invalid(tokens: TokenServicer) -> None:
    first, second = await create(tokens, "one"), await create(tokens, "two")
    mixed = first.secret.rpartition("_")[0] + "_" + second.secret.rpartition("_")[2]
    assert await how_refused(tokens, mixed) == "invalid"


async def test_a_revoked_token_says_so_and_stays_revoked(tokens: TokenServicer) -> None:
    made = await create(tokens, "laptop")
    first = await revoke(tokens, made.token.token_id)
    again = await revoke(tokens, made.token.token_id)
    assert first.revoke_time == again.revoke_time
    assert await how_refused(tokens, made.secret) == "revoked"
    assert (await names(tokens), await names(tokens, everything=True)) == ([], ["laptop"])


async def test_an_expired_token_says_so(tokens: TokenServicer) -> None:
    made = await create(tokens, "laptop", ttl_ms=5)
    async with asyncio.timeout(20):
        while await names(tokens):
            pass
    assert await how_refused(tokens, made.secret) == "expired"


async def test_a_name_is_free_again_when_its_token_ended(tokens: TokenServicer) -> None:
    made = await create(tokens, "laptop")
    with pytest.raises(AlreadyExists, match="laptop"):
        await create(tokens, "laptop")
    await revoke(tokens, made.token.token_id)
    await create(tokens, "laptop", ttl_ms=5)
    async with asyncio.timeout(10):
        while not await _is_free(tokens, "laptop"):
            pass
    assert await names(tokens) == ["laptop"]


async def _is_free(tokens: TokenServicer, name: str) -> bool:
    """Make a token of that name, if nothing of it is in force."""
    try:
        await create(tokens, name)
    except AlreadyExists:
        return False
    return True


async def test_use_is_noted_by_the_minute(tokens: TokenServicer) -> None:
    made = await create(tokens, "laptop")
    assert not (await check(tokens, made.secret)).HasField("last_use_time")
    used = (await check(tokens, made.secret)).last_use_time
    assert used.seconds % 60 == 0
    assert used.seconds > 0


async def test_who_waits_hears_of_a_revocation(tokens: TokenServicer) -> None:
    made = await create(tokens, "laptop")
    request = pb.AwaitRevocationRequest(after_revision=0, wait=Duration(seconds=20))
    waiting = asyncio.create_task(tokens.AwaitRevocation(request, CONTEXT))
    await revoke(tokens, made.token.token_id)
    async with asyncio.timeout(10):
        answer = await waiting
    assert (answer.revision, list(answer.token_ids)) == (1, [made.token.token_id])
    late = await tokens.AwaitRevocation(pb.AwaitRevocationRequest(after_revision=1), CONTEXT)
    assert (late.revision, list(late.token_ids)) == (1, [])


async def test_what_does_not_fit_is_refused(tokens: TokenServicer) -> None:
    unfit = [
        pb.CreateTokenRequest(name="x", scope=pb.SCOPE_USER),
        pb.CreateTokenRequest(name="x", scope=pb.SCOPE_ADMIN, user_id="ada"),
        pb.CreateTokenRequest(name="x" * 64, scope=pb.SCOPE_ADMIN),
        pb.CreateTokenRequest(name="x", scope=pb.SCOPE_ADMIN, ttl=Duration()),
        pb.CreateTokenRequest(name="x", scope=pb.SCOPE_UNSPECIFIED),
        pb.CreateTokenRequest(name="x", scope=pb.SCOPE_ADMIN, project="research"),
        pb.CreateTokenRequest(name="x", scope=pb.SCOPE_PROJECT_ADMIN),
        pb.CreateTokenRequest(name="x", scope=pb.SCOPE_PROJECT_ADMIN, project="default", user_id="ada"),
        pb.CreateTokenRequest(name="x", scope=pb.SCOPE_PROJECT_ADMIN, project="one-that-never-was"),
    ]
    for request in unfit:
        with pytest.raises(InvalidArgument):
            await tokens.CreateToken(request, CONTEXT)
    with pytest.raises(TokenNotFound):
        await revoke(tokens, "abcdefghij234567")


async def test_a_user_manages_no_tokens(tokens: TokenServicer) -> None:
    with acting_for(Principal("user", "ada")):
        for refused in (create(tokens, "x"), names(tokens), revoke(tokens, "x")):
            with pytest.raises(PermissionDenied):
                await refused


async def test_a_scope_that_does_not_exist_is_refused_with_those_that_do(tokens: TokenServicer) -> None:
    request = pb.CreateTokenRequest(name="x", user_id="ada")
    request.ParseFromString(request.SerializeToString() + b"\x10\x63")
    with pytest.raises(InvalidArgument, match="scope is USER, ADMIN, READ_ONLY, SANDBOX, PROJECT_ADMIN"):
        await tokens.CreateToken(request, CONTEXT)
    assert await names(tokens) == []


async def assign(store: Store, user: str, project: str) -> None:
    await store.run("project_set", {"user": user, "project": project})


async def lead(tokens: TokenServicer, store: Store, *, private_network: bool = False) -> pb.CreateTokenResponse:
    """Create a token of the administrator of ada's project."""
    await assign(store, "ada", "research")
    request = pb.CreateTokenRequest(name="lead", scope=pb.SCOPE_PROJECT_ADMIN, project="research")
    request.private_network = private_network
    return await tokens.CreateToken(request, CONTEXT)


async def test_a_token_for_a_project_that_is_gone_is_refused_with_the_reason(
    tokens: TokenServicer, store: Store
) -> None:
    made = await lead(tokens, store)
    assert (await check(tokens, made.secret)).project == "research"
    await assign(store, "ada", "default")
    with pytest.raises(Unauthenticated, match="'lead' is for the project research, which is gone"):
        await check(tokens, made.secret)
    await assign(store, "bob", "research")
    assert (await check(tokens, made.secret)).project == "research"


async def test_an_administrator_of_a_project_manages_the_tokens_of_its_users_alone(
    tokens: TokenServicer, store: Store
) -> None:
    await lead(tokens, store)
    bobs = (await create(tokens, "bob's", "bob")).token
    with acting_for(Principal("user", project="research")):
        adas = (await create(tokens, "ada's")).token
        reader = pb.CreateTokenRequest(name="reader", scope=pb.SCOPE_READ_ONLY, user_id="ada")
        await tokens.CreateToken(reader, CONTEXT)
        assert await names(tokens) == ["ada's", "reader"]
        with pytest.raises(PermissionDenied, match="'bob' does not belong to"):
            await create(tokens, "one more of bob's", "bob")
        for request in (
            pb.CreateTokenRequest(name="x", scope=pb.SCOPE_ADMIN),
            pb.CreateTokenRequest(name="x", scope=pb.SCOPE_READ_ONLY),
            pb.CreateTokenRequest(name="x", scope=pb.SCOPE_PROJECT_ADMIN, project="research"),
            pb.CreateTokenRequest(name="x", scope=pb.SCOPE_USER, user_id="ada", private_network=True),
        ):
            with pytest.raises(PermissionDenied):
                await tokens.CreateToken(request, CONTEXT)
        await revoke(tokens, adas.token_id)
        with pytest.raises(TokenNotFound):
            await revoke(tokens, bobs.token_id)
    assert await names(tokens) == ["bob's", "lead", "reader"]


async def test_an_administrator_of_a_project_passes_on_private_networks_where_it_has_them(
    tokens: TokenServicer, store: Store
) -> None:
    assert (await lead(tokens, store, private_network=True)).token.private_network
    request = pb.CreateTokenRequest(name="lab", scope=pb.SCOPE_USER, user_id="ada", private_network=True)
    with acting_for(Principal("user", private_network=True, project="research")):
        assert (await tokens.CreateToken(request, CONTEXT)).token.private_network
