"""Commands on ports of sandboxes, on one mesh for all tests of this file."""

from __future__ import annotations

import urllib.request
from collections.abc import Generator

import pytest

from sandmesh import BaseSandbox, BrowserSandbox, GuiSandbox
from tests.mesh.commands import Commands, running_mesh


@pytest.fixture(scope="module")
def sandmesh() -> Generator[Commands]:
    """Run a mesh for the file."""
    with running_mesh() as commands:
        yield commands


@pytest.fixture(scope="module")
def box(sandmesh: Commands) -> Generator[BaseSandbox]:
    """Hold a sandbox."""
    with BaseSandbox(base_url=f"unix://{sandmesh.settings.paths.gateway}") as opened:
        yield opened


def test_a_port_is_exposed_listed_and_closed(sandmesh: Commands, box: BaseSandbox) -> None:
    box.run_shell_command("echo found > page")
    server = box.processes.start(["python3", "-m", "http.server", "--bind", "127.0.0.1", "8000"])
    server.wait_for_port(8000)
    made = sandmesh.run("expose", box.sandbox_id, "8000", "--expires", "10m")
    url = made.out.strip()
    with urllib.request.urlopen(f"{url}page", timeout=30) as answer:  # noqa: S310 - our own address
        assert answer.read() == b"found\n"
    assert "It expires in 10m" in made.err
    [listed] = sandmesh.run("ports", "ls", "-o", "json", box.sandbox_id).json
    assert (listed["port"], listed["url"]) == (8000, url)
    heading, row = sandmesh.run("ports", "ls", box.sandbox_id).out.splitlines()
    assert heading.split()[:2] == ["EXPOSURE", "PORT"]
    assert row.split()[:2] == [listed["exposure_id"], "8000"]
    closed = sandmesh.run("ports", "close", "-o", "json", box.sandbox_id, listed["exposure_id"])
    assert closed.json == {"exposure_ids": [listed["exposure_id"]]}
    assert sandmesh.run("ports", "ls", "-o", "id", box.sandbox_id).out == ""
    server.kill()


@pytest.mark.needs("desktop")
@pytest.mark.parametrize(("options", "kind"), [((), "desktop"), (("--readonly",), "desktop-readonly")])
def test_a_desktop_is_shown_at_a_url(sandmesh: Commands, options: tuple[str, ...], kind: str) -> None:
    with GuiSandbox(base_url=f"unix://{sandmesh.settings.paths.gateway}") as gui:
        made = sandmesh.run("desktop", *options, "--ttl", "10m", gui.sandbox_id)
        with urllib.request.urlopen(made.out.strip(), timeout=30) as answer:  # noqa: S310 - our own address
            assert b"Take over" in answer.read()
        assert "It expires in 10m" in made.err
        [row] = sandmesh.run("ports", "ls", gui.sandbox_id).out.splitlines()[1:]
        assert row.split()[1] == kind


@pytest.mark.needs("chromium")
@pytest.mark.parametrize(("options", "kind"), [((), "browser"), (("--readonly",), "browser-readonly")])
def test_a_browser_is_shown_at_a_url(sandmesh: Commands, options: tuple[str, ...], kind: str) -> None:
    with BrowserSandbox(base_url=f"unix://{sandmesh.settings.paths.gateway}") as browser:
        made = sandmesh.run("browser", *options, "--ttl", "10m", browser.sandbox_id)
        with urllib.request.urlopen(made.out.strip(), timeout=30) as answer:  # noqa: S310 - our own address
            assert b"Take over" in answer.read()
        [row] = sandmesh.run("ports", "ls", browser.sandbox_id).out.splitlines()[1:]
        assert row.split()[1] == kind


def test_a_sandbox_without_a_desktop_says_so(sandmesh: Commands, box: BaseSandbox) -> None:
    assert "desktop" in sandmesh.run("desktop", box.sandbox_id, ok=False).err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("8000", "--expires", "soon"), 2, "not a duration like"),
        (("70000",), 2, "65535"),
        (("8000", "--expires", "31d"), None, "30 days"),
    ],
)
def test_what_cannot_be_exposed_says_why(
    sandmesh: Commands, box: BaseSandbox, arguments: tuple[str, ...], code: int | None, message: str
) -> None:
    done = sandmesh.run("expose", box.sandbox_id, *arguments, ok=False)
    assert done.code == code if code is not None else done.code != 0
    assert message in done.err
