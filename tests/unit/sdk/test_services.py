"""SandboxService: the same ids give the same sandboxes."""

from __future__ import annotations

import asyncio

import pytest

from sandmesh import BaseSandbox, BaseSandboxAsync, FilesystemSandbox, SandboxService, SandboxType
from sandmesh import errors as e
from sandmesh.api.session.v1 import session_pb2

from .conftest import World


async def test_the_same_ids_give_the_same_sandboxes(world: World) -> None:
    service = SandboxService(base_url=world.address)
    await service.start()
    (one,) = await service.connect_async("s1", user_id="ann")
    assert isinstance(one, BaseSandboxAsync)
    assert (await one.run_ipython_cell("1+1")).text == "2"
    (again,) = await service.connect_async("s1", user_id="ann")
    assert again is one
    (other,) = await service.connect_async("s1", user_id="bob")
    assert other.sandbox_id != one.sandbox_id
    await service.stop()


async def test_another_service_gets_the_same_sandbox_and_stopping_releases_nothing(world: World) -> None:
    first = SandboxService(base_url=world.address)
    await first.start()
    (one,) = await first.connect_async("s1")
    await first.stop()
    assert not one.is_open
    second = SandboxService(base_url=world.address)
    await second.start()
    (two,) = await second.connect_async("s1")
    assert two.sandbox_id == one.sandbox_id
    assert await second.release_async("s1")
    assert not two.is_open
    assert world.mesh.sessions == {}
    await second.stop()


async def test_types_give_their_classes_in_order(threaded_world: World) -> None:
    service = SandboxService(base_url=threaded_world.address)
    await service.start()
    types = [SandboxType.FILESYSTEM, "base", "mine"]
    boxes = await asyncio.to_thread(service.connect, "s1", None, types)
    assert [type(box) for box in boxes] == [FilesystemSandbox, BaseSandbox, BaseSandbox]
    assert len(threaded_world.mesh.sessions) == 1
    base = boxes[1]
    assert isinstance(base, BaseSandbox)
    assert (await asyncio.to_thread(base.run_ipython_cell, "1+1")).text == "2"
    again = await asyncio.to_thread(service.connect, "s1", None, ["base"])
    assert again == [base]
    await asyncio.to_thread(base.close)
    (reopened,) = await asyncio.to_thread(service.connect, "s1", None, ["base"])
    assert reopened.sandbox_id == base.sandbox_id or reopened is not base
    assert await asyncio.to_thread(service.release, "s1")
    assert threaded_world.mesh.sessions == {}
    await service.stop()


async def test_a_closed_box_does_not_end_its_session(world: World) -> None:
    service = SandboxService(base_url=world.address)
    await service.start()
    (box,) = await service.connect_async("s1")
    await box.close()
    assert len(world.mesh.sessions) == 1
    (again,) = await service.connect_async("s1")
    assert again is not box
    assert again.is_open
    await service.stop()
    assert world.mesh.requests_of(session_pb2.ReleaseSessionRequest) == []


async def test_health_says_whether_the_mesh_answers(world: World, tmp_path: object) -> None:
    assert await SandboxService(base_url=world.address).health()
    gone = SandboxService(base_url=f"unix://{tmp_path}/none", timeout=0.2)
    assert not await gone.health()
    with pytest.raises(e.MeshUnavailable):
        await gone.start()


async def test_a_service_that_was_not_started_says_so(world: World) -> None:
    service = SandboxService(base_url=world.address)
    with pytest.raises(e.WrongState, match="start"):
        await service.connect_async("s1")
    await service.start()
    await service.start()
    await service.stop()
    await service.stop()
    with pytest.raises(e.WrongState, match="start"):
        await asyncio.to_thread(service.release, "s1")


@pytest.mark.parametrize("ids", [("", None), ("s", ""), ("x" * 256, None)])
async def test_ids_that_do_not_fit_are_refused(world: World, ids: tuple[str, str | None]) -> None:
    service = SandboxService(base_url=world.address)
    await service.start()
    with pytest.raises(e.InvalidArgument):
        await service.connect_async(*ids)
    await service.stop()


async def test_a_session_that_ended_and_was_connected_again_is_renewed_again(world: World) -> None:
    def renewals() -> int:
        return len(world.mesh.requests_of(session_pb2.KeepSessionRequest))

    async with asyncio.timeout(20), SandboxService(base_url=world.address, ttl=0.6) as service:
        await service.connect_async("s1")
        world.mesh.sessions.clear()
        await world.mesh.news.until(lambda: renewals() == 1)
        await service.connect_async("s1")
        await world.mesh.news.until(lambda: renewals() == 3)


async def test_a_box_is_paused_and_resumed_and_says_how_it_is(world: World) -> None:
    box = await BaseSandboxAsync(base_url=world.address).start()
    assert (await box.get_status(), await box.check_health()) == ("ready", True)
    await box.pause()
    assert (await box.get_status(), await box.check_health()) == ("paused", False)
    await box.resume()
    assert (await box.get_status(), await box.check_health()) == ("ready", True)
    world.mesh.sessions.clear()
    assert (await box.get_status(), await box.check_health()) == ("gone", False)
    await box.close()


def test_without_a_loop_a_service_is_started_by_with_and_lists_every_page(threaded_world: World) -> None:
    with SandboxService(base_url=threaded_world.address) as service:
        for name in ("a", "b", "c"):
            (box,) = service.connect(name, "ann")
            assert box.check_health()
        listed = service.list_sessions("ann")
        assert [(session.session_id, list(session.sandboxes)) for session in listed] == [
            ("a", ["base"]),
            ("b", ["base"]),
            ("c", ["base"]),
        ]
        assert service.list_sessions("bob") == []
        service.release("a", "ann")
        service.release_all()
        assert threaded_world.mesh.sessions == {}
        (kept,) = service.connect("kept", "ann")
    with pytest.raises(e.WrongState, match="closed"):
        kept.get_info()
    assert [session.session_id for session in service.list_sessions("ann")] == ["kept"]
    with pytest.raises(e.WrongState, match="not started"):
        service.connect("x")
