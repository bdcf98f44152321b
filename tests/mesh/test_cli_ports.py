"""Commands on ports of sandboxes, on one mesh for all tests of this file."""

from __future__ import annotations

import urllib.request
from collections.abc import Generator

import pytest

from sandmesh import BaseSandbox
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
