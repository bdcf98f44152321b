"""Browsers and desktops on the drivers of an engine, from images that are built of Debian's packages."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from aiodocker import Docker

from sandmesh import BrowserSandboxAsync, FilesystemSandboxAsync, SandboxAsync
from sandmesh.errors import CapabilityMissing, WrongState
from sandmeshd.drivers.engine.app import build_image
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.runtime.paths import MeshPaths, default_runtime_directory, default_state_directory
from sandmeshd.templates import load_templates
from tests.engine import in_full
from tests.mesh.browser import browser_pages
from tests.mesh.browser.test_browser import bad, good, ref
from tests.mesh.conftest import run_mesh
from tests.mesh.desktop.test_desktop import contents, opened, size_of

pytestmark = [pytest.mark.needs("root", "docker"), pytest.mark.timeout(900)]

GVISOR = pytest.param("gvisor", marks=pytest.mark.needs("runsc"))
MOST_BYTES = 900_000_000
"""The most that an image may have, uncompressed."""
PAGES = Path(browser_pages.__file__).read_bytes()


async def image(engine: str, template: str) -> int:
    """Build the image of a template where it is not there; return its size."""
    paths = MeshPaths("suite-images", default_state_directory(), default_runtime_directory())
    async with aclosing(build_image(DockerSettings(paths=paths, url=engine), load_templates(), template)) as steps:
        async for _ in steps:
            pass
    async with Docker(url=engine) as docker:
        return int((await docker.images.inspect(f"sandmesh/{template}:latest"))["Size"])


@asynccontextmanager
async def mesh_on(driver: str, engine: str) -> AsyncGenerator[str]:
    """Run a mesh of a driver and yield its address."""
    async with run_mesh(driver=driver, docker_url=engine) as mesh:
        yield mesh.addresses[0]


async def typed(box: FilesystemSandboxAsync, text: str) -> str:
    """Type a line into a terminal and return what a program there reads."""
    await box.desktop.launch("xterm", "-T", "writer", "-e", "cat > typed")
    await box.desktop.focus(await opened(box, "writer"))
    await box.desktop.type(text)
    await box.desktop.act({"action": "key", "text": "Return"})
    await box.desktop.act({"action": "key", "text": "ctrl+d"})
    return await contents(box, "typed", "\n")


KEY = re.compile(r'^KeyPress .*?XmbLookupString gives \d+ bytes: \([0-9a-f ]+\) "(.*?)"$', re.DOTALL | re.MULTILINE)


async def pressed(box: FilesystemSandboxAsync, text: str) -> str:
    """Type a text into a window and return what a program is given for its keys, until it was given the text."""
    await box.desktop.launch("sh", "-c", "LC_ALL=C.UTF-8 exec xev -name writer -event keyboard > keys")
    await box.desktop.focus(await opened(box, "writer"))
    await box.desktop.type(text)
    seen = ""
    try:
        async with asyncio.timeout(60):
            while seen != text:
                seen = "".join(KEY.findall((await box.run_shell_command("cat keys 2>/dev/null; true")).text))
    except TimeoutError:
        raise AssertionError(f"the keys gave {seen!r}") from None
    return seen


@pytest.mark.parametrize("driver", ["docker", GVISOR] if in_full() else [GVISOR])
async def test_a_browser_fills_a_form_saves_what_it_shows_and_is_started_anew(driver: str, engine: str) -> None:
    assert await image(engine, "browser") <= MOST_BYTES
    async with mesh_on(driver, engine) as address, BrowserSandboxAsync(base_url=address, timeout=120) as box:
        await box.fs.write("pages.py", PAGES)
        server = await box.processes.start("python3 pages.py 8000")
        await server.wait_for_port(8000)
        page = good(await box.browser_navigate("http://localhost:8000/"))
        good(await box.browser_type("Name", ref(page, 'textbox "Name"'), "Ada"))
        assert (await box.browser_take_screenshot()).images[0].startswith(b"\xff\xd8")
        good(await box.browser_pdf_save("page.pdf"))
        assert (await box.fs.read("page.pdf", "bytes")).startswith(b"%PDF")
        page = good(await box.browser_click("Order", ref(page, 'button "Order"')))
        assert "name=Ada" in page
        page = good(await box.browser_tab_new("http://localhost:8000/second"))
        assert len((await box.call_tool("browser_tab_list", {})).text.split("\n- ")) == 3
        await box.run_shell_command("pkill -9 -f user-data-dir")
        assert "ended unexpectedly" in bad(await box.browser_click("Second", "e1"))
        assert "- Page Title: Shop" in good(await box.browser_navigate("http://localhost:8000/"))
        assert (await box.get_info())["enforced"]["browser's own sandbox"].startswith("off: ")


DESKTOPS = [
    pytest.param("docker", "gui"),
    *(
        pytest.param(driver, template, marks=pytest.mark.needs("runsc"))
        for driver, template in (("gvisor", "gui"), ("docker", "desktop"), ("gvisor", "desktop"))
        if in_full()
    ),
]


@pytest.mark.parametrize(("driver", "template"), DESKTOPS)
async def test_a_desktop_takes_keys_shows_windows_and_is_started_again(driver: str, template: str, engine: str) -> None:
    assert await image(engine, template) <= MOST_BYTES
    async with (
        mesh_on(driver, engine) as address,
        FilesystemSandboxAsync(base_url=address, template=template, timeout=120) as box,
    ):
        assert size_of(await box.desktop.screenshot()) == (1024, 768)
        if driver == "docker":
            assert await typed(box, "Grüße, 你好") == "Grüße, 你好\n"
        else:
            assert await pressed(box, "Grüße, 你好") == "Grüße, 你好"
            with pytest.raises(WrongState, match="xterm does not run here: gVisor"):
                await box.desktop.launch("xterm")
        await box.desktop.set_clipboard("copied")
        assert await box.desktop.get_clipboard() == "copied"
        await box.desktop.resize(1280, 800)
        assert size_of(await box.desktop.screenshot()) == (1280, 800)
        await box.run_shell_command("pkill -9 Xtigervnc")
        async with asyncio.timeout(60):
            while (await box.call_tool("take_screenshot", {})).is_error:
                pass


async def test_packages_that_no_image_has_are_named_with_the_command_that_builds_it(
    engine: str, tmp_path: Path
) -> None:
    (tmp_path / "packaged.yaml").write_text("description: Debian packages\nsystem: [hello]\n")
    templates = (tmp_path / "packaged.yaml",)
    async with run_mesh(driver="docker", docker_url=engine, templates=templates) as mesh:
        box = SandboxAsync(base_url=mesh.addresses[0], sandbox_type="packaged")
        with pytest.raises(CapabilityMissing, match="sandmesh build packaged --driver docker") as caught:
            await box.start()
    assert caught.value.facts["needs"] == "system"
