"""Templates of users' own: registered in a program, told to its mesh, and enforced there."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
import pytest_asyncio

from sandmesh import (
    BaseSandbox,
    BaseSandboxAsync,
    Sandbox,
    SandboxAsync,
    SandboxRegistry,
    SandboxService,
    errors,
)
from sandmesh.api.template.v1 import template_pb2, template_pb2_grpc
from sandmeshd.mesh import Mesh
from tests.mesh.conftest import MeshMaker
from tests.mesh.sandboxes.template_classes import AtelierAsync, NotBuiltYet, WeatherSandbox

T = TypeVar("T")


@pytest.fixture
def mesh(fresh_mesh: Mesh) -> Mesh:
    """Run a mesh for each test, which looks at all that is in it."""
    return fresh_mesh


@pytest_asyncio.fixture(loop_scope="module")
async def weather(mesh: Mesh) -> AsyncIterator[WeatherSandbox]:
    """Open a sandbox of a registered class, on a mesh that was started without it."""
    box = WeatherSandbox(base_url=mesh.addresses[0])
    await asyncio.to_thread(box.start)
    yield box
    await asyncio.to_thread(box.close)


async def in_thread(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call)


async def test_what_a_class_was_registered_with_holds_in_its_sandboxes(weather: WeatherSandbox) -> None:
    def look() -> None:
        assert weather.sandbox_type == "weather"
        assert weather.run_shell_command("echo $STATION").stdout == "north\n"
        info = weather.get_info()
        assert info["spec"]["limits"] == {"pids": 64, "file_bytes": str(2**20)}
        assert info["enforced"]["network"].startswith("none")
        assert weather.run_shell_command("ulimit -f").stdout.strip() == "1024"

    await in_thread(look)


async def test_own_tools_run_inside_apart_from_users_cells(weather: WeatherSandbox) -> None:
    def look() -> None:
        assert weather.to_fahrenheit(celsius=100).text == "212.0"
        assert weather.to_fahrenheit(36.66, 2).text == "97.99"
        assert weather.call_tool("to_fahrenheit", {"celsius": 0, "digits": 0}).text == "32.0"
        assert weather.describe(place="Oslo").text.startswith("Oslo, measured in the north as uid ")
        assert weather.table(rows=2).records[0][1]["row"] == 1
        function = weather.list_tools("own")["own"]["to_fahrenheit"]["json_schema"]["function"]
        assert function["description"] == "Convert a temperature."
        assert function["parameters"]["required"] == ["celsius"]
        assert "table" in [tool["name"] for tool in weather.as_tools("mcp")]
        assert weather.table(rows=-(10**30)).is_error
        wrong: list[dict[str, Any]] = [{}, {"celsius": "warm"}, {"celsius": 1, "colour": "red"}]
        for arguments in wrong:
            with pytest.raises(errors.InvalidArgument, match=r"celsius|colour"):
                weather.call_tool("to_fahrenheit", arguments)
            with pytest.raises(errors.InvalidArgument, match=r"celsius|colour"):
                weather.to_fahrenheit(**arguments)
        weather.run_ipython_cell("to_fahrenheit = 1")
        assert weather.to_fahrenheit(celsius=0).text == "32.0"
        assert "NameError" in weather.run_ipython_cell("_spec").stderr

    await in_thread(look)


async def test_directories_in_memory_are_each_sandboxes_own_below_a_root_that_is_read_only(
    make_mesh: MeshMaker,
) -> None:
    @SandboxRegistry.register(
        "runtime-sandbox-base", sandbox_type="tasks", scratch=["/app", "/logs"], idle_timeout=300, on_idle="pause"
    )
    class TasksAsync(BaseSandboxAsync): ...

    async with make_mesh() as mesh:
        async with TasksAsync(base_url=mesh.addresses[0]) as one, TasksAsync(base_url=mesh.addresses[0]) as other:
            assert not (
                await one.run_shell_command("mkdir -p /app/src && echo 1 > /app/src/a && chmod 777 /logs")
            ).is_error
            assert (await one.run_ipython_cell("open('/app/src/a').read()")).text.strip() == repr("1\n")
            assert (await other.run_shell_command("ls -A /app /logs")).stdout == "/app:\n\n/logs:\n"
            info = await one.get_info()
            assert (info["idle_timeout"], info["on_idle"]) == ("300s", "IDLE_ACTION_PAUSE")
            assert "Read-only file system" in (await one.run_shell_command("touch /other")).stderr
        async with BaseSandboxAsync(base_url=mesh.addresses[0]) as plain:
            assert (await plain.run_shell_command("ls -d /app")).is_error
        # An environment variable that Python reads at its start takes a bwrap of its own.
        async with TasksAsync(
            base_url=mesh.addresses[0], env={"LC_ALL": "C"}, idle_timeout=60, on_idle="release"
        ) as own:
            info = await own.get_info()
            assert (info["idle_timeout"], info["on_idle"]) == ("60s", "IDLE_ACTION_RELEASE")
            assert (await own.run_shell_command("echo 1 > /app/a && cat /app/a")).stdout == "1\n"


async def test_a_creator_may_state_less_than_the_template_but_not_more(mesh: Mesh) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"limits": {"pids": 65}}, "at most 64"),
        ({"network": "public"}, "security level high"),
        ({"network": ["example.org"]}, "security level high"),
    ]
    for options, said in refused:
        with pytest.raises(errors.InvalidArgument, match=said):
            await in_thread(WeatherSandbox(base_url=mesh.addresses[0], **options).start)
    async with SandboxAsync(base_url=mesh.addresses[0], sandbox_type="weather", limits={"pids": 48}) as box:
        assert (await box.get_info())["spec"]["limits"]["pids"] == 48
    # A class whose image does not exist was registered all the same.
    with pytest.raises(errors.CapabilityMissing, match="runtime-sandbox-not_built_yet:latest") as caught:
        await in_thread(NotBuiltYet(base_url=mesh.addresses[0]).start)
    assert "runtime-sandbox-base" in caught.value.facts["fix"]


async def test_async_classes_services_and_types_by_name_make_the_same_sandboxes(mesh: Mesh) -> None:
    async with AtelierAsync(base_url=mesh.addresses[0]) as box:
        assert box.sandbox_type == "atelier"
        await box.write_file("a.txt", "b")
        assert (await box.run_shell_command("cat a.txt")).stdout == "b"
    service = SandboxService(base_url=mesh.addresses[0])
    await service.start()
    (weather,) = await in_thread(lambda: service.connect("s", "ada", ["weather"]))
    assert isinstance(weather, WeatherSandbox)
    assert (await in_thread(lambda: weather.to_fahrenheit(celsius=0))).text == "32.0"
    await service.release_async("s", "ada")
    await service.stop()


async def test_a_mesh_takes_extensions_and_files_and_a_user_without_the_class_has_its_sandboxes(
    make_mesh: MeshMaker, tmp_path: Path
) -> None:
    (tmp_path / "quiet.yaml").write_text(
        "image: runtime-sandbox-filesystem\nlimits: {pids: 32}\nnetwork: none\nenvironment: {QUIET: 'yes'}\n"
    )
    (tmp_path / "pair.toml").write_text('name = "pair"\nextends = "base"\ntimeout = 1.5\n')
    extension = tmp_path / "own.py"
    extension.write_text(
        "from sandmesh import BaseSandbox, SandboxRegistry\n"
        "@SandboxRegistry.register('runtime-sandbox-base', sandbox_type='extended', environment={'EXTENDED': 'yes'})\n"
        "class Extended(BaseSandbox): ...\n"
    )
    files = (tmp_path / "quiet.yaml", tmp_path / "pair.toml")
    async with make_mesh(extensions=(str(extension),), templates=files, pools={"quiet": 1}) as mesh:
        async with BaseSandboxAsync(base_url=mesh.addresses[0], sandbox_type="extended") as extended:
            assert (await extended.run_shell_command("echo $EXTENDED")).stdout == "yes\n"
        async with SandboxAsync(base_url=mesh.addresses[0], sandbox_type="quiet") as box:
            assert (await box.call_tool("run_shell_command", {"command": "echo $QUIET"})).stdout == "yes\n"
            assert "read_file" in (await box.list_tools())["filesystem"]
        async with BaseSandboxAsync(base_url=mesh.addresses[0], sandbox_type="pair") as pair:
            assert (await pair.run_shell_command("sleep 600"))["meta"]["reason"] == "TIMED_OUT"
            process = await pair.processes.start("sleep 2.2")
            assert (await process.wait()).exit_code == 0, "a process has no such bound"


async def test_a_definition_is_replaced_by_its_owner_and_never_one_of_the_meshs_own(mesh: Mesh) -> None:
    async with grpc.aio.insecure_channel(mesh.addresses[0].replace("unix://", "unix:")) as channel:
        stub = template_pb2_grpc.TemplateServiceStub(channel)

        async def register(**fields: str) -> template_pb2.RegisterTemplateResponse:
            definition = template_pb2.TemplateDefinition(**fields)  # type: ignore[arg-type]
            return await stub.RegisterTemplate(template_pb2.RegisterTemplateRequest(definition=definition))

        first = await register(name="mine", description="one")
        assert (await register(name="mine", description="one")).changed is False
        second = await register(name="mine", description="two")
        assert second.changed
        assert second.generation != first.generation
        for fields in ({"name": "base", "description": "mine now"}, {"name": "Mine"}, {"name": "m", "extends": "none"}):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await register(**fields)
            assert caught.value.code() in (grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.INVALID_ARGUMENT)


async def test_who_is_no_administrator_adds_nothing_and_hears_what_to_do(make_mesh: MeshMaker) -> None:
    token = secrets.token_hex(16)
    async with make_mesh(listen=("127.0.0.1:0",), bearer_token=token, bearer_user="ada") as mesh:
        box = WeatherSandbox(base_url=mesh.addresses[1], bearer_token=token)
        with pytest.raises(errors.TemplateNotFound, match="--extension") as caught:
            await in_thread(box.start)
        assert "weather" not in caught.value.facts["known"]


async def test_a_mesh_that_was_started_anew_is_told_again(make_mesh: MeshMaker) -> None:
    mesh_id = f"test-{secrets.token_hex(5)}"
    for _ in range(2):
        async with make_mesh(mesh_id=mesh_id) as mesh:
            # A sync box's connection stays in its loop when the box is closed, and what was told on it is remembered.
            box = Sandbox(base_url=mesh.addresses[0], sandbox_type="weather")
            await in_thread(box.start)
            await in_thread(box.close)


def test_a_base_box_knows_nothing_of_other_classes() -> None:
    assert BaseSandbox(base_url="grpc://127.0.0.1:1").sandbox_type == "base"
