"""Templates that ship MCP servers: in a file, with a class, and what of that is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandmesh import BaseSandboxAsync, SandboxAsync, SandboxRegistry, errors
from sandmeshd.templates import open_catalog
from tests.mesh.conftest import MeshMaker, run_mesh

PROGRAM = Path(__file__).with_name("mcp_program.py").read_text()
WELL = {"command": "python", "args": ["-c", PROGRAM]}
SERVERS = {"mcpServers": {"well": WELL, "broken": {"command": "sh", "args": ["-c", "echo cannot >&2; exit 4"]}}}


@SandboxRegistry.register("runtime-sandbox-base", sandbox_type="served", mcp_config=SERVERS)
class ServedAsync(BaseSandboxAsync):
    """A sandbox with servers of its own."""


async def check(box: SandboxAsync) -> None:
    """Servers are there before anybody adds some, run with the first call that means them, and fail one by one."""
    assert [(server.name, server.starts) for server in await box.list_mcp_servers()] == [("broken", 0), ("well", 0)]
    assert (await box.call_tool("well.echo", {"text": "shipped"})).text == "shipped"
    listed = await box.list_tools()
    assert "echo" in listed["well"]
    states = {server.name: (server.state, server.log[-1:]) for server in await box.list_mcp_servers()}
    assert states == {"well": ("READY", ("test server, well",)), "broken": ("FAILED", ("cannot",))}
    assert (await box.call_tool("echo", {"text": "by its own name"})).text == "by its own name"


async def test_sandboxes_of_a_template_file_have_the_servers_that_it_names(
    make_mesh: MeshMaker, tmp_path: Path
) -> None:
    (tmp_path / "servers.json").write_text(json.dumps(SERVERS))
    template = tmp_path / "filed.yaml"
    template.write_text("extends: base\nnetwork: none\nmcp_config: servers.json\n")
    async with (
        make_mesh(templates=(template,)) as mesh,
        BaseSandboxAsync(base_url=mesh.addresses[0], sandbox_type="filed") as box,
    ):
        await check(box)


async def test_sandboxes_of_a_class_have_the_servers_that_it_was_registered_with() -> None:
    async with run_mesh() as mesh, ServedAsync(base_url=mesh.addresses[0]) as box:
        await check(box)


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        (None, "servers.json: .*No such file"),
        ("{", "servers.json: "),
        ("[]", "mcp_config must be a mapping"),
        ('{"servers": {}}', r"mcp_config: .*it has 'servers'"),
        ('{"mcpServers": {"a": {}}}', "mcp_config: .*'a': it has either a command or a url"),
    ],
    ids=["no file", "no JSON", "a list", "no mcpServers", "a server that is none"],
)
def test_a_template_file_whose_servers_do_not_fit_stops_the_meshs_start(
    tmp_path: Path, servers: str | None, said: str
) -> None:
    if servers is not None:
        (tmp_path / "servers.json").write_text(servers)
    template = tmp_path / "filed.toml"
    template.write_text('mcp_config = "servers.json"\n')
    with pytest.raises(errors.InvalidArgument, match=f"(?s)filed.*{said}"):
        open_catalog((), (template,))
