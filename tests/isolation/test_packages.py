"""What users install in a sandbox goes into a layer of its own, from an index that the test serves."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import zipfile
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from sandmeshd.drivers.egress import EgressSettings, PackageIndexes
from tests.isolation.world import Box, World, new_paths, open_world
from tests.unit.drivers.egress.harness import Names, serving


def wheel(name: str, version: str, module: str = "") -> bytes:
    """Build a wheel with one module that knows its version, and a program of its name."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{module or name}.py": f"VERSION = {version!r}\ndef main(): print(VERSION)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {module or name}:main\n",
    }
    rows = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return made.getvalue()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


WHEELS = {
    "tinypack-1.0-py3-none-any.whl": wheel("tinypack", "1.0"),
    "tinypack-2.0-py3-none-any.whl": wheel("tinypack", "2.0"),
    # A package that the template has, in a version that it does not have.
    "wcwidth-99.0-py3-none-any.whl": wheel("wcwidth", "99.0"),
}


async def index(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer as a package index does."""
    path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
    body = WHEELS.get(path.rpartition("/")[2])
    if body is None:
        wanted = path.strip("/").rpartition("/")[2]
        links = [f'<a href="/files/{name}">{name}</a>' for name in WHEELS if name.startswith(f"{wanted}-")]
        body = "\n".join(links).encode()
    kind = b"text/html" if b"<a" in body[:2] else b"application/octet-stream"
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind, len(body)) + body)
    await writer.drain()


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world() -> AsyncGenerator[World]:
    """Start a world in which the preset names the test's index."""
    async with serving(index) as port, new_paths() as paths:
        settings = EgressSettings(indexes=PackageIndexes(pip=f"http://index.test:{port}/simple"))
        async with open_world(Names(index_test=[["10.7.7.7"]]), paths, egress=settings) as made:
            yield made


@pytest_asyncio.fixture(loop_scope="module")
async def box(world: World) -> AsyncGenerator[Box]:
    """Start a sandbox that may use the index, by the preset that names it."""
    async with world.box("packages") as made:
        yield made


async def test_what_a_cell_installs_the_next_one_imports(box: Box) -> None:
    assert "ModuleNotFoundError" in await box.cell("import tinypack")
    assert "Successfully installed tinypack-1.0" in await box.cell("%pip install --progress-bar off tinypack==1.0")
    assert "1.0" in await box.cell("import tinypack; print(tinypack.VERSION)")
    await box.cell("!pip uninstall -qy tinypack")
    assert "ModuleNotFoundError" in await box.cell("import sys; del sys.modules['tinypack']; import tinypack")


async def test_what_a_command_installs_is_for_cells_and_programs_alike(box: Box) -> None:
    assert await box.cell("1") == "1"
    installed = await box.shell("pip install tinypack && tinypack")
    assert installed.stdout.endswith("2.0\n"), installed.stderr
    assert "2.0" in await box.cell("import tinypack; print(tinypack.VERSION)")
    assert "2.0" in await box.cell("!tinypack")
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import tinypack; tinypack.main()'])"
    assert "2.0" in await box.cell(program)


async def test_a_package_of_the_template_can_be_replaced_and_comes_back(box: Box) -> None:
    before = (await box.shell("python -c 'import wcwidth; print(wcwidth.__file__)'")).stdout
    assert before.startswith("/opt/env/")
    done = await box.shell("pip install wcwidth==99.0 && python -c 'import wcwidth; print(wcwidth.VERSION)'")
    assert done.stdout.endswith("99.0\n"), done.stderr
    await box.shell("pip uninstall -y wcwidth")
    assert (await box.shell("python -c 'import wcwidth; print(wcwidth.__file__)'")).stdout == before
    listed = (await box.shell("pip list")).stdout
    assert "numpy" in listed


async def test_the_layer_can_be_kept_in_the_workspace(world: World) -> None:
    async with world.box("packages", VIRTUAL_ENV="/workspace/.venv") as box:
        await box.shell("pip install -q tinypack")
        assert "/workspace/.venv/lib/" in await box.cell("import tinypack; print(tinypack.__file__)")
        assert (await box.shell("tinypack")).stdout == "2.0\n"


async def test_a_cell_sees_the_proxy_that_commands_see(box: Box) -> None:
    for name in ("HTTPS_PROXY", "no_proxy", "PIP_INDEX_URL", "VIRTUAL_ENV", "PATH"):
        seen = (await box.shell(f"printenv {name}")).stdout
        assert await box.cell(f"import os; print(os.environ['{name}'])") == seen
