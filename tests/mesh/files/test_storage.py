"""Sessions that come back with their workspace: from a directory, and from a server that speaks S3."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandmesh import BaseSandboxAsync, SandboxService, errors
from sandmeshd.mesh import Mesh, MeshSettings
from sandmeshd.storage import SavedWorkspace, open_folders
from tests.mesh.conftest import MeshMaker
from tests.s3 import BUCKET, KEY

pytestmark = pytest.mark.needs("user namespaces")

# All that a workspace may hold: bytes, modes, links that lead anywhere, names that are no text, an empty directory.
FILL = r"""
mkdir -p empty 'a b/ü' && head -c 9000000 /dev/urandom > large && printf 'x\0\377' > "$(printf 'caf\351')"
printf '#!/bin/sh\n' > run.sh && chmod 750 run.sh && ln -s /etc/hostname out && ln -s run.sh in && ln -s /nowhere/x dead
for n in $(seq 200); do echo $n > "a b/ü/$n"; done; : > 'a b/none'; chmod 555 empty
echo s > secret; chmod 0 secret
"""
SUMS = r"""
find . -mindepth 1 -printf '%y %m %l %p\n' | LC_ALL=C sort
chmod -R u+r . && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum && chmod 0 secret
"""


@pytest.fixture(params=["local", "s3"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The settings of a storage of each kind."""
    if request.param == "local":
        return {"storage_folder": tmp_path / "kept"}
    return {
        "file_system": "s3",
        "storage_folder": tmp_path.name,
        "storage_bucket": BUCKET,
        "storage_endpoint": request.getfixturevalue("s3"),
        "storage_key_id": KEY,
        "storage_key_secret": KEY,
    }


@asynccontextmanager
async def service(mesh: Mesh, **options: Any) -> AsyncGenerator[SandboxService]:
    """Run a service of sessions on a mesh."""
    opened = SandboxService(mesh.addresses[0], timeout=30, **options)
    await opened.start()
    try:
        yield opened
    finally:
        await opened.stop()


async def shell(box: BaseSandboxAsync, command: str) -> str:
    """Run what must go well."""
    result = await box.run_shell_command(command)
    assert not result.is_error, result.text
    return result.stdout


async def gone(mesh: Mesh, sandbox_id: str) -> None:
    """Wait until a sandbox is no more."""
    while True:
        try:
            await BaseSandboxAsync(sandbox_id, base_url=mesh.addresses[0]).start()
        except errors.NotFound:
            return
        except errors.SandboxLost:
            await asyncio.sleep(0.02)


async def test_a_reaped_session_returns_with_its_workspace_byte_for_byte(
    make_mesh: MeshMaker, kept: dict[str, Any]
) -> None:
    async with asyncio.timeout(60), make_mesh(**kept) as mesh:
        async with service(mesh, ttl=4.0) as first:
            (box,) = await first.connect_async("session", "user")
            await shell(box, FILL)
            before, sandbox_id = await shell(box, SUMS), box.sandbox_id
        # Nobody renews it now: its lease runs out.
        await gone(mesh, sandbox_id)
        async with service(mesh) as second:
            (box,) = await second.connect_async("session", "user")
            assert box.sandbox_id != sandbox_id
            assert await shell(box, SUMS) == before
            await shell(box, "rm -r 'a b' large; echo more > more")
            before = await shell(box, SUMS)
            assert await second.release_async("session", "user")
            # At once: the new one waits until the old one is saved.
            (box,) = await second.connect_async("session", "user")
            assert await shell(box, SUMS) == before
            await second.release_async("session", "user")


async def test_one_that_nobody_uses_is_saved_when_it_is_reaped_while_its_session_is_held(
    make_mesh: MeshMaker, kept: dict[str, Any]
) -> None:
    async with asyncio.timeout(60), make_mesh(**kept) as mesh, service(mesh, idle_timeout=5.0) as held:
        (box,) = await held.connect_async("session", "user")
        await shell(box, "echo precious > x")
        sandbox_id = box.sandbox_id
        await gone(mesh, sandbox_id)
        (box,) = await held.connect_async("session", "user")
        assert box.sandbox_id != sandbox_id
        assert await shell(box, "cat x") == "precious\n"
        await held.release_async("session", "user")


async def test_a_session_begins_with_what_was_uploaded_for_it_and_what_it_saved_is_downloaded(
    make_mesh: MeshMaker, kept: dict[str, Any], tmp_path: Path
) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.mkdir()
    (source / "present").write_text("by the operator")
    settings = {"mesh_id": f"test-{secrets.token_hex(5)}", **kept}
    storage = MeshSettings.model_validate(settings).storage
    assert storage is not None
    workspace = SavedWorkspace("user", "session")
    async with (
        asyncio.timeout(60),
        open_folders(storage) as folders,
        make_mesh(**settings) as mesh,
        service(mesh) as opened,
    ):
        await folders.upload_folder(source, workspace)
        (box,) = await opened.connect_async("session", "user")
        assert await shell(box, "cat present; head -c 3000000 /dev/urandom > made; rm present") == "by the operator"
        made = (await shell(box, "sha256sum < made")).split()[0]
        await opened.release_async("session", "user")
        await gone(mesh, box.sandbox_id)
        await folders.download_folder(workspace, copy)
        assert [path.name for path in copy.iterdir()] == ["made"]
        assert hashlib.sha256((copy / "made").read_bytes()).hexdigest() == made


async def test_one_from_a_pool_begins_with_the_saved_workspace(make_mesh: MeshMaker, tmp_path: Path) -> None:
    settings = {"storage_folder": tmp_path / "kept", "pools": {"base": 1}}
    async with asyncio.timeout(60), make_mesh(**settings) as mesh, service(mesh) as opened:
        for count in range(3):
            (box,) = await opened.connect_async("s", "u")
            assert await shell(box, "cat n 2>/dev/null | wc -l") == f"{count}\n"
            await shell(box, "echo line >> n")
            await opened.release_async("s", "u")
        both = await opened.connect_async("s", "u", ["base", "filesystem"])
        assert await shell(both[0], "cat n | wc -l") == "3\n"
        assert await shell(both[1], "ls | wc -l") == "0\n"
        events = [event["kind"] for event in await both[0].list_events()]
        assert "leased" in events
        await opened.release_async("s", "u")


async def test_users_with_crafted_ids_are_kept_apart(make_mesh: MeshMaker, tmp_path: Path) -> None:
    pairs = [
        ("a", "b/c"),
        ("a/b", "c"),
        ("a:b", "c"),
        ("a", "b:c"),
        ("é", "x"),
        ("e\u0301", "x"),
        ("..", "../a"),
        ("a\0", "b"),
    ]
    async with asyncio.timeout(90), make_mesh(storage_folder=tmp_path / "kept") as mesh, service(mesh) as opened:
        for number, (user, session) in enumerate(pairs):
            (box,) = await opened.connect_async(session, user)
            assert await shell(box, f"ls; echo {number} > mine") == ""
            await opened.release_async(session, user)
        for number, (user, session) in enumerate(pairs):
            (box,) = await opened.connect_async(session, user)
            assert await shell(box, "cat mine") == f"{number}\n"
            await opened.release_async(session, user)
    below = {path.resolve() for path in (tmp_path / "kept").rglob("*")}
    assert len(below) >= 3 * len(pairs)


async def test_what_nobody_can_come_back_to_is_not_saved(make_mesh: MeshMaker, tmp_path: Path) -> None:
    async with asyncio.timeout(60), make_mesh(storage_folder=tmp_path / "kept") as mesh:
        async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
            await shell(box, "echo x > x")
            sandbox_id = box.sandbox_id
        await gone(mesh, sandbox_id)
    assert not [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]


async def test_a_workspace_that_cannot_be_saved_keeps_its_sandbox_and_says_why(
    make_mesh: MeshMaker, tmp_path: Path
) -> None:
    settings = {"storage_folder": tmp_path / "kept", "storage_limit": 100_000, "queue_seconds": 3.0}
    async with asyncio.timeout(60), make_mesh(**settings) as mesh, service(mesh) as opened:
        (box,) = await opened.connect_async("s", "u")
        await shell(box, "head -c 200000 /dev/zero > large")
        await opened.release_async("s", "u")
        with pytest.raises(errors.WorkspaceNotReady, match="larger than the 100,000 bytes"):
            await opened.connect_async("s", "u")
        sandbox = BaseSandboxAsync(box.sandbox_id, base_url=mesh.addresses[0])
        with pytest.raises(errors.SandboxLost, match="STOPPING"):
            await sandbox.start()


async def test_a_saved_workspace_that_was_damaged_is_refused_and_nothing_runs(
    make_mesh: MeshMaker, tmp_path: Path
) -> None:
    async with asyncio.timeout(60), make_mesh(storage_folder=tmp_path / "kept") as mesh, service(mesh) as opened:
        (box,) = await opened.connect_async("s", "u")
        await shell(box, "echo precious > x")
        await opened.release_async("s", "u")
        await gone(mesh, box.sandbox_id)
        (piece,) = (tmp_path / "kept").rglob("pieces/*")
        data = piece.read_bytes()
        piece.write_bytes(data.replace(b"precious", b"tampered"))
        with pytest.raises(errors.WorkspaceNotReady, match="another checksum"):
            await opened.connect_async("s", "u")
        piece.write_bytes(data)
        (box,) = await opened.connect_async("s", "u")
        assert await shell(box, "cat x") == "precious\n"
        await opened.release_async("s", "u")
