"""Boxes: how they get a sandbox, keep it and give it back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandmesh import BaseSandboxAsync, FilesystemSandboxAsync, Limits, NetworkGrant, SandboxAsync, SandboxType
from sandmesh import errors as e
from sandmesh._client.connection import acquire, release
from sandmesh._client.process_state import process
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.api.session.v1 import session_pb2
from sandmesh.sandbox.session.lease import renewal_pause

from .conftest import World
from .stand_in import StandIn

Connect = session_pb2.ConnectSessionRequest


def connections() -> int:
    loop = asyncio.get_running_loop()
    return sum(connection.loop is loop for connection in process().connections.values())


async def test_a_box_makes_a_sandbox_and_gives_it_back(world: World) -> None:
    async with SandboxAsync(base_url=world.address, sandbox_type="base") as box:
        assert box.sandbox_id == "sb_1"
        assert box.sandbox_type == "base"
        assert len(world.mesh.sessions) == 1
    assert world.mesh.sessions == {}
    await box.close()
    assert len(world.mesh.requests_of(session_pb2.ReleaseSessionRequest)) == 1
    assert connections() == 0


async def test_boxes_of_a_loop_share_a_connection_until_the_last_one_closes(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address) as one:
        async with BaseSandboxAsync(base_url=world.address) as two:
            await asyncio.gather(one.run_ipython_cell("1+1"), two.run_ipython_cell("1+1"))
            assert connections() == 1
        assert (await one.run_ipython_cell("1+1")).text == "2"
    assert world.mesh.streams == 1
    assert connections() == 0


async def test_what_is_wanted_arrives_as_it_was_said(world: World) -> None:
    box = BaseSandboxAsync(
        base_url=world.address,
        env={"A": "b"},
        limits=Limits(memory="1MiB", cpus=0.5, pids=9),
        labels={"team": "x"},
        network=["pypi.org", "*.example"],
        template="mine",
        ttl=90.5,
    )
    async with box:
        pass
    (request,) = world.mesh.requests_of(Connect)
    assert request.ttl.ToNanoseconds() == 90.5e9
    assert request.slots[0].spec == sandbox_pb2.SandboxSpec(
        template="mine",
        environment={"A": "b"},
        limits=sandbox_pb2.Limits(memory_bytes=1 << 20, cpu_millis=500, pids=9),
        labels={"team": "x"},
        network=sandbox_pb2.NetworkGrant(mode=sandbox_pb2.NETWORK_MODE_HOSTS, hosts=["pypi.org", "*.example"]),
    )


async def test_what_is_not_said_is_left_to_the_mesh(world: World) -> None:
    async with FilesystemSandboxAsync(base_url=world.address):
        pass
    (request,) = world.mesh.requests_of(Connect)
    assert not request.HasField("ttl")
    assert request.slots[0].spec == sandbox_pb2.SandboxSpec(template="filesystem")


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": "3"},
        {"timeout": True},
        {"timeout": float("inf")},
        {"ttl": -1},
        {"env": {"A=B": "c"}},
        {"env": {"A": 1}},
        {"env": ["A"]},
        {"labels": {"": "x"}},
        {"labels": {"a": "x" * 256}},
        {"limits": {"memory_bytes": 1}},
        {"limits": {"memory": 0}},
        {"limits": {"memory": "0MiB"}},
        {"limits": {"memory": "-1GiB"}},
        {"limits": {"memory": "512 sheep"}},
        {"limits": {"memory": 1.5}},
        {"limits": {"disk": True}},
        {"limits": {"cpus": 0}},
        {"limits": {"cpus": "half"}},
        {"limits": {"cpus": float("nan")}},
        {"limits": {"pids": 1 << 32}},
        {"limits": {"pids": 1.5}},
        {"limits": 5},
        {"network": "all"},
        {"network": []},
        {"network": [1]},
        {"network": NetworkGrant("none", ("a",))},
        {"network": {"hosts": ["a"]}},
        {"template": "x" * 256},
        {"sandbox_id": ""},
        {"sandbox_type": 3},
    ],
)
def test_a_value_that_does_not_fit_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(e.InvalidArgument):
        BaseSandboxAsync(**options)


@pytest.mark.parametrize(("size", "message"), [("512 sheep", "512MiB"), (0, "above 0"), (1.5, "whole number")])
def test_a_size_that_is_none_is_told_what_one_looks_like(size: Any, message: str) -> None:
    with pytest.raises(e.InvalidArgument, match=message):
        BaseSandboxAsync(limits={"memory": size})


async def test_sizes_are_bytes_or_texts_with_units(world: World) -> None:
    limits: dict[str, Any] = {"memory": "1.5GiB", "file_size": "2 MB", "disk": 4096, "cpus": 2}
    async with BaseSandboxAsync(base_url=world.address, limits=limits):
        pass
    (request,) = world.mesh.requests_of(Connect)
    assert request.slots[0].spec.limits == sandbox_pb2.Limits(
        memory_bytes=3 << 29, file_bytes=2_000_000, disk_bytes=4096, cpu_millis=2000
    )


def test_an_unknown_keyword_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        BaseSandboxAsync(colour="red")  # type: ignore[call-arg]


@pytest.mark.parametrize("network", ["none", "public", {"mode": "public"}, NetworkGrant("hosts", ("a",))])
def test_every_form_of_network_is_taken(network: Any) -> None:
    BaseSandboxAsync(network=network, sandbox_type=SandboxType.BASE)


async def test_attaching_leaves_the_sandbox_to_its_owner(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address, template="mine") as owner:
        async with BaseSandboxAsync(owner.sandbox_id, base_url=world.address) as guest:
            assert guest.sandbox_type == "mine"
            assert (await guest.run_ipython_cell("1+1")).text == "2"
        assert (await owner.run_ipython_cell("1+1")).text == "2"
        assert world.mesh.requests_of(session_pb2.ReleaseSessionRequest) == []


async def test_attaching_to_what_is_not_there_or_over_says_so(world: World) -> None:
    with pytest.raises(e.SandboxNotFound):
        await BaseSandboxAsync("sb_none", base_url=world.address).start()
    async with BaseSandboxAsync(base_url=world.address) as owner:
        (session,) = world.mesh.sessions.values()
        session.sandboxes["base"].state = sandbox_pb2.SANDBOX_STATE_LOST
        session.sandboxes["base"].state_reason = "its first process was killed"
        with pytest.raises(e.SandboxLost) as caught:
            await BaseSandboxAsync(owner.sandbox_id, base_url=world.address).start()
    assert caught.value.facts["detail"] == "its first process was killed"
    assert connections() == 0


async def test_a_box_that_is_not_open_says_what_to_do(world: World) -> None:
    box = BaseSandboxAsync(base_url=world.address)
    with pytest.raises(e.WrongState, match="start"):
        await box.run_ipython_cell("1")
    with pytest.raises(e.WrongState, match="start"):
        box.stream("run_ipython_cell", code="1")
    with pytest.raises(e.WrongState, match="start"):
        _ = box.sandbox_id
    async with box:
        assert box.is_open
    with pytest.raises(e.WrongState, match="closed"):
        await box.get_info()
    with pytest.raises(e.WrongState, match="closed"):
        await box.start()


async def test_a_box_of_another_loop_says_so(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address) as box:
        with pytest.raises(e.WrongState, match="event loop"):
            await asyncio.to_thread(asyncio.run, box.run_ipython_cell("1"))


async def test_tools_and_record_are_plain_json(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address, network="none") as box:
        tools = await box.list_tools()
        assert tools["generic"]["run_ipython_cell"]["json_schema"]["function"]["name"] == "run_ipython_cell"
        assert await box.list_tools("nothing") == {}
        info = await box.get_info()
    assert (info["sandbox_id"], info["state"], info["sandbox_type"]) == ("sb_1", "READY", "base")
    assert info["spec"]["network"] == {"mode": "none"}


async def test_an_open_box_renews_its_session(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address, ttl=0.3):
        await world.mesh.news.until(lambda: len(world.mesh.requests_of(session_pb2.KeepSessionRequest)) == 3)
    kept = world.mesh.requests_of(session_pb2.KeepSessionRequest)[0]
    (connected,) = world.mesh.requests_of(Connect)
    assert (kept.user_id, kept.session_id, kept.ttl) == (connected.user_id, connected.session_id, connected.ttl)


@pytest.mark.parametrize(
    ("lease", "ttl", "pause"),
    [
        ({"ttl": {"seconds": 3600}}, None, 300.0),
        ({"ttl": {"seconds": 60}}, None, 20.0),
        # As from a mesh of before: this machine's clock may be behind by hours.
        ({"expire_time": {"seconds": 4_000_000_000}}, None, 60.0),
        ({"expire_time": {"seconds": 1}}, None, 0.2),
        ({"ttl": {"seconds": 3600}}, 30.0, 10.0),
    ],
)
def test_a_lease_is_renewed_after_a_third_of_what_it_lasts(lease: Any, ttl: float | None, pause: float) -> None:
    held = sandbox_pb2.Sandbox(lease=sandbox_pb2.Lease(**lease))
    assert renewal_pause(session_pb2.Session(sandboxes={"main": held}), ttl) == pause


async def test_two_anonymous_boxes_never_share_a_session(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address), BaseSandboxAsync(base_url=world.address):
        assert len({user for user, _ in world.mesh.sessions}) == 2


@pytest.mark.parametrize(
    "refused",
    [
        e.PoolExhausted("full", {"limit": "1"}, retry_after=2.5),
        e.TemplateNotFound("no template x", {"known": "base"}),
        e.RuntimeUnavailable("no bwrap", {"fix": "install it"}),
        e.Unauthenticated("this mesh wants a bearer token"),
    ],
)
async def test_what_the_mesh_refuses_is_the_same_exception_here(world: World, refused: e.SandmeshError) -> None:
    world.mesh.refusals.append(refused)
    with pytest.raises(type(refused)) as caught:
        await BaseSandboxAsync(base_url=world.address).start()
    assert (caught.value.message, caught.value.facts) == (refused.message, refused.facts)
    assert caught.value.retry_after == refused.retry_after
    assert connections() == 0


async def test_a_request_that_may_be_repeated_is_sent_again_while_the_mesh_recovers(world: World) -> None:
    world.mesh.refusals += [e.Recovering("records are rebuilt", retry_after=0.01), e.StoreUnavailable("no store")]
    async with BaseSandboxAsync(base_url=world.address) as box:
        assert (await box.run_ipython_cell("1+1")).text == "2"
    first, second, third = world.mesh.requests_of(Connect)
    assert first == second == third


async def test_a_mesh_that_is_not_there_is_named_within_the_timeout(tmp_path: Any) -> None:
    address = f"unix://{tmp_path}/none"
    async with asyncio.timeout(30):
        with pytest.raises(e.MeshUnavailable, match="no mesh answers") as caught:
            await BaseSandboxAsync(base_url=address, timeout=0.3).start()
    assert caught.value.facts["address"] == address
    assert connections() == 0


async def test_a_deadline_that_passes_in_the_queue_is_an_exception(world: World) -> None:
    world.mesh.hold_connects = asyncio.Event()
    with pytest.raises(e.DeadlineExceeded):
        await BaseSandboxAsync(base_url=world.address, timeout=1).start()
    assert connections() == 0


async def test_a_start_that_is_cancelled_leaves_no_session(world: World) -> None:
    world.mesh.hold_connects = asyncio.Event()
    starting = asyncio.create_task(BaseSandboxAsync(base_url=world.address).start())
    await world.mesh.news.until(lambda: world.mesh.requests)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert world.mesh.sessions == {}
    assert connections() == 0


async def test_closing_when_the_mesh_is_gone_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    mesh = StandIn()
    async with mesh.serve() as address:
        box = await BaseSandboxAsync(base_url=address, timeout=2).start()
    await box.close()
    assert "could not be released" in caplog.text
    assert connections() == 0


async def test_the_token_goes_with_every_request(world: World) -> None:
    async with BaseSandboxAsync(base_url=world.address, bearer_token="secret") as box:  # noqa: S106 - no secret
        await box.run_ipython_cell("1+1")
    assert {found.get("authorization") for found in world.mesh.metadata} == {"Bearer secret"}
    assert len(world.mesh.metadata) == 3


async def test_a_connection_outlives_the_loop_that_left_it_open_and_is_then_forgotten(world: World) -> None:
    await asyncio.to_thread(asyncio.run, _leave_open(world.address))
    closed = [opened for opened in process().connections.values() if opened.loop.is_closed()]
    assert len(closed) == 1
    connection = await acquire(world.address, None, 1.0)
    assert [opened for opened in process().connections.values() if opened.loop.is_closed()] == []
    await release(connection)


async def _leave_open(address: str) -> None:
    await acquire(address, None, 1.0)
