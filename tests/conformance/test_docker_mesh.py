"""A whole mesh over a real engine: a template that cannot be made ready, and calls to a paused sandbox."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

import pytest
import trustme
from aiodocker import Docker

from sandmesh import BaseSandboxAsync, SandboxAsync, Secret
from sandmesh.errors import TemplateBuildFailed, WrongState
from sandmesh.mesh import MeshAsync
from sandmeshd.mesh import MeshSettings
from tests.engine import query
from tests.isolation.secret_world import tls_host, write_authority
from tests.mesh.commands import Commands
from tests.mesh.conftest import run_mesh
from tests.unit.store.waiting import until

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(600)]


async def test_a_mesh_starts_although_the_image_of_one_template_cannot_be_pulled_and_heals_by_itself(
    engine: str, tmp_path: Path
) -> None:
    repository = f"127.0.0.1:9/team/own-{secrets.token_hex(5)}"
    file = tmp_path / "own.yaml"
    file.write_text(f"image: {repository}:1\n")
    async with run_mesh(driver="docker", docker_url=engine, templates=(file,)) as mesh, Docker(url=engine) as docker:
        address = mesh.addresses[0]
        with pytest.raises(
            TemplateBuildFailed, match=rf"template own cannot be made ready: {repository}:1 could not be"
        ):
            await SandboxAsync(base_url=address, sandbox_type="own", timeout=30).start()
        async with BaseSandboxAsync(base_url=address) as box:
            assert (await box.run_ipython_cell("6*7")).text == "42"
        found = {finding["name"]: finding for finding in await asyncio.to_thread(_findings, address)}
        warned = found["template of local"]
        assert warned["health"] == "warning"
        assert warned["seen"].startswith("template own cannot be made ready, and its sandboxes are refused: ")
        await docker.images.tag("sandmesh/base:latest", repository, tag="1")
        try:
            async with MeshAsync(address) as client:

                async def is_well() -> bool:
                    return not (await client.health()).troubles

                await until(is_well, 60)
            async with SandboxAsync(base_url=address, sandbox_type="own") as healed:
                assert (await healed.call_tool("run_ipython_cell", {"code": "6*7"})).text == "42"
        finally:
            await docker.images.delete(f"{repository}:1")


def _findings(address: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = (
        Commands(MeshSettings()).run("doctor", "--mesh", "--base-url", address, "-o", "json").json
    )
    return found


async def test_a_call_to_a_paused_sandbox_is_refused_where_it_says_so_and_calls_under_way_go_on_when_it_is_resumed(
    engine: str,
) -> None:
    async with (
        run_mesh(driver="docker", docker_url=engine) as mesh,
        BaseSandboxAsync(base_url=mesh.addresses[0], auto_resume=False) as box,
    ):
        process = await box.processes.start("echo up; until [ -e go ]; do sleep 0.05; done; echo went on")
        await process.wait_for_log("up")
        await box.pause()
        for call in (box.run_ipython_cell("1+1"), box.run_shell_command("true")):
            with pytest.raises(WrongState, match="is paused: resume it"):
                await call
        await box.resume()
        await box.run_shell_command("touch go")
        assert (await process.wait(60)).exit_code == 0


@pytest.mark.parametrize("driver", ["docker", pytest.param("gvisor", marks=pytest.mark.needs("runsc"))])
async def test_a_secret_reaches_its_host_and_neither_the_container_nor_the_engine(
    driver: str, engine: str, tmp_path: Path
) -> None:
    authority, value = trustme.CA(), "sk-live-of-a-container"
    trusted = {"SANDMESH_EGRESS_CA_FILE": str(write_authority(authority, tmp_path))}
    async with (
        tls_host(authority, "127.0.0.1") as host,
        run_mesh(driver=driver, docker_url=engine, drivers=trusted) as mesh,
    ):
        at = f"127.0.0.1:{host.port}"
        options = {"API_KEY": Secret(hosts=[at], value=value)}
        async with BaseSandboxAsync(base_url=mesh.addresses[0], network=[at], secrets=options) as box:
            program = f"""
import http.client, os, ssl
link = http.client.HTTPSConnection("127.0.0.1", 3128, context=ssl.create_default_context(), timeout=30)
link.set_tunnel("127.0.0.1", {host.port})
link.request("GET", "/", headers={{"Authorization": "Bearer " + os.environ["API_KEY"]}})
print(link.getresponse().status, os.environ["API_KEY"])
"""
            done = await box.run_ipython_cell(program)
            assert done.stdout.startswith("200 sandmesh_secret_")
            assert host.headers()["authorization"] == f"Bearer {value}"
            reported = await asyncio.to_thread(_reported, engine)
            assert box.sandbox_id in reported
            assert value not in reported


def _reported(engine: str) -> str:
    """Return all that the engine reports of its containers."""
    containers = query(engine, "/containers/json?all=1")
    return str([query(engine, f"/containers/{container['Id']}/json") for container in containers])
