"""Labels that doors keep their facts in: nobody else sets them, and damaged ones stop nothing."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from sandmesh import BaseSandboxAsync
from sandmesh.errors import InvalidArgument
from sandmesh.mesh import MeshAsync
from sandmeshd.auth.doors import as_door, door_proof
from sandmeshd.facades.e2b.marks import Marks, read_marks
from tests.mesh.conftest import run_mesh
from tests.unit.store.waiting import until

from .e2b.e2b_world import World, open_world

SECRET = "a-secret-of-a-mesh-that-tests-know-0123456789"  # noqa: S105 - of no mesh but the test's
POISON = (
    {"e2b": "99999999999"},
    {"e2b": "²"},
    {"e2b": "9" * 255},
    {"e2b": "1", "e2b.0": "[" * 255},
    {"e2b": "64", **{f"e2b.{number}": "[" * 250 for number in range(64)}},
    {"e2b": "1", "e2b.0": '{"template":5,"metadata":7}'},
    {"e2b": "1", "e2b.0": '{"template":"base","auto_pause":true,"metadata":{"a":"\\ud800"}}'},
    {"e2b": "18", **{f"e2b.{number}": "9" * 250 for number in range(18)}},
    {"e2b": "0"},
    {"e2b": "-1"},
    {"e2b": "1"},
)


async def create_poisoned(address: str, labels: dict[str, str]) -> str:
    """Create a sandbox with labels of a door, as one could before they were reserved."""
    token = as_door("", door_proof(SECRET))
    box = BaseSandboxAsync(base_url=address, bearer_token=token, labels=labels)
    await box.start()
    return box.sandbox_id


async def answer_to_a_stranger(world: World) -> int:
    async with asyncio.timeout(10):
        status, _ = await world.send("GET", "/files?path=/x&signature=z")
    return status


@pytest.mark.parametrize("labels", POISON, ids=range(len(POISON)))
def test_labels_of_any_form_are_read_or_passed_over(labels: dict[str, str]) -> None:
    assert read_marks(labels) is None


def test_what_the_door_writes_it_reads() -> None:
    marks = Marks(template="base", metadata={"a": "²" * 300}, auto_pause=True)
    assert read_marks(marks.labels()) == marks


@pytest.mark.parametrize(
    "name", ["e2b", "e2b.0", "E2B", "e2b-build", "swerex", "agentscope", "sandboxfusion/x", "jupyter"]
)
async def test_labels_that_begin_with_a_doors_name_are_refused_from_everybody_else(name: str) -> None:
    async with run_mesh(mesh_secret=SECRET) as mesh, MeshAsync(mesh.addresses[0]) as admin:
        user = (await admin.tokens.create("ada")).secret
        for token in (None, user, as_door(user, "0" * 64), as_door(user, user)):
            with pytest.raises(InvalidArgument, match="reserved"):
                async with BaseSandboxAsync(base_url=mesh.addresses[0], bearer_token=token, labels={name: "1"}):
                    pass
        assert await admin.sandboxes.list() == []


async def test_a_label_that_only_resembles_a_doors_is_taken() -> None:
    labels = {"e2bench": "1", "my-e2b": "2"}
    async with run_mesh() as mesh, BaseSandboxAsync(base_url=mesh.addresses[0], labels=labels) as box:
        assert (await box.run_ipython_cell("1+1")).text == "2"


async def test_a_sandbox_with_damaged_labels_stops_no_door_and_can_be_deleted() -> None:
    async with open_world(mesh_secret=SECRET) as world, MeshAsync(world.mesh.addresses[0]) as admin:
        ada = await world.key("ada")
        poisoned = [await create_poisoned(world.mesh.addresses[0], labels) for labels in POISON[:6]]
        assert await answer_to_a_stranger(world) == 401
        made = await world.create(ada, autoPause=True, metadata={"a": "b"})
        status, listed = await world.send("GET", "/v2/sandboxes", {"X-API-KEY": ada})
        assert (status, [one["sandboxID"] for one in listed]) == (200, [made["sandboxID"]])
        path = f"/sandboxes/{made['sandboxID']}"
        assert (await world.send("POST", f"{path}/timeout", {"X-API-KEY": ada}, json={"timeout": 0}))[0] == 204

        async def is_paused() -> bool:
            return bool((await world.send("GET", path, {"X-API-KEY": ada}))[1]["state"] == "paused")

        await until(is_paused, 30)
        for sandbox_id in poisoned:
            await admin.sandboxes.kill(sandbox_id)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"E2b-Sandbox-Id": "x", "E2b-Sandbox-Port": "²"}, 401),
        ({"E2b-Sandbox-Id": "x", "E2b-Sandbox-Port": "9" * 6000}, 401),
        ({"E2b-Sandbox-Id": "x", "E2b-Sandbox-Port": "٣"}, 401),
    ],
)
async def test_ports_that_are_not_numbers_are_not_errors_of_the_server(headers: dict[str, str], status: int) -> None:
    async with (
        run_mesh(e2b=True) as mesh,
        aiohttp.ClientSession() as http,
        http.get(f"{mesh.http.addresses[0]}/sandboxes", headers=headers) as response,
    ):
        assert response.status == status
        assert json.loads(await response.text())["code"] == status
