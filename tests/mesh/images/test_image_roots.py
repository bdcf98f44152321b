"""Sandboxes whose root is an image."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandmesh import Output, errors
from sandmesh.mesh import MeshAsync
from sandmesh.sandbox.boxes import SandboxAsync
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.store import ImageStore
from sandmeshd.mesh import Mesh
from sandmeshd.runtime.user_namespaces.removal import remove_tree
from tests.image_layouts import file_entry, make_tar
from tests.image_roots import busybox_root, write_image
from tests.mesh.conftest import MeshMaker
from tests.ordinary import run_tests, subordinate_home

pytestmark = [pytest.mark.needs("busybox"), pytest.mark.needs("uids for sandboxes")]

CHANGES = """
mkdir -p /srv/deep && echo kept > /srv/deep/file && chown 1234:1300 /srv/deep/file && echo w > mine
rm /bin/wget && rm -rf /app && mkdir /app && echo other > /app/other && busybox ln /app/other /app/twin
busybox chmod 4711 /srv/deep/file; busybox mkfifo /srv/fifo; echo secret > /root/x; busybox chmod 600 /root/x
"""
ENTRY = 'echo "$0 $FLAVOUR"; pwd; id -u; read line; echo "got $line"'
LOOK = """
stat -c '%u %g %a' /srv/deep/file; cat /srv/deep/file mine /root/x; ls /app; ls /bin/wget; stat -c %h /app/twin
"""
CHANGED = ["1234 1300 4711", "kept", "w", "secret", "other", "twin"]


@asynccontextmanager
async def mesh_with(make_mesh: MeshMaker, images: dict[str, Any], **drivers: str) -> AsyncGenerator[tuple[Mesh, Path]]:
    """Run a mesh whose administrator has pulled images; yield it with the images' directory."""
    folder = Path(tempfile.mkdtemp(prefix="sm-", dir="/var/tmp"))
    try:
        store = ImageStore(ImageSettings(images=folder / "images"), folder)
        for name, (layers, config) in images.items():
            await store.pull(write_image(folder / name, layers, **config))
        # An ephemeral mesh is a program's own, whose user may name any file.
        async with make_mesh(ephemeral=False, image_store={"images": folder / "images"}, drivers=drivers) as mesh:
            yield mesh, folder
    finally:
        remove_tree(folder)


async def run(box: SandboxAsync, command: str) -> str:
    """Run a shell command; return what it printed."""
    result = await box.call_tool("run_shell_command", {"command": command})
    return "".join(block["text"] for block in result.content if block.get("description") in ("stdout", "stderr"))


async def _runs_what_its_image_says(box: SandboxAsync) -> None:
    for arguments, first in (([], "cmd"), (["own"], "own")):
        async with await box.processes.start(arguments, entrypoint=True) as process:
            await process.write(b"input\n")
            said = "".join([event.text async for event in process if isinstance(event, Output)])
            assert said == f"{first} salt\n/app\n1234\ngot input\n"
    with pytest.raises(errors.InvalidArgument, match="write it as a list"):
        await box.processes.start("own", entrypoint=True)


@pytest.mark.parametrize("way", ["fork", "exec"])
async def test_a_sandbox_is_the_computer_that_its_image_says(make_mesh: MeshMaker, way: str) -> None:
    layers = busybox_root()
    config: dict[str, Any] = {"Env": ["PATH=/bin", "FLAVOUR=salt"], "WorkingDir": "/app", "User": "app"}
    config |= {"Entrypoint": ["sh", "-c", ENTRY], "Cmd": ["cmd"]}
    images: dict[str, Any] = {"plain": (layers, {}), "app": (layers, config), "empty": ((), {})}
    async with mesh_with(make_mesh, images, SANDMESH_BUBBLEWRAP_WAY=way) as (mesh, folder):
        address = mesh.addresses[0]
        async with SandboxAsync(base_url=address, image=f"oci:{folder}/plain") as box:
            said = await run(box, "id; pwd; ls /; cat /etc/hosts; cat /app/own; stat -c '%u %g' /app /etc")
            assert "uid=0(root) gid=0(root)" in said
            assert "localhost" in said
            assert "app's" in said
            assert "gone" not in said.split()
            assert said.split("app's")[1].split() == ["1234", "1235", "0", "0"]
            # Its own changes, set-uid programs, other users' ids, and ports below 1024.
            said = await run(
                box,
                "echo new > /etc/new && rm /bin/grep && mkdir /srv && chown 1234:1300 /srv && stat -c '%u %g' /srv;"
                "su app -c 'id; cat /proc/self/status' | /bin/busybox grep -E 'uid=|CapEff|NoNewPrivs';"
                "/bin/busybox httpd -h /etc -p 80 && wget -Y off -q -O - http://127.0.0.1/new",
            )
            assert said.split("\n")[0] == "1234 1300"
            assert "uid=1234(app) gid=1235(app)" in said
            assert "CapEff:\t0000000000000000" in said
            assert said.rstrip().endswith("new")
            cell = await box.call_tool("run_ipython_cell", {"code": "import os, sys; print(os.getuid(), sys.prefix)"})
            assert cell.text.split() == ["0", "/opt/env"]
            with pytest.raises(errors.InvalidArgument, match="no image that says what to run"):
                await box.processes.start([], entrypoint=True)
            with pytest.raises(errors.InvalidArgument, match="name a program"):
                await box.processes.start([])
        async with SandboxAsync(base_url=address, image=f"oci:{folder}/app") as box:
            said = await run(box, "id; pwd; echo $FLAVOUR $HOME $PATH; ls /bin; cat /proc/self/status; cat own")
            assert "uid=1234(app) gid=1235(app) groups=1300(extra)" in said
            assert "\n/app\nsalt /home/app /bin\n" in said
            assert "grep" in said.split(), "another sandbox's change is seen"
            assert "NoNewPrivs:\t1" in said
            assert "CapBnd:\t0000000000000000" in said
            assert said.endswith("app's")
            await _runs_what_its_image_says(box)
            await box.fs.write("made.txt", "by a tool")
            assert (await run(box, "stat -c %u made.txt; cat made.txt")).split() == ["1234", "by", "a", "tool"]
        await _an_empty_image_runs_cells(address, f"oci:{folder}/empty")


async def _an_empty_image_runs_cells(address: str, image: str) -> None:
    async with SandboxAsync(base_url=address, image=image) as box:
        cell = await box.call_tool("run_ipython_cell", {"code": "import subprocess, sys\nprint(6 * 7)"})
        assert cell.text.strip() == "42"
        again = "subprocess.run([sys.executable, '-c', 'import ssl; print(1 + 1)'], capture_output=True).stdout"
        cell = await box.call_tool("run_ipython_cell", {"code": again})
        assert "2\\n" in cell.text
        async with MeshAsync(address) as client:
            info = await client.sandboxes.get(box.sandbox_id)
        assert info.enforced["root"].startswith("root inside; writable")
        assert image in info.enforced["image"]


async def test_a_snapshot_and_a_fork_have_what_was_changed_of_the_image(make_mesh: MeshMaker) -> None:
    layers = busybox_root()
    images: dict[str, Any] = {
        "plain": (layers, {}),
        "app": (layers, {"User": "app", "WorkingDir": "/app", "Env": ["PATH=/bin"]}),
    }
    async with mesh_with(make_mesh, images) as (mesh, folder):
        address = mesh.addresses[0]
        async with SandboxAsync(base_url=address, image=f"oci:{folder}/plain") as box:
            await run(box, CHANGES)
            forks = await box.fork()
            async with forks[0] as branch:
                assert (await run(branch, LOOK)).split("\n")[:6] == CHANGED
            assert forks.not_copied == ("kernel default: its variables",)
            snapshot = await box.snapshot()
            with pytest.raises(errors.InvalidArgument, match="is one of the image"):
                await SandboxAsync(base_url=address, image=f"oci:{folder}/app", snapshot=snapshot).start()
        for _ in range(2):
            async with SandboxAsync(base_url=address, snapshot=snapshot) as box:
                said = await run(box, LOOK)
                assert said.split("\n")[:6] == CHANGED
                assert "No such file" in said
                assert "\n2\n" in said
        # The image of that name is another one by now: the snapshot stays with its own.
        store = ImageStore(ImageSettings(images=folder / "images"), folder)
        remove_tree(folder / "plain")
        await store.pull(write_image(folder / "plain", (*layers, make_tar(file_entry("etc/second", b"x")))))
        async with SandboxAsync(base_url=address, snapshot=snapshot) as box:
            assert "No such file" in await run(box, "cat /etc/second")
        async with SandboxAsync(base_url=address, image=f"oci:{folder}/plain") as box:
            assert await run(box, "cat /etc/second") == "x"
        async with SandboxAsync(base_url=address, image=f"oci:{folder}/app") as box:
            await run(box, "echo changed > own; mkdir sub; echo x > sub/y")
            snapshot = await box.snapshot()
        async with SandboxAsync(base_url=address, image=f"oci:{folder}/app", snapshot=snapshot) as box:
            assert (await run(box, "cat own sub/y; stat -c %u own; id -u")).split() == ["changed", "x", "1234", "1234"]


@pytest.mark.timeout(300)
@pytest.mark.needs("root", "uidmap")
def test_all_of_it_holds_for_an_ordinary_user_with_subordinate_ids() -> None:
    with subordinate_home() as home:
        # With the packages, which need what this user has to be made first, too.
        run_tests(home, __file__, str(Path(__file__).with_name("test_image_packages.py")), "-k", "not ordinary_user")


async def test_what_an_image_cannot_have_is_refused_with_what_to_do(make_mesh: MeshMaker) -> None:
    layers = busybox_root()
    toor = make_tar(file_entry("etc/passwd", b"toor:x:0:0::/root:/bin/sh\n"))
    images: dict[str, Any] = {
        "plain": (layers, {}),
        "lost": (layers, {"User": "nobody-here"}),
        "toor": ((*layers, toor), {"User": "toor"}),
    }
    async with mesh_with(make_mesh, images, SANDMESH_ROOT_SANDBOXES="never") as (mesh, folder):
        address = mesh.addresses[0]

        async def refused(kind: type[errors.SandmeshError], text: str, **options: Any) -> None:
            with pytest.raises(kind, match=text):
                await SandboxAsync(base_url=address, **options).start()

        plain = f"oci:{folder}/plain"
        await refused(errors.PermissionDenied, "SANDMESH_ROOT_SANDBOXES", image=plain)
        await refused(errors.CapabilityMissing, "root", root=True)
        await refused(errors.InvalidArgument, "template's name, too", image="base")
        await refused(errors.InvalidArgument, "image", image="no/CAPITALS here")
        await refused(errors.PermissionDenied, "sandmesh image pull", image="tar:/etc/passwd")
        await refused(errors.SandboxStartFailed, "no user 'nobody-here'", image=f"oci:{folder}/lost")
        await refused(errors.SandboxStartFailed, "'toor' is root, which this", image=f"oci:{folder}/toor")
        async with SandboxAsync(base_url=address, image=plain, root=False) as box:
            assert "uid=1000" in await run(box, "id")
            assert "denied" in (await run(box, "echo x > /etc/x")).lower()
