"""Boxes, files, services, types and images of AgentScope Runtime: their old arguments and exactly their old results."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandmeshd.mesh import Mesh
from tests.mesh.snippets import run

pytestmark = pytest.mark.usefixtures("at_the_mesh")

CONNECTED = """
import asyncio
from agentscope_runtime.engine.services.sandbox import SandboxService
from agentscope_runtime.sandbox import BaseSandbox


async def main():
    sandbox_service = SandboxService(drain_on_stop=False)
    await sandbox_service.start()
    sandboxes = sandbox_service.connect(session_id="session_mcp", user_id="user_mcp", sandbox_types=["base"])
    sandbox = sandboxes[0]
    sandbox.fs.write("server.py", program)
    configs = {"mcpServers": {"well": {"command": "python", "args": ["server.py"]}}}
    sandbox.add_mcp_servers(server_configs=configs)
    called = sandbox.call_tool("echo", arguments={"text": "said again"})
    (default,) = sandbox_service.connect("session_mcp", "user_mcp")
    await sandbox_service.stop()
    return isinstance(sandbox, BaseSandbox), called, sandbox is default


own, called, same = asyncio.run(main())


async def drain():
    sandbox_service = SandboxService()
    await sandbox_service.start()
    sandbox_service.connect(session_id="session_mcp", user_id="user_mcp")
    before = sandbox_service.list_sessions("user_mcp")
    await sandbox_service.stop()
    return before, sandbox_service.list_sessions("user_mcp")


before, after = asyncio.run(drain())
"""

FACTORY = """
import asyncio
import os
from agentscope_runtime.engine.services.sandbox import SandboxService, SandboxServiceFactory


class Custom:
    def __init__(self, endpoint, color="none"):
        self.endpoint, self.color = endpoint, color


async def main():
    os.environ["SANDBOX_DEFAULT_BASE_URL"] = "grpc://nowhere.example:1"
    service = await SandboxServiceFactory.create(base_url=base_url, not_an_argument=1)
    (box,) = service.connect("of-a-factory")
    cell = box.run_ipython_cell("print(1)")
    await service.stop()
    SandboxServiceFactory.register_backend("Custom", Custom)
    os.environ.update(SANDBOX_BACKEND="custom", SANDBOX_CUSTOM_ENDPOINT="https://api.example.com")
    return service, cell, await SandboxServiceFactory.create(color="red", shape="round")


service, cell, custom = asyncio.run(main())
"""

FILES = """
import io
from agentscope_runtime.sandbox import BaseSandbox

with BaseSandbox() as box:
    fs = box.fs
    same_id = fs.sandbox_id == box.sandbox_id
    wrote = fs.write("dir/a.txt", "one\\r\\ntwo\\n", content_type="text/plain")
    many = fs.write_many(
        [
            {"path": "dir/b.bin", "data": b"0123456789", "content_type": "image/png"},
            {"path": "dir/sub/c.txt", "data": io.StringIO("text")},
            {"path": "dir/d.bin", "data": io.BytesIO(b"file")},
        ]
    )
    text, raw = fs.read("dir/a.txt"), fs.read("dir/a.txt", fmt="bytes")
    pieces = list(fs.read("dir/b.bin", "stream", chunk_size=4))
    copied = fs.write_from_path("dir/local.txt", local, content_type="text/plain")
    box.run_shell_command("ln -s a.txt dir/link; ln -s nowhere dir/dangling")
    listed = {entry["path"]: entry["type"] for entry in fs.list("dir")}
    deep = {entry["path"] for entry in fs.list("/workspace/dir", depth=2)}
    made = [fs.mkdir("new/deeper"), fs.mkdir("new/deeper")]
    moved = fs.move("dir/a.txt", "other/place/b.txt")
    over = fs.move("dir/d.bin", "dir/b.bin")
    removed = [fs.remove("dir"), fs.remove("dir"), fs.exists("dir"), fs.exists("other")]
    mode = fs.stat("other/place/b.txt").mode
"""

FILES_ASYNC = """
import asyncio
from agentscope_runtime.sandbox import BaseSandboxAsync


async def main():
    box = await BaseSandboxAsync().start_async()
    fs = box.fs
    wrote = await fs.write_async("dir/a.txt", "text", content_type="text/plain")
    many = await fs.write_many_async([{"path": "dir/b.bin", "data": bytearray(b"0123")}])
    read = [await fs.read_async("dir/a.txt"), await fs.read_async("dir/b.bin", fmt="bytes")]
    stream = await fs.read_async("dir/b.bin", fmt="stream")
    streamed = b"".join([chunk async for chunk in stream])
    copied = await fs.write_from_path_async("dir/local.txt", local)
    listed = [entry["name"] for entry in await fs.list_async("dir")]
    made = [await fs.mkdir_async("new"), await fs.mkdir_async("new")]
    moved = await fs.move_async("dir/a.txt", "other/a.txt")
    removed = [await fs.remove_async("dir"), await fs.remove_async("dir"), await fs.exists_async("dir")]
    missing = None
    try:
        await fs.move_async("dir/a.txt", "never/made")
    except FileNotFoundError as error:
        missing = error, await fs.exists_async("never")
    await box.close_async()
    return wrote, many, read, streamed, copied, listed, made, moved, removed, missing


wrote, many, read, streamed, copied, listed, made, moved, removed, missing = asyncio.run(main())
"""

TYPES = """
from agentscope_runtime.sandbox.enums import SandboxType
from agentscope_runtime.sandbox.utils import build_image_uri

SandboxType.add_member("ADDED_HERE")
builtin, dynamic = SandboxType.get_builtin_members(), SandboxType.get_dynamic_members()
images = [
    build_image_uri("runtime-sandbox-base", registry=""),
    build_image_uri("runtime-sandbox-base", tag="v1.2.3", registry="registry.example"),
]
"""

DESKTOP = """
import asyncio
from urllib.request import urlopen
from agentscope_runtime.sandbox import FilesystemSandbox, FilesystemSandboxAsync

with FilesystemSandbox() as box:
    kind, listed = box.sandbox_type, box.list_directory(".")
    pages = [urlopen(box.desktop_url).read().decode()]


async def main():
    async with FilesystemSandboxAsync() as box:
        return await asyncio.to_thread(lambda url: urlopen(url).read().decode(), await box.get_desktop_url_async())


pages.append(asyncio.run(main()))
"""


@pytest.mark.filterwarnings("ignore:this blocks the running event loop:RuntimeWarning")
async def test_boxes_of_a_service_have_the_old_names_and_end_with_it_unless_it_does_not_drain(
    mesh: Mesh, old_paths: None
) -> None:
    program = (Path(__file__).parents[1] / "mcp" / "mcp_program.py").read_text()
    connected = await asyncio.to_thread(run, CONNECTED, program=program)
    assert connected["own"]
    assert connected["same"]
    assert connected["called"].text == "said again"
    assert [session.session_id for session in connected["before"]] == ["session_mcp"]
    assert connected["after"] == []


@pytest.mark.filterwarnings("ignore:this blocks the running event loop:RuntimeWarning")
async def test_the_factory_of_services_takes_variables_and_arguments_before_these(
    mesh: Mesh, old_paths: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SANDBOX_BACKEND", "SANDBOX_DEFAULT_BASE_URL", "SANDBOX_CUSTOM_ENDPOINT"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    made = await asyncio.to_thread(run, FACTORY, base_url=mesh.addresses[0])
    assert made["cell"].text == "1\n"
    assert made["service"].drain_on_stop
    assert (made["custom"].endpoint, made["custom"].color) == ("https://api.example.com", "red")
    with pytest.raises(ValueError, match="Unsupported backend type: nothing"):
        await made["SandboxServiceFactory"].create("nothing")


async def test_files_have_the_old_arguments_and_exactly_the_old_results(
    mesh: Mesh, old_paths: None, tmp_path: Path
) -> None:
    local = tmp_path / "local.txt"
    local.write_text("of here")
    files = await asyncio.to_thread(run, FILES, local=str(local))
    assert files["same_id"]
    mtime = files["wrote"].pop("mtime_ms")
    assert mtime > 1_600_000_000_000
    assert files["wrote"] == {"path": "/workspace/dir/a.txt", "name": "a.txt", "type": "file", "size": 9}
    assert [(entry["path"], entry["size"]) for entry in files["many"]] == [
        ("/workspace/dir/b.bin", 10),
        ("/workspace/dir/sub/c.txt", 4),
        ("/workspace/dir/d.bin", 4),
    ]
    assert (files["text"], files["raw"]) == ("one\ntwo\n", b"one\r\ntwo\n")
    assert files["pieces"] == [b"0123", b"4567", b"89"]
    assert (files["copied"]["name"], files["copied"]["size"]) == ("local.txt", 7)
    names = {"a.txt": "file", "b.bin": "file", "d.bin": "file", "link": "file", "local.txt": "file", "sub": "dir"}
    assert files["listed"] == {f"/workspace/dir/{name}": kind for name, kind in names.items()}
    assert files["deep"] == {*files["listed"], "/workspace/dir/sub/c.txt"}
    assert files["made"] == [True, False]
    assert files["moved"]["path"] == "/workspace/other/place/b.txt"
    assert (files["over"]["name"], files["over"]["size"]) == ("b.bin", 4)
    assert files["removed"] == [None, None, False, True]
    assert files["mode"] & 0o600 == 0o600


async def test_files_of_async_boxes_have_the_old_names(mesh: Mesh, old_paths: None, tmp_path: Path) -> None:
    local = tmp_path / "local.txt"
    local.write_text("of here")
    files = await asyncio.to_thread(run, FILES_ASYNC, local=str(local))
    assert (files["wrote"]["path"], files["wrote"]["size"]) == ("/workspace/dir/a.txt", 4)
    assert [entry["name"] for entry in files["many"]] == ["b.bin"]
    assert files["read"] == ["text", b"0123"]
    assert files["streamed"] == b"0123"
    assert files["copied"]["size"] == 7
    assert files["listed"] == ["a.txt", "b.bin", "local.txt"]
    assert files["made"] == [True, False]
    assert files["moved"]["path"] == "/workspace/other/a.txt"
    assert files["removed"] == [None, None, False]
    assert isinstance(files["missing"][0], FileNotFoundError)
    assert files["missing"][1] is False


@pytest.mark.needs("desktop")
async def test_a_filesystem_sandbox_has_the_desktop_that_it_had_there(mesh: Mesh, old_paths: None) -> None:
    shown = await asyncio.to_thread(run, DESKTOP)
    assert shown["kind"] == "filesystem"
    assert shown["listed"].is_error is False
    for page in shown["pages"]:
        assert "<title>Desktop</title>" in page


def test_types_and_images_have_the_old_names(old_paths: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RUNTIME_SANDBOX_REGISTRY", "RUNTIME_SANDBOX_IMAGE_NAMESPACE", "RUNTIME_SANDBOX_IMAGE_TAG"):
        monkeypatch.delenv(name, raising=False)
    types = run(TYPES)
    assert {"base", "filesystem", "dummy"} <= set(types["builtin"])
    assert "added_here" in types["dynamic"]
    assert not set(types["builtin"]) & set(types["dynamic"])
    assert types["images"] == [
        "agentscope/runtime-sandbox-base:latest",
        "registry.example/agentscope/runtime-sandbox-base:v1.2.3",
    ]
