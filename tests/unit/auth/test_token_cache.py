"""Tokens that a gateway checked lately, while its clock jumps."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from sandmesh.api.token.v1 import token_pb2 as pb
from sandmesh.api.token.v1 import token_pb2_grpc
from sandmesh.errors import Recovering, SandmeshError, StoreUnavailable, Unauthenticated
from sandmeshd.auth.token_cache import KnownTokens
from sandmeshd.runtime.rpc.interceptors import Context
from sandmeshd.runtime.rpc.local_channel import local_channel
from sandmeshd.runtime.rpc.server import ServiceRegistration

NOW, HOUR, MINUTE = 1_800_000_000.0, 3600.0, 60.0
NAME = pb.DESCRIPTOR.services_by_name["TokenService"].full_name
SECRET = "smesh_" + "a" * 16 + "_" + "b" * 52


METHOD = "CheckToken"


@dataclass
class Service:
    """Knows one token that ends in a minute, counts how often it is asked, and lacks its store at first."""

    asked: int = 0
    away: list[SandmeshError] = field(default_factory=list[SandmeshError])

    async def check(self, request: pb.CheckTokenRequest, context: Context) -> pb.CheckTokenResponse:
        self.asked += 1
        if self.away:
            raise self.away.pop()
        expires = Timestamp(seconds=int(NOW + MINUTE))
        return pb.CheckTokenResponse(token=pb.Token(scope=pb.SCOPE_USER, user_id="ada", expire_time=expires))

    def registration(self) -> ServiceRegistration:
        """Return it as a service of which this method is served alone."""
        convert = (pb.CheckTokenRequest.FromString, pb.CheckTokenResponse.SerializeToString)
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            METHOD: grpc.unary_unary_rpc_method_handler(self.check, *convert)
        }
        handler = grpc.method_handlers_generic_handler(NAME, methods)
        return ServiceRegistration(NAME, lambda server: server.add_generic_rpc_handlers((handler,)))


@dataclass
class Clock:
    """A clock that is set."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def service() -> Service:
    """Return the service of tokens."""
    return Service()


def known(service: Service, clock: Clock, keep_seconds: float) -> KnownTokens:
    stub = token_pb2_grpc.TokenServiceStub(local_channel([service.registration()]))
    return KnownTokens(stub, keep_seconds, 10.0, clock)


async def test_a_clock_that_was_set_back_keeps_no_token_longer_unchecked(service: Service) -> None:
    clock = Clock()
    tokens = known(service, clock, 0.0)
    await tokens.check(SECRET)
    clock.now -= HOUR
    assert tokens.known(SECRET) is None
    await tokens.check(SECRET)
    assert service.asked == 2


async def test_a_clock_that_was_set_forward_ends_a_token_that_has_an_end_and_back_restores_it(
    service: Service,
) -> None:
    clock = Clock()
    tokens = known(service, clock, HOUR)
    grant = await tokens.check(SECRET)
    clock.now += HOUR
    assert tokens.known(SECRET) is None
    with pytest.raises(Unauthenticated, match="has expired"):
        async with tokens.holding(await tokens.check(SECRET)):
            await asyncio.Event().wait()
    clock.now = NOW
    assert tokens.known(SECRET) is grant
    async with tokens.holding(grant):
        pass


async def test_a_token_is_checked_when_a_store_that_is_away_for_a_moment_is_back(service: Service) -> None:
    service.away = [Recovering("records are rebuilt"), StoreUnavailable("it does not answer")]
    grant = await known(service, Clock(), HOUR).check(SECRET)
    assert grant.principal.user_id == "ada"
    assert service.asked == 3
