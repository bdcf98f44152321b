"""Where the packages that a sandbox installs are, what happens when the disk is full, and after a removal."""

from __future__ import annotations

import ast

import pytest

from sandmesh import BaseSandboxAsync
from sandmeshd.drivers.node.agent_config import HOME
from sandmeshd.mesh import Mesh

DEVICES = "stat -c %d ~/.venv /workspace | uniq | wc -l"
WHEEL = """
import pathlib, zipfile
def wheel(name, size):
    path = pathlib.Path("/tmp") / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(f"{name}/__init__.py", "here = True")
        file.writestr(f"{name}/large.bin", bytes(size))
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        file.writestr(f"{info}/RECORD", "")
    return path
small, large = wheel("smallpack", 1000), wheel("largepack", 300 << 20)
"""


@pytest.mark.parametrize("limits", [None, {"disk": "128MiB", "memory": "512MiB"}])
async def test_packages_are_on_the_disk_of_the_workspace(mesh: Mesh, limits: dict[str, str] | None) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0], limits=limits) as box:
        assert (await box.run_shell_command(DEVICES)).stdout == "1\n"
        if limits:
            size = await box.run_shell_command("df --output=size -B1 ~ | tail -1")
            assert int(size.stdout) == 128 << 20


@pytest.mark.parametrize("install", ["!pip", "%pip", "!python -m pip"])
async def test_a_full_disk_names_the_bound_and_the_remedy_and_leaves_nothing_by_half(mesh: Mesh, install: str) -> None:
    limits = {"disk": "128MiB", "memory": "512MiB"}
    async with BaseSandboxAsync(base_url=mesh.addresses[0], limits=limits) as box:
        await box.run_ipython_cell(WHEEL)
        failed = await box.run_ipython_cell(f"{install} install --no-index {{small}} {{large}}")
        assert "No space left on device" in failed.text
        assert failed.is_error == (install == "%pip"), failed.text
        assert "is on a disk of 128 MiB, which was full" in failed.text
        assert "half installed was removed: largepack" in failed.text
        assert 'limits={"disk"' in failed.text
        await box.run_ipython_cell(f"{install} install --no-index {{small}}")
        shown = await box.run_ipython_cell("import smallpack; smallpack.here")
        assert shown.text == "True"
        missing = await box.run_ipython_cell("import largepack")
        assert "ModuleNotFoundError" in missing.text


@pytest.mark.parametrize("removal", ["rm -rf ~/.venv", "rm -rf ~/.venv/*", "rm ~/.venv/pyvenv.cfg ~/.venv/bin/p*"])
async def test_a_layer_that_was_removed_is_there_again_for_the_next_command_and_cell(mesh: Mesh, removal: str) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.run_ipython_cell(WHEEL.replace("300 << 20", "1"))
        for by_shell in (True, False):
            await box.run_shell_command(removal)
            if by_shell:
                await box.run_shell_command("pip install --no-index --force-reinstall /tmp/smallpack*.whl")
            else:
                await box.run_ipython_cell("%pip install --no-index --force-reinstall {small}")
            shown = await box.run_ipython_cell("import smallpack; smallpack.__file__")
            assert f"{HOME}/.venv/lib/" in shown.text


@pytest.mark.parametrize(
    "install", ["%pip install --user", "!pip3 install --user", "!PIP_USER=1 python -m pip install"]
)
async def test_what_is_installed_for_the_user_is_installed_like_everything(mesh: Mesh, install: str) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.run_ipython_cell(WHEEL.replace("300 << 20", "1"))
        done = await box.run_ipython_cell(f"{install} --no-index {{small}}")
        assert "Successfully installed smallpack" in done.text
        assert ("--user is left out" in done.text) == ("--user" in install)
        shown = await box.run_ipython_cell("import smallpack; smallpack.__file__")
        assert f"{HOME}/.venv/lib/" in shown.text


async def test_a_kernel_that_is_created_after_an_install_finds_the_package(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.run_ipython_cell(WHEEL.replace("300 << 20", "1"))
        await box.run_shell_command("pip install --no-index /tmp/smallpack*.whl")
        for _ in range(2):
            kernel = await box.kernels.create()
            shown = await kernel.run("import sys, smallpack\nsmallpack.__file__, [p for p in sys.path if '.venv' in p]")
            file, paths = ast.literal_eval(shown.text)
            assert file == f"{paths[0]}/smallpack/__init__.py"
            assert len(paths) == 1
