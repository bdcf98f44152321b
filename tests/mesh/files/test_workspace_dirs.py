"""A directory of the host as a workspace, as programs and commands name one."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from sandmesh import BaseSandbox, BaseSandboxAsync
from sandmesh.errors import CapabilityMissing, WorkspaceDirRefused
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from tests.mesh.commands import running_mesh
from tests.mesh.conftest import MeshMaker


@pytest.fixture
def folder() -> Generator[Path]:
    """Give a directory that sandboxes can use, whoever they are on the host."""
    made = Path(tempfile.mkdtemp(prefix="sm-"))
    made.chmod(0o777)
    yield made
    remove_tree(made)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_private_mesh_takes_a_directory_of_its_programs_user(make_mesh: MeshMaker, folder: Path) -> None:
    async with make_mesh(pools={"base": 1}) as mesh:
        options = {"base_url": mesh.addresses[0], "workspace_dir": folder}
        async with BaseSandboxAsync(**options) as box:  # type: ignore[arg-type]  # options by name
            await box.run_ipython_cell("open('made', 'w').write('inside')")
            await box.fs.write("sent", b"sent")
            assert (await box.get_info())["spec"]["workspace_dir"] == str(folder)
            snapshot = await box.snapshot()
        assert names(folder) == ["made", "sent"]
        async with BaseSandboxAsync(base_url=options["base_url"], snapshot=snapshot) as box:  # type: ignore[arg-type]  # it is one
            assert "made" in (await box.run_shell_command("ls")).text
        with pytest.raises(CapabilityMissing, match="disk"):
            await BaseSandboxAsync(**options, limits={"disk": "1MiB"}).start()  # type: ignore[arg-type]  # options by name
        with pytest.raises(WorkspaceDirRefused):
            await BaseSandboxAsync(base_url=options["base_url"], workspace_dir="/etc").start()  # type: ignore[arg-type]  # it is one
    assert (folder / "made").read_text() == "inside"


def test_a_mesh_takes_what_its_operator_lists(folder: Path) -> None:
    with running_mesh(SANDMESH_WORKSPACE_ROOTS=json.dumps([str(folder)])) as sandmesh:
        project = folder / "project"
        project.mkdir()
        project.chmod(0o777)
        ran = sandmesh.run("run", "--workspace-dir", str(project), "--", "sh", "-c", "echo here > file; pwd")
        assert ran.out == "/workspace\n"
        assert (project / "file").read_text() == "here\n"
        refused = sandmesh.run("run", "--workspace-dir", "/srv", "--", "true", ok=False)
        assert "SANDMESH_WORKSPACE_ROOTS" in refused.err
        assert str(folder) in refused.err
        with pytest.raises(WorkspaceDirRefused) as caught:
            BaseSandbox(base_url=f"unix://{sandmesh.settings.paths.gateway}", workspace_dir=os.sep).start()
        assert caught.value.facts["path"] == "/"
