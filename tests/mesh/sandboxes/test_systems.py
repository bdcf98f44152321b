"""Templates with Debian packages: from the host, or unpacked from Debian's archive."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync, errors
from sandmesh.sandbox.boxes import SandboxAsync
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.template_builds import build_template
from tests.mesh.conftest import MeshMaker


def _template(folder: Path, *packages: str) -> Path:
    path = folder / "packaged.yaml"
    path.write_text(f"description: Debian packages\nsystem: [{', '.join(packages)}]\n")
    return path


def _drivers(folder: Path, source: str) -> dict[str, object]:
    return {"SANDMESH_SYSTEM_SOURCE": source, "SANDMESH_SYSTEMS": str(folder / "systems")}


@pytest.fixture
def folder() -> Generator[Path]:
    """Yield a directory that sandboxes' own uid can pass."""
    with tempfile.TemporaryDirectory(prefix="sm-") as name:
        Path(name).chmod(0o711)
        yield Path(name)


@pytest.mark.needs("debian")
async def test_a_system_is_built_without_privileges_and_shown_in_place_of_the_hosts(
    make_mesh: MeshMaker, folder: Path
) -> None:
    options = {"templates": (_template(folder, "hello", "xterm"),), "drivers": _drivers(folder, "archive")}
    async with asyncio.timeout(400):
        async with make_mesh(**options, ephemeral=False) as mesh:
            with pytest.raises(errors.CapabilityMissing, match="sandmesh build packaged") as caught:
                await SandboxAsync(base_url=mesh.addresses[0], sandbox_type="packaged").start()
            assert caught.value.facts["needs"] == "system"
        # In a program's own mesh the first create builds what the command does.
        async with (
            make_mesh(**options) as mesh,
            SandboxAsync(base_url=mesh.addresses[0], sandbox_type="packaged") as other,
        ):
            command = "hello; readlink -f /etc/alternatives/x-terminal-emulator; test -e /etc/apt/apt.conf.d; id -un; "
            command += "grep -c BEGIN /etc/ssl/certs/ca-certificates.crt"
            ran = await other.call_tool("run_shell_command", {"command": command})
            cell = await other.call_tool("run_ipython_cell", {"code": "import numpy; open('/usr/x', 'w')"})
    assert ran.text.split("\n")[0] == "Hello, world!"
    assert "/usr/bin/" in ran.text
    *_, name, certificates = ran.text.split()
    assert (name, int(certificates) > 100) == ("sandbox", True)
    assert "Read-only file system" in cell.text
    assert not list((folder / "systems").glob("*/work"))


@pytest.mark.needs("debian")
async def test_a_package_that_does_not_exist_is_named_by_the_build(folder: Path) -> None:
    options = {"templates": (_template(folder, "no-such-package"),), "drivers": _drivers(folder, "archive")}
    async with asyncio.timeout(120):
        with pytest.raises(errors.TemplateBuildFailed, match="Unable to locate package no-such-package"):
            async for _ in build_template(MeshSettings.model_validate(options), "packaged", ""):
                pass
    assert not list((folder / "systems").glob("[0-9a-f]*"))


async def test_packages_that_the_host_must_have_are_named_with_the_command_that_installs_them(
    make_mesh: MeshMaker, folder: Path
) -> None:
    templates = (_template(folder, "no-such-package"),)
    async with make_mesh(templates=templates, drivers=_drivers(folder, "host")) as mesh:
        with pytest.raises(errors.CapabilityMissing, match="apt-get install --no-install-recommends no-such-package"):
            await SandboxAsync(base_url=mesh.addresses[0], sandbox_type="packaged").start()


@pytest.mark.needs("debian")
async def test_packages_that_the_host_has_are_there_at_once(make_mesh: MeshMaker, folder: Path) -> None:
    templates = (_template(folder, "coreutils", "dpkg"),)
    async with (
        asyncio.timeout(60),
        make_mesh(templates=templates, drivers=_drivers(folder, "auto")) as mesh,
        SandboxAsync(base_url=mesh.addresses[0], sandbox_type="packaged") as box,
    ):
        ran = await box.call_tool("run_shell_command", {"command": "dpkg --version"})
    assert ran.text.startswith("Debian 'dpkg'")


async def test_fonts_are_listed_from_a_cache_that_all_homes_share(make_mesh: MeshMaker) -> None:
    """The environment's cache is the system's: each create made and each release removed 22 links in its place."""
    async with asyncio.timeout(120), make_mesh() as mesh, BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        homes = await box.run_shell_command("find ~ -name '*.cache-*'")
        shared = await box.run_shell_command("ls /var/cache/fontconfig | grep -c cache-")
        listed = await box.run_shell_command("fc-list | grep -c '^/usr/share/fonts'")
    assert not homes.text.strip()
    assert int(shared.text) > 10
    assert int(listed.text) > 10
