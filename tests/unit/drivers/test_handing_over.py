"""How a sandbox gets a new holder: its agent is told, and its record says so."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import LeaseLost, SandboxLost, SandboxNotFound
from sandmeshd.agentlink import connection, warm_links
from sandmeshd.agentlink.addresses import read_address, tls_endpoint
from sandmeshd.agentlink.connection import installing_token
from sandmeshd.agentlink.warm_links import WaitingLink, WarmLink
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, open_driver
from sandmeshd.drivers.conformance.inside import run
from sandmeshd.drivers.node.processes import end
from sandmeshd.drivers.node.records import MeshFolders, SpecRecord, hand_over, read_record
from sandmeshd.runtime.paths import MeshPaths
from tests.middlebox import Middlebox, middlebox

from .conftest import request_of

pytestmark = pytest.mark.usefixtures("prepared")

LONG_SECONDS = 120.0


async def test_what_fails_while_the_agent_is_told_is_no_lost_sandbox(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    async with open_driver(settings) as driver:
        made = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        with pytest.raises(OSError, match="no room"):
            async with installing_token(made, 7):
                raise OSError("no room")
        async with installing_token(made, 8):
            pass
        assert (await run(made, "echo in", fencing_token=8)).stdout == "in\n"


async def test_a_record_says_more_than_its_agent_knows_and_never_less(paths: MeshPaths) -> None:
    settings = BubblewrapSettings(paths=paths)
    folder, waiting = MeshFolders(paths).folder("one"), WaitingLink()
    async with open_driver(settings) as driver:
        await driver.create_sandbox(request_of(settings, "one"))
        record = read_record(folder)
        assert record is not None
        # As when the driver was killed between the two: nobody with a lower token is let in by either.
        SpecRecord(record.sandbox, 9).write(folder)
        with pytest.raises(LeaseLost):
            await hand_over(folder, pb.InstallTokenRequest(sandbox_id="one", fencing_token=8), waiting)
        await hand_over(
            folder, pb.InstallTokenRequest(sandbox_id="one", fencing_token=9, record_labels={"a": "b"}), waiting
        )
        kept = read_record(folder)
        assert kept is not None
        assert (kept.fencing_token, dict(kept.sandbox.record_labels)) == (9, {"a": "b"})


async def test_nothing_is_handed_over_where_nothing_is(paths: MeshPaths) -> None:
    request = pb.InstallTokenRequest(sandbox_id="one", fencing_token=1)
    with pytest.raises(SandboxNotFound):
        await hand_over(MeshFolders(paths).folder("one"), request, WaitingLink())


async def taken(waiting: WaitingLink, sandbox: pb.RuntimeSandbox) -> WarmLink:
    # A link that is open tells nobody, and one that is not open yet when it is taken is given up.
    for attempt in range(10):
        waiting.keep(sandbox)
        await asyncio.sleep(0.02 * 2**attempt)
        if (kept := waiting.take(sandbox.sandbox_id)) is not None:
            return kept
    raise AssertionError("no link was open in time")


async def test_who_waits_in_a_pool_is_told_its_token_on_a_link_that_was_open_before(paths: MeshPaths) -> None:
    settings, waiting = BubblewrapSettings(paths=paths), WaitingLink()
    async with open_driver(settings) as driver:
        made = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        kept = await taken(waiting, made)
        # Whoever would connect now finds nobody.
        MeshFolders(paths).folder("one").sockets.joinpath("agent.sock").rename(paths.runtime / "aside")
        async with installing_token(made, 7, kept.link):
            pass
        (paths.runtime / "aside").rename(MeshFolders(paths).folder("one").sockets / "agent.sock")
        assert (await run(made, "echo in", fencing_token=7)).stdout == "in\n"
        with pytest.raises(LeaseLost):
            await run(made, "echo in", fencing_token=6)


async def test_a_link_whose_agent_died_in_its_pool_is_given_to_nobody(paths: MeshPaths) -> None:
    settings, waiting = BubblewrapSettings(paths=paths), WaitingLink()
    async with open_driver(settings) as driver:
        made = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        (await taken(waiting, made)).link.close()
        waiting.keep(made)
        await end(MeshFolders(paths).folder("one"))
        with pytest.raises(SandboxLost):
            await hand_over(
                MeshFolders(paths).folder("one"), pb.InstallTokenRequest(sandbox_id="one", fencing_token=1), waiting
            )
        with pytest.raises(SandboxLost, match="ended"):
            await driver.install_token(pb.InstallTokenRequest(sandbox_id="one", fencing_token=1))


@asynccontextmanager
async def elsewhere(paths: MeshPaths) -> AsyncGenerator[tuple[pb.RuntimeSandbox, Middlebox]]:
    """Yield a sandbox whose agent is reached through a middlebox, and that."""
    settings = BubblewrapSettings(paths=paths)
    async with open_driver(settings) as driver:
        made = (await driver.create_sandbox(request_of(settings, "one"))).sandbox
        async with middlebox(MeshFolders(paths).folder("one").sockets / "agent.sock") as between:
            made.endpoint = between.endpoint
            yield made, between


async def test_an_agent_elsewhere_is_told_its_token_on_a_link_that_was_open_before(paths: MeshPaths) -> None:
    waiting = WaitingLink()
    async with elsewhere(paths) as (made, between):
        kept = await taken(waiting, made)
        before = between.accepted
        async with installing_token(made, 7, kept.link):
            pass
        assert between.accepted == before
        with pytest.raises(LeaseLost):
            async with installing_token(made, 6, (await taken(waiting, made)).link):
                pass


async def test_a_link_that_something_between_forgot_costs_a_claim_a_moment_and_no_failure(
    paths: MeshPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine is no reason for a failure here: what would be waited for in vain is far longer.
    monkeypatch.setattr(connection, "TIMEOUT_SECONDS", LONG_SECONDS)
    async with elsewhere(paths) as (made, between):
        kept = await taken(WaitingLink(), made)
        between.forget()
        assert kept.link.open
        # Less than what a link that does not answer may take: the claim did not wait for that.
        async with asyncio.timeout(LONG_SECONDS - 1), installing_token(made, 7, kept.link):
            pass
        assert not kept.link.open
        assert (await run(made, "echo in", fencing_token=7)).stdout == "in\n"


async def test_an_agent_whose_machine_went_away_behind_an_open_link_is_given_up_before_long(
    paths: MeshPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REDIAL_SECONDS", 0.2)
    monkeypatch.setattr(connection, "TIMEOUT_SECONDS", LONG_SECONDS)
    async with elsewhere(paths) as (made, between):
        kept = await taken(WaitingLink(), made)
        between.forget()
        # Nor does anything answer whoever comes anew.
        with socket.create_server(("127.0.0.1", 0)) as silent:
            made.endpoint = tls_endpoint("127.0.0.1", silent.getsockname()[1], read_address(made.endpoint).pin)
            async with asyncio.timeout(LONG_SECONDS - 1):
                with pytest.raises(SandboxLost, match="does not answer"):
                    async with installing_token(made, 7, kept.link):
                        pass
        made.endpoint = between.endpoint
        async with installing_token(made, 1):
            pass


async def test_a_link_that_breaks_while_its_agent_is_told_is_replaced(paths: MeshPaths) -> None:
    async with elsewhere(paths) as (made, between):
        kept = await taken(WaitingLink(), made)
        async with installing_token(made, 7, kept.link):
            between.cut()
        with pytest.raises(LeaseLost):
            async with installing_token(made, 6):
                pass


async def test_a_waiting_link_to_an_agent_elsewhere_that_broke_is_opened_again(
    paths: MeshPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_links, "FIRST_PAUSE", 0.05)
    waiting = WaitingLink()
    async with elsewhere(paths) as (made, between):
        waiting.keep(made)
        async with asyncio.timeout(20):
            for connections in (1, 2, 3):
                while between.accepted < connections:  # noqa: ASYNC110 - a link that is open tells nobody
                    await asyncio.sleep(0.02)
                between.cut()
        waiting.close()
        assert waiting.take("one") is None


async def test_a_link_through_a_clouds_gateway_is_not_kept_open() -> None:
    waiting = WaitingLink()
    waiting.keep(pb.RuntimeSandbox(sandbox_id="one", endpoint="wss://127.0.0.1:1/"))
    assert len(asyncio.all_tasks()) == 1
    assert waiting.take("one") is None


def test_a_record_is_the_last_that_was_written_whole(paths: MeshPaths) -> None:
    folder = MeshFolders(paths).folder("one")
    folder.root.mkdir(parents=True)
    assert read_record(folder) is None
    for token in (1, 2):
        SpecRecord(pb.RuntimeSandbox(sandbox_id="one"), token).write(folder)
    whole = folder.spec.read_bytes()
    for cut in range(1, len(whole.splitlines()[-1])):
        # As a full disk or a kill cuts it.
        folder.spec.write_bytes(whole + whole.splitlines(keepends=True)[-1][:cut])
        found = read_record(folder)
        assert found is not None
        assert found.fencing_token == 2
    SpecRecord(pb.RuntimeSandbox(sandbox_id="one"), 3).write(folder)
    found = read_record(folder)
    assert found is not None
    assert found.fencing_token == 3
