"""The filesystem tools through the whole mesh."""

from __future__ import annotations

import json

import pytest

from sandmesh import BaseSandboxAsync, FilesystemSandboxAsync
from sandmeshd.mesh import Mesh


async def test_a_text_larger_than_a_message_comes_back_whole(mesh: Mesh) -> None:
    text = "naïve 你好 🎈 " * 300_000
    async with FilesystemSandboxAsync(base_url=mesh.addresses[0]) as box:
        written = await box.write_file("large.txt", text)
        assert not written.is_error, written.text
        read = await box.read_file("large.txt")
    assert read.text == text
    assert len(read.content) == 1


async def test_a_link_that_code_makes_leads_no_tool_out(mesh: Mesh) -> None:
    async with FilesystemSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.run_shell_command("ln -s /etc outside && ln -s /workspace/a inside && mkdir a && echo hi > a/b")
        refused = await box.read_file("outside/passwd")
        assert refused.is_error
        assert "Allowed: /workspace" in refused.text
        assert (await box.read_file("inside/b")).text == "hi\n"


async def test_a_name_that_is_not_utf8_is_listed_and_bash_takes_it_back(mesh: Mesh) -> None:
    async with FilesystemSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.run_shell_command("printf x > $'caf\\xe9'")
        shown = (await box.list_directory(".")).text.strip().removeprefix("[FILE] ")
        assert (await box.run_shell_command(f"cat {shown}")).stdout == "x"


async def test_a_tree_is_json(mesh: Mesh) -> None:
    async with FilesystemSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.write_file("a/b.txt", "x")
        tree = await box.directory_tree(".")
    expected = [{"name": "a", "type": "directory", "children": [{"name": "b.txt", "type": "file"}]}]
    assert json.loads(tree.text) == expected
    assert tree.structured == {"entries": expected}


@pytest.mark.parametrize("path", ["/etc/passwd", "../../etc/passwd", "/proc/1/environ", "/run/agent/agent.sock"])
async def test_what_is_outside_the_workspace_is_a_result_that_says_so(mesh: Mesh, path: str) -> None:
    async with FilesystemSandboxAsync(base_url=mesh.addresses[0]) as box:
        refused = await box.read_file(path)
    assert refused.is_error
    assert "outside" in refused.text


async def test_a_box_of_another_type_has_no_file_tools(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        assert "filesystem" not in await box.list_tools()
