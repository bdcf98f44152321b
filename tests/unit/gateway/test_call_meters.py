"""Calls in flight, counted by gateways that divide a quota between them through a real store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sandmesh.api.quota.v1 import quota_pb2 as pb
from sandmesh.api.quota.v1 import quota_pb2_grpc
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import QuotaExceeded
from sandmeshd.gateway.routes.call_meters import CallQuotas, Meters
from sandmeshd.runtime.rpc.local_channel import local_channel
from sandmeshd.runtime.rpc.registrations import quota_service
from sandmeshd.store import Store, open_store
from sandmeshd.store.settings import StoreSettings
from sandmeshd.tenants.quotas import QuotaRecords
from sandmeshd.tenants.servicer import Context, QuotaServicer


class Counting(QuotaServicer):
    """The service of quotas, which counts what it is asked."""

    reports = 0

    async def ShareCalls(  # noqa: N802 - named as the RPC
        self, request: pb.ShareCallsRequest, context: Context
    ) -> pb.ShareCallsResponse:
        self.reports += 1
        return await super().ShareCalls(request, context)


class Shared:
    """A store that gateways share."""

    def __init__(self, store: Store) -> None:
        self.quotas = QuotaRecords(store)
        self.service = Counting(store, self._survey)

    async def _survey(self) -> None:
        pass

    async def gateway(self) -> CallQuotas:
        made = CallQuotas(quota_pb2_grpc.QuotaServiceStub(local_channel([quota_service(self.service)])))
        for sandbox_id, user in (("sb_ada", "ada"), ("sb_bob", "bob"), ("sb_nobody", "anonymous-1234")):
            sandbox = sandbox_pb2.Sandbox(sandbox_id=sandbox_id, session_key="key", user_id=user, project="default")
            made.assign(sandbox)
        await made.report()
        return made


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[Shared]:
    """A store that is shared by gateways."""
    settings = StoreSettings(mesh_id="m", directory=tmp_path / "data", socket=tmp_path / "run" / "s")
    async with open_store(settings) as store, asyncio.timeout(60):
        yield Shared(store)


async def outcomes(gateways: list[CallQuotas], count: int, sandbox_id: str = "sb_ada") -> list[Meters | BaseException]:
    calls = (gateways[number % len(gateways)].admit(sandbox_id) for number in range(count))
    return await asyncio.gather(*calls, return_exceptions=True)


def admitted(done: list[Meters | BaseException]) -> int:
    return sum(isinstance(one, tuple) for one in done)


def leave(meters: Meters | None) -> None:
    for meter in meters or ():
        meter.calls -= 1


async def test_200_calls_at_once_at_five_gateways_are_as_many_as_the_quota_allows(shared: Shared) -> None:
    await shared.quotas.set("caller", "ada", {"calls_in_flight": 10}, [])
    gateways = [await shared.gateway() for _ in range(5)]
    async with AsyncExitStack() as stack:
        for gateway in gateways:
            stack.callback(asyncio.create_task(gateway.report_forever()).cancel)
        done = await outcomes(gateways, 200)
        refused = [refusal for refusal in done if isinstance(refusal, QuotaExceeded)]
        assert (admitted(done), len(refused)) == (10, 190)
        facts = {"quota": "calls_in_flight", "of": "user", "name": "ada", "requested": "1", "limit": "10"}
        assert refused[-1].facts == facts | {"used": "10"}
        # Bob has no limit.
        assert admitted(await outcomes(gateways, 50, "sb_bob")) == 50


async def test_a_call_within_the_share_asks_nobody(shared: Shared) -> None:
    await shared.quotas.set("project", "default", {"calls_in_flight": 50}, [])
    gateway = await shared.gateway()
    held = [gateway.enter(f"sb_{('ada', 'bob', 'nobody')[number % 3]}") for number in range(50)]
    assert None not in held
    assert gateway.enter("sb_nobody") is None
    # One that runs already is counted, and not refused.
    assert gateway.enter("sb_ada", running=True) is not None
    for meters in held[:2]:
        leave(meters)
    assert gateway.enter("sb_bob") is not None
    assert shared.service.reports == 1


async def test_refusals_that_follow_one_another_ask_the_store_a_few_times_a_second(shared: Shared) -> None:
    await shared.quotas.set("caller", "ada", {"calls_in_flight": 0}, [])
    gateway = await shared.gateway()
    started = time.monotonic()
    for _ in range(200):
        with pytest.raises(QuotaExceeded, match="0 of 0 are in use and 1 requested; wait for one to end"):
            await gateway.admit("sb_ada")
    assert shared.service.reports <= 3 + (time.monotonic() - started) * 10


async def test_a_limit_that_is_set_later_counts_the_calls_that_are_there(shared: Shared) -> None:
    gateway = await shared.gateway()
    held = [gateway.enter("sb_ada") for _ in range(3)]
    await shared.quotas.set("caller", "ada", {"calls_in_flight": 2}, [])
    await gateway.report()
    with pytest.raises(QuotaExceeded, match=r"calls_in_flight of the user ada is reached: 3 of 2"):
        await gateway.admit("sb_ada")
    for meters in held[:2]:
        leave(meters)
    await gateway.admit("sb_ada")
    await shared.quotas.set("caller", "ada", {}, ["calls_in_flight"])
    await gateway.report()
    assert admitted(await outcomes([gateway], 5)) == 5


async def test_what_another_gateway_holds_and_does_not_use_is_waited_for(shared: Shared) -> None:
    await shared.quotas.set("caller", "ada", {"calls_in_flight": 4}, [])
    first = await shared.gateway()
    assert first.enter("sb_ada")
    second = await shared.gateway()
    reporting = asyncio.create_task(first.report_forever())
    assert admitted(await outcomes([second], 5)) == 3
    reporting.cancel()
