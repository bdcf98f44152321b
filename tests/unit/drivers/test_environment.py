"""Building a template's environment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandmesh.errors import TemplateBuildFailed
from sandmeshd.drivers.bubblewrap.app import open_view
from sandmeshd.drivers.bubblewrap.environment import EnvironmentBuilder, home_files
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.node.builds import BuildStep, is_complete
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.templates import PythonEnvironment, load_templates

SMALL = PythonEnvironment(
    requirements=("wheel==0.45.1",),
    warm_up="import os, pathlib; pathlib.Path.home().joinpath('.seed').write_text(str(os.getuid()))",
)
PROGRAM = """
import asyncio, sys
from pathlib import Path
from sandmeshd.drivers.bubblewrap.app import open_view
from sandmeshd.drivers.bubblewrap.environment import EnvironmentBuilder
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.runtime.paths import MeshPaths
from sandmeshd.templates import PythonEnvironment
async def main():
    settings = BubblewrapSettings(paths=MeshPaths("unit", Path(sys.argv[1]), Path(sys.argv[2])))
    builder = EnvironmentBuilder(settings, await open_view(settings))
    async for step in builder.build(PythonEnvironment.model_validate_json(sys.argv[3])):
        print(step.message, flush=True)
asyncio.run(main())
"""


async def _builder(paths: MeshPaths) -> EnvironmentBuilder:
    settings = BubblewrapSettings(paths=paths)
    return EnvironmentBuilder(settings, await open_view(settings))


async def _build(builder: EnvironmentBuilder, python: PythonEnvironment = SMALL) -> list[BuildStep]:
    return [step async for step in builder.build(python)]


def _start(paths: MeshPaths) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", PROGRAM, str(paths.state_root), str(paths.runtime_root), SMALL.model_dump_json()]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


async def test_an_environment_is_built_once_and_says_how_far_it_is(own_paths: MeshPaths) -> None:
    builder = await _builder(own_paths)
    steps = await _build(builder)
    fractions = [step.fraction for step in steps]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0
    assert "fetching wheel" in {step.message for step in steps}
    assert await _build(builder) == []
    _check_scripts(builder.path(SMALL))
    _check_compiled(builder.path(SMALL))
    _check_modes(builder.path(SMALL))


def _check_scripts(built: Path) -> None:
    for script in (built / "bin").iterdir():
        if script.is_file() and not script.is_symlink():
            assert str(built.parent).encode() not in script.read_bytes()
    assert (built / "bin" / "wheel").read_text().startswith("#!/opt/env/bin/python")


def _check_compiled(built: Path) -> None:
    sources = list(built.glob("lib/*/site-packages/wheel/*.py"))
    assert sources
    assert all(list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc")) for path in sources)


def _check_modes(built: Path) -> None:
    for path in (built, *built.rglob("*")):
        facts = path.lstat()
        assert facts.st_uid == os.geteuid()
        assert path.is_symlink() or facts.st_mode & 0o444 == 0o444
    assert home_files(built) == (".seed",)
    assert (built / "home" / ".seed").read_text() == "1000"


async def test_a_package_that_is_not_there_fails_with_pips_words(own_paths: MeshPaths) -> None:
    builder = await _builder(own_paths)
    missing = PythonEnvironment(requirements=("wheel==0.0.0.999",))
    with pytest.raises(TemplateBuildFailed) as caught:
        await _build(builder, missing)
    assert "wheel==0.0.0.999" in caught.value.facts["detail"]
    assert [path.name for path in builder.path(missing).parent.glob("[!.]*")] == []


async def test_a_warm_up_that_fails_fails_the_build(own_paths: MeshPaths) -> None:
    builder = await _builder(own_paths)
    broken = PythonEnvironment(requirements=("wheel==0.45.1",), warm_up="raise RuntimeError('cold')")
    with pytest.raises(TemplateBuildFailed) as caught:
        await _build(builder, broken)
    assert "cold" in caught.value.facts["detail"]


async def test_a_build_goes_on_after_its_builder_was_killed(own_paths: MeshPaths) -> None:
    with _start(own_paths) as process:
        assert process.stdout is not None
        while "looking" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    builder = await _builder(own_paths)
    await _build(builder)
    assert is_complete(builder.path(SMALL))
    names = {path.name for path in builder.path(SMALL).parent.iterdir()}
    assert names == {builder.path(SMALL).name, f".{builder.path(SMALL).name}.lock"}


async def test_a_cancelled_build_leaves_nothing(own_paths: MeshPaths) -> None:
    builder = await _builder(own_paths)
    looking = asyncio.Event()

    async def build() -> None:
        async for step in builder.build(SMALL):
            if "looking" in step.message:
                looking.set()

    task = asyncio.create_task(build())
    async with asyncio.timeout(30):
        await looking.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert [path.name for path in builder.path(SMALL).parent.glob("[!.]*")] == []


@pytest.mark.usefixtures("prepared")
async def test_the_shipped_environment_has_exactly_the_pinned_packages(paths: MeshPaths) -> None:
    python = load_templates()["base"].python
    builder = await _builder(paths)
    assert _installed(builder.path(python)) == {*python.packages}


def _installed(environment: Path) -> set[str]:
    command = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python"), "list", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {f"{row['name'].lower().replace('_', '-')}=={row['version']}" for row in json.loads(done.stdout)}
