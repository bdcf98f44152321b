"""A mesh that starts with what it cannot read comes up without it, says so, and lets the operator delete it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, cast

import aiohttp
import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from sandmesh import BaseSandboxAsync
from sandmesh.api.sandbox.v1 import sandbox_pb2 as pb
from sandmesh.mesh import MeshAsync
from sandmeshd.drivers.bubblewrap import sweep_state
from sandmeshd.mesh import MeshSettings, open_mesh
from sandmeshd.mesh.sweep import remove
from tests.unit.store.waiting import until

pytestmark = pytest.mark.timeout(300)
IN_STORE: Mapping[str, Mapping[str, bytes]] = {
    "body": {"body": b"\xff\xff"},
    "state": {"state": b"NO_SUCH_STATE"},
    "created": {"created_us": "²".encode()},
    "ports": {"ports": b"1,x"},
    "id": {"id": b"\xff"},
    "token": {"token": b"x"},
    "label": {
        "body": pb.Sandbox(spec=pb.SandboxSpec(template="base", labels={"e2b": "99999999999"})).SerializeToString()
    },
}
IN_FILES = {"grants": b"\xff\xff", "secrets": b"\xff", "devices": b"\xff\xfe"}
FAILED = ("body", "state", "created", "ports", "token")


async def damage_store(settings: MeshSettings, records: Mapping[str, str]) -> None:
    """Damage what the store has of sandboxes."""
    async with Redis(unix_socket_path=str(settings.paths.services / "r")) as store:
        for name, fields in IN_STORE.items():
            key = f"sandmesh:{{{settings.mesh_id}}}:sandbox:{records[name]}"
            assert await store.exists(key)
            # redis-py leaves the result of hset untyped.
            await cast("Any", store).hset(key, mapping=dict(fields))


def damage_files(settings: MeshSettings, records: Mapping[str, str]) -> None:
    """Damage what the driver has of sandboxes."""
    for name, data in IN_FILES.items():
        folder = settings.paths.node_state / name
        folder.mkdir(exist_ok=True)
        (folder / records[name]).write_bytes(data)
    (settings.paths.sandboxes / records["spec"] / "spec.json").write_bytes(b"\xff{" * 1000)


async def test_a_mesh_that_starts_with_damaged_records_comes_up_without_them_and_deletes_them() -> None:
    settings = MeshSettings.model_validate({"mesh_id": f"test-{secrets.token_hex(5)}", "e2b": True})
    records: dict[str, str] = {}
    try:
        async with open_mesh(settings, lambda message, fraction: None) as mesh:
            for name in (*IN_STORE, *IN_FILES, "spec", "good"):
                box = BaseSandboxAsync(base_url=mesh.addresses[0], ttl=900)
                await box.start()
                records[name] = box.sandbox_id
            await damage_store(settings, records)
            mesh.ending.keep = True
        damage_files(settings, records)
        with capture_logs() as logged:
            async with open_mesh(settings, lambda message, fraction: None) as mesh:
                await check(mesh.addresses[0], mesh.http.addresses[0], records)
    finally:
        await sweep_state(settings.paths)
        remove(settings.paths)
    assert [*settings.paths.sandboxes.glob("*")] == []
    said = [line for line in logged if line["log_level"] == "warning"]
    assert {records[name] for name in FAILED} <= {line.get("record") for line in said}
    assert {records["grants"], records["secrets"]} <= {str(line.get("path")).rpartition("/")[2] for line in said}


async def check(address: str, url: str, records: Mapping[str, str]) -> None:
    """Check that the mesh works, that the others are there, and that all can be deleted."""
    async with BaseSandboxAsync(base_url=address) as fresh:
        assert (await fresh.run_ipython_cell("1 + 1")).text == "2"
    async with BaseSandboxAsync(records["good"], base_url=address) as box:
        assert (await box.run_ipython_cell("2 + 2")).text == "4"
    # What a damaged grant allowed is not known.
    async with BaseSandboxAsync(records["grants"], base_url=address) as closed:
        assert (await closed.network.show()).grant.mode == "none"
    async with aiohttp.ClientSession() as http, http.get(f"{url}/files?path=/x&signature=z") as response:
        assert response.status == 401
    async with MeshAsync(address) as client:
        found = {sandbox.sandbox_id: sandbox for sandbox in await client.sandboxes.list()}
        for name in FAILED:
            assert found[records[name]].state == "FAILED", name
            assert "cannot be read" in found[records[name]].state_reason
        for sandbox_id in records.values():
            await client.sandboxes.kill(sandbox_id)

        async def all_gone() -> bool:
            left = {sandbox.sandbox_id for sandbox in await client.sandboxes.list() if sandbox.in_use}
            return not left & set(records.values())

        await until(all_gone)
