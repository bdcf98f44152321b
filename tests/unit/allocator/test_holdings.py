"""What quotas count beside claims: snapshots, exposed ports and calls in flight, whoever asks and how many at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from sandmesh.errors import QuotaExceeded
from sandmeshd.tenants.holdings import CountedSnapshot, Holdings
from sandmeshd.tenants.quotas import QuotaRecords
from tests.unit.allocator.conftest import Mesh
from tests.unit.allocator.test_quotas import quota_of
from tests.unit.store.waiting import commands


@pytest.fixture
async def opened(mesh: Mesh) -> AsyncIterator[Mesh]:
    """A mesh whose records are open."""
    async with mesh.allocator():
        yield mesh


def snapshot(number: int, size: int = 100, node: str = "one") -> CountedSnapshot:
    return CountedSnapshot(f"snap_{number}", node, "default", "ada", size)


def in_an_hour() -> int:
    return int((time.time() + 3600) * 1e6)


async def test_snapshots_that_end_at_once_are_never_more_than_the_quota_together(opened: Mesh) -> None:
    mesh = opened
    await QuotaRecords(mesh.store).set("project", "default", {"snapshot_bytes": 450}, [])
    holdings = Holdings(mesh.store)
    # Each is begun while there is room.
    assert await asyncio.gather(*(holdings.check_snapshots("default", "ada") for _ in range(20))) == [True] * 20
    kept = await asyncio.gather(*(holdings.keep_snapshot(snapshot(n)) for n in range(20)), return_exceptions=True)
    refused = [error for error in kept if isinstance(error, QuotaExceeded)]
    assert (kept.count(None), len(refused)) == (4, 16)
    assert refused[0].facts == {
        "quota": "snapshot_bytes", "of": "project", "name": "default", "used": "400", "requested": "100",
        "limit": "450",
    }  # fmt: skip
    assert (await quota_of(mesh, "default")).use.snapshot_bytes == 400
    await holdings.forget_snapshot(f"snap_{kept.index(None)}")
    await holdings.keep_snapshot(snapshot(99))


async def test_what_counts_as_snapshots_is_corrected_by_what_nodes_have(opened: Mesh) -> None:
    mesh = opened
    await QuotaRecords(mesh.store).set("caller", "ada", {"snapshot_bytes": 1000}, [])
    holdings = Holdings(mesh.store)
    for one in (snapshot(1), snapshot(2), snapshot(3, node="silent"), snapshot(4, node="removed")):
        await holdings.keep_snapshot(one)
    unknown = snapshot(5, 300)
    # What was taken within the minute may be younger than the list.
    await holdings.survey_snapshots([snapshot(1), unknown], ["one"], ["one", "silent"])
    assert (await quota_of(mesh, "ada")).use.snapshot_bytes == 600
    key = mesh.store.key("snapshots")
    for number in (2, 3):
        entry = (await commands(mesh.store).hget(key, f"snap_{number}")).decode()
        before = int(entry.partition('"at":')[2].partition(",")[0].partition("}")[0])
        await commands(mesh.store).hset(key, f"snap_{number}", entry.replace(str(before), str(before - 100)))
    await holdings.survey_snapshots([snapshot(1), unknown], ["one"], ["one", "silent"])
    assert (await quota_of(mesh, "ada")).use.snapshot_bytes == 500
    # One that a survey saw before it was kept still has to fit.
    await QuotaRecords(mesh.store).set("caller", "ada", {"snapshot_bytes": 450}, [])
    with pytest.raises(QuotaExceeded, match="200 of 450 are in use and 300 requested"):
        await holdings.keep_snapshot(unknown)


async def test_100_ports_exposed_at_once_are_as_many_as_the_quota_allows(mesh: Mesh) -> None:
    await QuotaRecords(mesh.store).set("caller", "ada", {"exposed_ports": 7}, [])
    holdings = Holdings(mesh.store)
    async with mesh.allocator(capacity=10) as allocator:
        boxes = [(await allocator.claim(f"s{n}", user="ada")).sandbox for n in range(4)]
        holds = [holdings.hold_port(boxes[n % 4].sandbox_id, f"exp{n}", in_an_hour()) for n in range(100)]
        done = await asyncio.gather(*holds, return_exceptions=True)
        refused = [error for error in done if isinstance(error, QuotaExceeded)]
        assert (done.count(None), len(refused)) == (7, 93)
        assert (refused[0].facts["quota"], refused[0].facts["used"]) == ("exposed_ports", "7")
        held = done.index(None)
        await holdings.release_port(boxes[held % 4].sandbox_id, f"exp{held}")
        await holdings.hold_port(boxes[0].sandbox_id, "another", in_an_hour())
        assert (await quota_of(mesh, "ada")).use.exposed_ports == 7
        assert (await quota_of(mesh, "default")).use.exposed_ports == 7
        # Another's are another's.
        other = (await allocator.claim("other", user="bob")).sandbox
        await holdings.hold_port(other.sandbox_id, "his", in_an_hour())


async def test_ports_count_until_they_end_or_their_sandbox_does(mesh: Mesh) -> None:
    await QuotaRecords(mesh.store).set("caller", "ada", {"exposed_ports": 2}, [])
    holdings = Holdings(mesh.store)
    async with mesh.allocator() as allocator:
        box = (await allocator.claim("one", user="ada")).sandbox
        await holdings.hold_port(box.sandbox_id, "over", int((time.time() - 1) * 1e6))
        await holdings.hold_port(box.sandbox_id, "one", in_an_hour())
        await holdings.hold_port(box.sandbox_id, "two", in_an_hour())
        with pytest.raises(QuotaExceeded, match=r"exposed_ports of the user ada is reached: 2 of 2"):
            await holdings.hold_port(box.sandbox_id, "three", in_an_hour())
        assert 0 < await commands(mesh.store).ttl(mesh.store.key("exposed", "caller", "ada")) <= 3600
        await allocator.release(box)
        again = (await allocator.claim("two", user="ada")).sandbox
        await holdings.hold_port(again.sandbox_id, "four", in_an_hour())
        assert (await quota_of(mesh, "ada")).use.exposed_ports == 1


async def test_gateways_never_get_more_calls_together_than_the_quota(opened: Mesh) -> None:
    mesh = opened
    holdings = Holdings(mesh.store)
    assert list(await holdings.share_calls("a", {})) == []
    await QuotaRecords(mesh.store).set("caller", "ada", {"calls_in_flight": 10}, [])
    [alone] = await holdings.share_calls("a", {})
    assert (alone.limit, alone.granted, alone.elsewhere) == (10, 10, 0)

    async def granted(gateway: str, calls: int, wanted: int = 0) -> int:
        [share] = await holdings.share_calls(gateway, {("caller", "ada"): (calls, wanted)})
        return share.granted

    # What the first holds is another's once it has reported.
    assert await granted("b", 0, 3) == 0
    assert await granted("a", 4) == 4
    assert await granted("b", 0, 3) == 3
    assert await granted("c", 0, 9) == 3
    assert (await quota_of(mesh, "ada")).use.calls_in_flight == 4
    assert await granted("a", 0) == 0
    assert await granted("c", 2, 9) == 7
    # Below what is in use: nothing ends, nothing begins.
    await QuotaRecords(mesh.store).set("caller", "ada", {"calls_in_flight": 2}, [])
    assert await granted("c", 7, 1) == 0
    assert await granted("b", 0, 1) == 0
    await holdings.share_calls("c", {}, leaving=True)
    assert await granted("b", 0, 1) == 1


async def test_a_gateway_that_ended_holds_no_calls_for_long(mesh: Mesh) -> None:
    await QuotaRecords(mesh.store).set("project", "default", {"calls_in_flight": 3}, [])
    holdings = Holdings(mesh.store)
    await holdings.share_calls("dead", {("project", "default"): (3, 0)})
    [share] = await holdings.share_calls("b", {("project", "default"): (0, 1)})
    assert (share.granted, share.elsewhere) == (0, 3)
    ago = (time.time() - 11) * 1e6
    await commands(mesh.store).zadd(mesh.store.key("gateways"), {"dead": ago})
    [share] = await holdings.share_calls("b", {("project", "default"): (0, 1)})
    assert (share.granted, share.elsewhere) == (3, 0)
