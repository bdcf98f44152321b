"""Network grants through a whole mesh, as users state them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandmesh import BaseSandboxAsync, MeshAsync, NetworkGrant
from sandmesh.errors import InvalidArgument
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import MeshMaker
from tests.mesh.sandboxes.test_metrics import scrape
from tests.unit.drivers.egress.harness import host

CURL = "curl -sS -m 20 --noproxy '' -w ' %{http_code}'"


async def test_a_sandbox_reaches_what_it_was_granted(mesh: Mesh) -> None:
    async with host() as there:
        grant = f"127.0.0.1:{there.port}"
        async with BaseSandboxAsync(base_url=mesh.addresses[0], network=["public", grant]) as box:
            assert (await box.run_shell_command(f"{CURL} http://{grant}/")).stdout == "hello 200"
            refused = await box.run_shell_command(f"{CURL} http://10.0.0.1/")
            assert "10.0.0.1 is private, not public" in refused.stdout
            info = await box.get_info()
            async with asyncio.timeout(30):
                while not (
                    refusals := [event for event in await box.list_events() if event["kind"] == "egress_refused"]
                ):
                    pass
    assert refusals[0]["reason"] == "10.0.0.1:80: 10.0.0.1 is private, not public"
    assert info["spec"]["network"] == {"mode": "public", "hosts": [grant]}
    assert info["enforced"]["network"] == f"public, {grant}: own namespace, egress proxy"


async def test_the_meshs_own_listeners_are_refused_whatever_the_grant(make_mesh: MeshMaker) -> None:
    async with make_mesh(listen=["127.0.0.1:0"]) as mesh, host() as there:
        [page] = await mesh.http.open()
        ports = [address.rpartition(":")[2] for address in (page, mesh.addresses[1])]
        grant = [*(f"127.0.0.1:{port}" for port in ports), f"127.0.0.1:{there.port}", f"localhost:{there.port}"]
        async with BaseSandboxAsync(base_url=mesh.addresses[0], network=grant) as box:
            said = [(await box.run_shell_command(f"{CURL} http://{target}/")).stdout for target in grant]
    assert ["is a service of the mesh itself. No grant allows it." in text for text in said[:2]] == [True, True]
    assert said[2] == "hello 200"
    assert "A name never leads there" in said[3]


async def test_a_users_token_decides_whether_its_sandboxes_reach_what_is_not_public(mesh: Mesh) -> None:
    async with host() as there, MeshAsync(base_url=mesh.addresses[0]) as admin:
        grant = f"127.0.0.1:{there.port}"
        said: list[str] = []
        for name, private in (("ada", False), ("bob", True)):
            made = await admin.tokens.create(name, private_network=private)
            assert made.token.private_network is private
            address, secret = mesh.addresses[0], made.secret
            async with BaseSandboxAsync(base_url=address, bearer_token=secret, network=[grant]) as box:
                said.append((await box.run_shell_command(f"{CURL} http://{grant}/")).stdout)
    assert "sandmesh token create NAME --private-network" in said[0]
    assert said[1] == "hello 200"
    assert len(there.got) == 1


async def test_what_a_running_sandbox_may_reach_is_shown_and_changed(mesh: Mesh) -> None:
    async with host() as there, BaseSandboxAsync(base_url=mesh.addresses[0], network=["example.org"]) as box:
        target = f"127.0.0.1:{there.port}"
        assert (await box.network.allow(target)).hosts == (target, "example.org")
        assert (await box.run_shell_command(f"{CURL} http://{target}/")).stdout == "hello 200"
        [traffic] = (await box.network.show()).hosts
        assert (traffic.host, traffic.connections, traffic.open_connections) == (target, 1, 0)
        assert traffic.received_bytes > len("hello")
        sandbox_id, moved = box.sandbox_id, traffic.received_bytes + traffic.sent_bytes
        assert (await box.network.deny(target)).hosts == ("example.org",)
        assert "403" in (await box.run_shell_command(f"{CURL} http://{target}/")).stdout
        assert await box.network.set("public") == NetworkGrant("public")
        with pytest.raises(InvalidArgument, match="among all public hosts"):
            await box.network.deny("example.org")
    async with MeshAsync(mesh.addresses[0]) as admin, asyncio.timeout(30):
        # The last bytes are counted when it is deleted.
        while not (counted := (await admin.usage.list(sandbox_id=sandbox_id)).sandboxes[0]).egress_bytes:
            pass
    assert counted.egress_bytes >= moved
    assert counted.sandbox_seconds > 0


async def test_changes_of_a_network_at_once_are_all_made(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0], network=["example.org"]) as box, asyncio.timeout(60):
        names = [f"host{number}.example.org" for number in range(5)]
        await asyncio.gather(*(box.network.allow(name) for name in names))
        assert set((await box.network.show()).grant.hosts) == {"example.org", *names}


async def test_the_command_line_shows_and_changes_a_network(mesh: Mesh) -> None:
    sandmesh = str(Path(sys.executable).with_name("sandmesh"))
    async with BaseSandboxAsync(base_url=mesh.addresses[0], network=["example.org"]) as box:
        arguments = ["network", "--base-url", mesh.addresses[0], "--allow", "pypi.org", "--deny", "example.org"]
        command = await asyncio.create_subprocess_exec(sandmesh, *arguments, box.sandbox_id, stdout=subprocess.PIPE)
        said, _ = await command.communicate()
    assert said.decode() == "may reach: pypi.org\n"


async def test_refusals_are_counted(mesh: Mesh) -> None:
    [page] = await mesh.http.open()
    async with asyncio.timeout(60), BaseSandboxAsync(base_url=mesh.addresses[0], network=["example.org"]) as box:
        await box.run_shell_command(f"for i in 1 2 3; do {CURL} http://10.0.0.1/; done")
        while (await scrape(page)).get("sandmesh_egress_refusals_total", 0) < 3:
            pass


async def test_what_a_template_may_reach_by_default_is_shown_and_is_public(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        assert (await box.get_info())["spec"]["network"] == {"mode": "public"}
        refused = await box.run_ipython_cell(
            "import urllib.request\nurllib.request.urlopen('https://169.254.169.254/latest', timeout=20)"
        )
    assert "169.254.169.254 is link-local, not public" in refused.text


@pytest.mark.parametrize("network", [["https://example.org"], ["*"], ["none", "example.org"], "anything"])
def test_a_grant_that_means_nothing_is_refused_with_what_would(network: Any) -> None:
    with pytest.raises(InvalidArgument, match="network"):
        BaseSandboxAsync(network=network)


async def test_the_stated_default_is_taken_from_the_pool_and_another_grant_is_not(make_mesh: MeshMaker) -> None:
    async with make_mesh(pools={"base": 1}) as mesh:
        pooled: dict[str, bool] = {}
        for word in ("public", "none"):
            async with BaseSandboxAsync(base_url=mesh.addresses[0], network=word) as box:
                assert (await box.get_info())["spec"]["network"] == {"mode": word}
                pooled[word] = (await box.run_shell_command("printenv HTTP_PROXY")).exit_code == 0
    assert pooled == {"public": True, "none": False}


@pytest.mark.parametrize(("network", "shown"), [("none", "no proxy"), ("example.org", "http://127.0.0.1:3128")])
def test_the_command_line_states_a_grant(network: str, shown: str) -> None:
    sandmesh = Path(sys.executable).with_name("sandmesh")
    command = [str(sandmesh), "run", "--network", network, "--", "sh", "-c", "echo ${HTTPS_PROXY:-no proxy}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{shown}\n"), done.stderr
