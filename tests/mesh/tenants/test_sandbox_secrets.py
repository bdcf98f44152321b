"""Secrets that sandboxes use without having them, through a whole mesh, as users state them."""

from __future__ import annotations

import asyncio
import os
import secrets as random
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from sandmesh import BaseSandboxAsync, MeshAsync, Secret
from sandmesh.errors import InvalidArgument, PermissionDenied, SandmeshError, SecretNotFound
from sandmeshd.mesh import Mesh as RunningMesh
from sandmeshd.runtime.paths import default_state_directory
from tests.isolation.secret_world import TlsHost, tls_host, write_authority
from tests.mesh.commands import running_mesh
from tests.mesh.conftest import run_mesh

FIRST, SECOND = "sk-live-of-the-mesh-1", "sk-live-of-the-mesh-2"
SEND = 'curl -sS -m 30 --noproxy "" -w "%{http_code}" -H "Authorization: Bearer $API_KEY"'


@pytest.fixture
def authority() -> trustme.CA:
    """Return who signs the host's certificate."""
    return trustme.CA()


@pytest.fixture
async def host(authority: trustme.CA) -> AsyncGenerator[TlsHost]:
    """Serve HTTPS on this machine."""
    async with tls_host(authority, "127.0.0.1") as serving:
        yield serving


@pytest.fixture
def mesh_id() -> str:
    """Return the id of the mesh."""
    return f"test-{random.token_hex(5)}"


@pytest.fixture
async def secretive(mesh_id: str, authority: trustme.CA, tmp_path: Path) -> AsyncGenerator[RunningMesh]:
    """Run a mesh whose driver trusts that authority."""
    ca_file = str(write_authority(authority, tmp_path))
    async with run_mesh(mesh_id=mesh_id, drivers={"SANDMESH_EGRESS_CA_FILE": ca_file}) as mesh:
        yield mesh


async def test_a_value_given_with_a_sandbox_reaches_its_hosts_and_nobody_else(
    secretive: RunningMesh, host: TlsHost
) -> None:
    at, address = f"127.0.0.1:{host.port}", secretive.addresses[0]
    secrets = {"API_KEY": Secret(hosts=[at], value=FIRST)}
    async with BaseSandboxAsync(base_url=address, network=[at], secrets=secrets) as box:
        assert (await box.run_shell_command(f"{SEND} https://{at}/")).stdout.endswith("200")
        assert host.headers()["authorization"] == f"Bearer {FIRST}"
        await box.secrets.set("API_KEY", SECOND)
        await box.run_shell_command(f"{SEND} https://{at}/")
        assert host.headers()["authorization"] == f"Bearer {SECOND}"
        assert [(secret.variable, secret.hosts, secret.name) for secret in await box.secrets.list()] == [
            ("API_KEY", (at,), "")
        ]
        shown = str(await box.get_info()) + str(await box.list_events()) + (await box.run_shell_command("env")).stdout
        assert FIRST not in shown
        assert SECOND not in shown
        assert "sealed" not in shown
        assert "sandmesh_secret_" in shown
        await box.secrets.remove("API_KEY")
        refused = await box.run_shell_command(f"{SEND} https://{at}/")
        assert "the secret API_KEY has no value any more" in refused.stdout
        with pytest.raises(SecretNotFound, match="made with: API_KEY"):
            await box.secrets.set("OTHER", FIRST)


async def test_a_stored_secret_is_used_rotated_and_taken_away_while_sandboxes_run(
    secretive: RunningMesh, host: TlsHost
) -> None:
    at, address = f"127.0.0.1:{host.port}", secretive.addresses[0]
    async with MeshAsync(address) as mesh:
        change = await mesh.secrets.set("API_KEY", FIRST, [at, "api.example.org"])
        assert (change.secret.name, change.secret.hosts) == ("API_KEY", (at, "api.example.org"))
        secrets = {"API_KEY": Secret(hosts=[at])}
        async with BaseSandboxAsync(base_url=address, network=[at], secrets=secrets) as box:
            await box.run_shell_command(f"{SEND} https://{at}/")
            assert host.headers()["authorization"] == f"Bearer {FIRST}"
            change = await mesh.secrets.set("API_KEY", SECOND)
            assert change.sandbox_ids == (box.sandbox_id,)
            await box.run_shell_command(f"{SEND} https://{at}/")
            assert host.headers()["authorization"] == f"Bearer {SECOND}"
            narrowed = await mesh.secrets.set("API_KEY", FIRST, ["api.example.org"])
            assert narrowed.withdrawn_sandbox_ids == (box.sandbox_id,)
            assert "has no value" in (await box.run_shell_command(f"{SEND} https://{at}/")).stdout
            assert [FIRST in str(secret) or SECOND in str(secret) for secret in await mesh.secrets.list()] == [False]
            assert await mesh.secrets.remove("API_KEY") == [box.sandbox_id]
            with pytest.raises(SecretNotFound, match="there is no secret 'API_KEY'"):
                await mesh.secrets.remove("API_KEY")


async def test_nothing_of_a_value_is_in_the_meshs_files_log_or_snapshots(
    secretive: RunningMesh, mesh_id: str, host: TlsHost, capfd: pytest.CaptureFixture[str]
) -> None:
    at, address = f"127.0.0.1:{host.port}", secretive.addresses[0]
    secrets = {"API_KEY": Secret(hosts=[at], value=FIRST)}
    async with MeshAsync(address) as mesh:
        await mesh.secrets.set("STORED", SECOND, [at])
        async with BaseSandboxAsync(base_url=address, network=[at], secrets=secrets) as box:
            await box.run_shell_command(f"{SEND} https://{at}/ > /workspace/answer; ulimit -c unlimited; kill -SEGV $$")
            assert host.headers()["authorization"] == f"Bearer {FIRST}"
            await box.snapshot()
            audit = str(await mesh.audit.list())
            logs = str(await mesh.sandboxes.logs(box.sandbox_id))
            files = await asyncio.to_thread(_files_of_the_mesh, mesh_id)
    captured = capfd.readouterr()
    for value in (FIRST, SECOND):
        assert value not in captured.out + captured.err + audit + logs
        assert [path for path, data in files.items() if value.encode() in data] == []
    assert "SetSecret" in audit
    # The search finds what is there: the placeholder is in the record of the sandbox.
    assert any(b"sandmesh_secret_" in data for data in files.values())


def _files_of_the_mesh(mesh_id: str) -> dict[str, bytes]:
    state = default_state_directory() / "meshes" / mesh_id
    found: dict[str, bytes] = {}
    for folder, _, names in os.walk(state):
        for path in (Path(folder, name) for name in names):
            # The store and sandboxes write and remove files meanwhile.
            with suppress(FileNotFoundError):
                if path.is_file() and not path.is_symlink():
                    found[str(path)] = path.read_bytes()
    return found


async def test_bad_secrets_are_refused_by_what_is_wrong_and_nothing_is_created(secretive: RunningMesh) -> None:
    address = secretive.addresses[0]
    good = ["api.example.org"]
    for secrets, network, match in (
        ({"API_KEY": Secret(hosts=[], value=FIRST)}, "public", "a secret needs hosts"),
        ({"API_KEY": Secret(hosts=["*"], value=FIRST)}, "public", r"'\*' names everything"),
        ({"API_KEY": Secret(hosts=["*.com"], value=FIRST)}, "public", "names everything"),
        ({"API_KEY": Secret(hosts=["public"], value=FIRST)}, "public", "names everything"),
        ({"API_KEY": Secret(hosts=["api.example.org:*"], value=FIRST)}, "public", "names all ports"),
        ({"API_KEY": Secret(hosts=good, value="two\r\nlines")}, "public", "cannot be put into a header"),
        ({"API_KEY": Secret(hosts=good, value="")}, "public", "cannot be put into a header"),
        ({"API-KEY": Secret(hosts=good, value=FIRST)}, "public", "cannot be an environment variable"),
        ({"API_KEY": Secret(hosts=good, value=FIRST, name="OTHER")}, "public", "drop one"),
        ({"API_KEY": Secret(hosts=good, value=FIRST)}, ["other.example.org"], "network grant does not allow"),
        (
            {"API_KEY": Secret(hosts=["*.example.org"], value=FIRST)},
            ["api.example.org"],
            "network grant does not allow",
        ),
        ({"API_KEY": Secret(hosts=good, value=FIRST)}, "none", "network grant does not allow"),
        ({"API_KEY": {"hosts": good, "key": FIRST}}, "public", "Secret or a mapping of hosts, value and name"),
    ):
        with pytest.raises(InvalidArgument, match=match) as caught:
            async with BaseSandboxAsync(base_url=address, network=network, secrets=secrets):
                pytest.fail("it was created")
        assert FIRST not in str(caught.value)
    with pytest.raises(SecretNotFound, match="sandmesh secret set API_KEY"):
        async with BaseSandboxAsync(base_url=address, secrets={"API_KEY": Secret(hosts=good)}):
            pytest.fail("it was created")
    async with MeshAsync(address) as mesh:
        await mesh.secrets.set("API_KEY", FIRST, good)
        with pytest.raises(InvalidArgument, match=r"is for api\.example\.org, not for other"):
            async with BaseSandboxAsync(base_url=address, secrets={"API_KEY": Secret(hosts=["other.example.org"])}):
                pytest.fail("it was created")
        with pytest.raises(InvalidArgument, match="needs hosts"):
            await mesh.secrets.set("OTHER", FIRST)
        assert (await mesh.capacity()).used == 0


async def test_users_use_and_see_their_own_secrets_alone(secretive: RunningMesh) -> None:
    address, hosts = secretive.addresses[0], ["api.example.org"]
    async with MeshAsync(address) as admin:
        await admin.secrets.set("API_KEY", FIRST, hosts)
        tokens = {name: (await admin.tokens.create(name)).secret for name in ("ada", "bob")}
        async with MeshAsync(address, tokens["ada"]) as ada, MeshAsync(address, tokens["bob"]) as bob:
            assert await ada.secrets.list() == []
            await ada.secrets.set("HERS", SECOND, hosts)
            assert [secret.user_id for secret in await ada.secrets.list()] == ["ada"]
            assert await bob.secrets.list() == []
            assert {(secret.name, secret.user_id) for secret in await admin.secrets.list()} == {
                ("API_KEY", ""),
                ("HERS", "ada"),
            }
            with pytest.raises(PermissionDenied, match="'bob' only"):
                await bob.secrets.set("HERS", FIRST, user_id="ada")
            with pytest.raises(SecretNotFound):
                await bob.secrets.remove("HERS")
        for name in ("API_KEY", "HERS"):
            secrets, token = {name: Secret(hosts=hosts)}, tokens["bob"]
            with pytest.raises(SandmeshError, match=f"there is no secret '{name}'"):
                async with BaseSandboxAsync(base_url=address, bearer_token=token, secrets=secrets):
                    pytest.fail("it was created")


def test_the_commands_store_list_use_and_remove_secrets(tmp_path: Path) -> None:
    value = tmp_path / "value"
    value.write_text(f"{FIRST}\n")
    with running_mesh() as commands:
        commands.run("secret", "set", "API_KEY", "--host", "api.example.org", "--value-file", str(value))
        listed = commands.run("secret", "ls").out
        assert "api.example.org" in listed
        assert FIRST not in listed
        shown = commands.run("run", "--secret", "API_KEY=api.example.org", "--", "printenv", "API_KEY").out
        assert shown.startswith("sandmesh_secret_")
        commands.run("secret", "rm", "API_KEY")
        assert "API_KEY" not in commands.run("secret", "ls").out
