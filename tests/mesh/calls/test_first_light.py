"""One sandbox through the real mesh: SDK, gateway, broker, allocator, store, driver, agent, kernel."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from sandmesh import BaseSandboxAsync, FilesystemSandboxAsync, SandboxAsync, errors
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import MeshMaker
from tests.unit.store.servers import external_server


async def test_a_cell_prints(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        result = await box.run_ipython_cell("print('Hello, World!')")
    assert result["content"][0]["text"] == "Hello, World!\n"
    assert result["isError"] is False
    assert json.loads(json.dumps(result)) == result


async def test_the_value_of_the_last_expression_is_shown(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        result = await box.run_ipython_cell(code="1+1")
    assert result.text.strip() == "2"


async def test_variables_stay_for_the_next_cell(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.run_ipython_cell("x = 41")
        assert "42" in (await box.run_ipython_cell("x + 1")).text


async def test_a_command_gives_output_and_exit_code(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        result = await box.run_shell_command("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code, result.is_error) == ("out\n", "err\n", 3, True)


async def test_what_is_written_to_stderr_is_no_error(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        result = await box.run_shell_command("echo warning >&2")
    assert result.is_error is False


async def test_an_exception_in_a_cell_is_a_result(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        result = await box.run_ipython_cell("1/0")
    assert result.is_error
    assert "ZeroDivisionError" in result.stderr
    assert "\x1b[" not in result.text


async def test_a_plot_comes_back_as_an_image(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        result = await box.run_ipython_cell("import matplotlib.pyplot as plt; plt.plot([1, 2, 3]); plt.show()")
    assert len(result.images) == 1
    assert result.images[0].startswith(b"\x89PNG\r\n")


async def test_files_written_by_a_tool_are_seen_by_code(mesh: Mesh) -> None:
    async with FilesystemSandboxAsync(base_url=mesh.addresses[0]) as box:
        await box.write_file("a/b.txt", "hello")
        assert "hello" in (await box.run_ipython_cell("print(open('a/b.txt').read())")).text
        assert (await box.read_file("a/b.txt")).text == "hello"


async def test_a_dead_kernel_is_replaced(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        died = await box.run_ipython_cell("import os; os._exit(7)")
        assert died.is_error
        assert (await box.run_ipython_cell("2 + 2")).text.strip() == "4"


async def test_a_command_over_its_time_is_a_result(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        result = await box.run_shell_command("echo before; sleep 60", timeout=4)
    assert result.is_error
    assert result.stdout == "before\n"
    assert result["meta"]["reason"] == "TIMED_OUT"


async def test_tools_are_listed_with_schemas(mesh: Mesh) -> None:
    async with FilesystemSandboxAsync(base_url=mesh.addresses[0]) as box:
        tools = await box.list_tools()
    assert set(tools) == {"generic", "git", "filesystem"}
    assert len(tools["filesystem"]) == 11
    function = tools["generic"]["run_ipython_cell"]["json_schema"]["function"]
    assert function["parameters"]["required"] == ["code"]


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("no_such_tool", {}, errors.ToolNotFound),
        ("read_file", {"path": "a"}, errors.ToolNotFound),
        ("run_shell_command", {}, errors.InvalidArgument),
        ("run_shell_command", {"command": ""}, errors.InvalidArgument),
        ("run_shell_command", {"command": 3}, errors.InvalidArgument),
        ("run_shell_command", {"command": "true", "colour": "red"}, errors.InvalidArgument),
    ],
)
async def test_a_bad_call_is_an_exception(
    mesh: Mesh, name: str, arguments: dict[str, object], expected: type[errors.SandmeshError]
) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        with pytest.raises(expected):
            await box.call_tool(name, arguments)


async def test_an_unknown_template_is_named_with_those_there_are(mesh: Mesh) -> None:
    with pytest.raises(errors.TemplateNotFound) as caught:
        async with SandboxAsync(base_url=mesh.addresses[0], sandbox_type="spaceship"):
            pass
    assert "base" in caught.value.facts["known"]


async def test_what_cannot_be_enforced_is_refused(mesh: Mesh) -> None:
    with pytest.raises(errors.CapabilityMissing):
        async with BaseSandboxAsync(base_url=mesh.addresses[0], limits={"disk": 1 << 60}):
            pass


async def test_a_full_mesh_says_so_within_the_deadline(make_mesh: MeshMaker) -> None:
    async with make_mesh(max_sandboxes=1) as mesh, BaseSandboxAsync(base_url=mesh.addresses[0]):
        with pytest.raises(errors.PoolExhausted) as caught:
            async with BaseSandboxAsync(base_url=mesh.addresses[0], timeout=3):
                pass
        assert caught.value.facts["limit"] == "1"


async def test_a_sandbox_frees_its_place_for_one_that_waits(make_mesh: MeshMaker) -> None:
    async with make_mesh(max_sandboxes=1) as mesh:
        first = BaseSandboxAsync(base_url=mesh.addresses[0])
        await first.start()
        second = BaseSandboxAsync(base_url=mesh.addresses[0], timeout=30)
        waiting = asyncio.create_task(second.start())
        await first.run_ipython_cell("1")
        await first.close()
        await waiting
        assert (await second.run_ipython_cell("1+1")).text.strip() == "2"
        await second.close()


async def test_ten_sandboxes_answer_at_once(mesh: Mesh) -> None:
    async def one(number: int) -> str:
        async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
            return (await box.run_ipython_cell(f"{number} * 10")).text.strip()

    assert await asyncio.gather(*(one(number) for number in range(10))) == [str(n * 10) for n in range(10)]


async def test_a_released_sandbox_is_gone(mesh: Mesh) -> None:
    async with BaseSandboxAsync(base_url=mesh.addresses[0]) as box:
        sandbox_id = box.sandbox_id
    with pytest.raises((errors.SandboxNotFound, errors.SandboxLost)):
        async with BaseSandboxAsync(sandbox_id, base_url=mesh.addresses[0]) as again:
            await again.run_ipython_cell("1")


async def test_a_mesh_keeps_its_records_in_the_redis_that_it_is_given(make_mesh: MeshMaker, tmp_path: Path) -> None:
    async with (
        external_server(tmp_path) as server,
        make_mesh(redis_url=server.unix_url) as mesh,
        BaseSandboxAsync(base_url=mesh.addresses[0]) as box,
        cast("Any", Redis).from_url(server.tcp_url) as client,
    ):
        assert (await box.run_ipython_cell("1+1")).text.strip() == "2"
        keys = [key.decode() async for key in client.scan_iter()]
        assert any(box.sandbox_id in key for key in keys), keys
