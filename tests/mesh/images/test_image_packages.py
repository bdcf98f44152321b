"""What a sandbox installs in its root is in its snapshots and forks: packages, their accounts and their daemons."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sandmesh import Limits
from sandmesh.sandbox.boxes import BaseSandboxAsync
from tests.image_roots import packages_root
from tests.mesh.conftest import MeshMaker
from tests.mesh.images.test_image_roots import mesh_with, run

pytestmark = [pytest.mark.needs("busybox"), pytest.mark.needs("uids for sandboxes")]

_POSTINST = """#!/bin/sh
set -e
echo 'greeter:x:777:777::/:/bin/sh' >> /etc/passwd
chown 777:777 /srv/greeter
"""
_SERVES = "busybox wget -Y off -q -O - http://127.0.0.1/hello; stat -c '%u %a' /srv/greeter; dpkg-query -W greeter"
_APT = "env -u no_proxy -u NO_PROXY apt-get -qq -o Dpkg::Use-Pty=0"


@dataclass(frozen=True)
class Program:
    """What is installed, how its daemons start, and what shows that they serve."""

    install: str
    start: str
    look: str
    expected: tuple[str, ...]


GREETER = Program(
    install=f"{_APT} update && {_APT} install -y greeter",
    start="busybox httpd -p 80 -h /srv/greeter",
    look=_SERVES,
    expected=("greetings", "777 755", "greeter\t1.0"),
)


@contextmanager
def repository(folder: Path) -> Generator[int]:
    """Serve two packages, one of which depends on the other, on loopback; yield the port."""
    index: list[str] = []
    for name, depends in (("greeter", "Depends: greeter-data\n"), ("greeter-data", "")):
        tree = folder / name
        (tree / "DEBIAN").mkdir(parents=True)
        control = f"Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example.org>\n{depends}"
        (tree / "DEBIAN" / "control").write_text(f"{control}Description: {name}\n")
        if depends:
            (tree / "DEBIAN" / "postinst").write_text(_POSTINST)
            (tree / "DEBIAN" / "postinst").chmod(0o755)
        else:
            (tree / "srv" / "greeter").mkdir(parents=True)
            (tree / "srv" / "greeter" / "hello").write_text("greetings\n")
        file = folder / f"{name}.deb"
        build = ["/usr/bin/dpkg-deb", "-Zgzip", "--root-owner-group", "--build", str(tree), str(file)]
        subprocess.run(build, check=True, capture_output=True)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        index.append(f"{control}Filename: ./{file.name}\nSize: {file.stat().st_size}\nSHA256: {digest}\n")
    (folder / "Packages").write_text("\n".join(index))
    handler = partial(_QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the parent's name
        """Write nothing."""


async def check(address: str, image: str, program: Program, network: list[str], forks: int = 5) -> None:
    """Install a program in a sandbox, and find it serving there, in each fork and in a start of the snapshot."""
    async with BaseSandboxAsync(base_url=address, image=image, network=network) as box:
        await _install(box, program)
        snapshot = await box.snapshot()
        made = await box.fork(count=forks)
        assert len(made) == forks
        try:
            for fork in made:
                await _serves(fork, program)
        finally:
            for fork in made:
                await fork.close()
    async with BaseSandboxAsync(base_url=address, snapshot=snapshot) as box:
        await _serves(box, program)


async def _install(box: BaseSandboxAsync, program: Program) -> None:
    result = await box.run_shell_command(program.install)
    assert not result.is_error, result.text
    await _serves(box, program)


async def _serves(box: BaseSandboxAsync, program: Program) -> None:
    await run(box, program.start)
    printed = await run(box, program.look)
    assert [text for text in program.expected if text not in printed] == [], printed


@pytest.mark.needs("debian")
async def test_what_is_installed_serves_in_snapshots_and_forks(make_mesh: MeshMaker) -> None:
    with tempfile.TemporaryDirectory(prefix="sm-", dir="/var/tmp") as made, repository(Path(made)) as port:
        source = f"deb [trusted=yes] http://127.0.0.1:{port} ./\n"
        images: dict[str, Any] = {"debian": ((packages_root(source),), {"Env": ["PATH=/usr/sbin:/usr/bin"]})}
        async with mesh_with(make_mesh, images) as (mesh, folder):
            await check(mesh.addresses[0], f"oci:{folder}/debian", GREETER, [f"127.0.0.1:{port}"])


@pytest.mark.needs("debian")
async def test_a_full_disk_fails_an_install_which_goes_on_once_there_is_room(make_mesh: MeshMaker) -> None:
    with tempfile.TemporaryDirectory(prefix="sm-", dir="/var/tmp") as made, repository(Path(made)) as port:
        source = f"deb [trusted=yes] http://127.0.0.1:{port} ./\n"
        images: dict[str, Any] = {"debian": ((packages_root(source),), {"Env": ["PATH=/usr/sbin:/usr/bin"]})}
        limits = Limits(disk="16MiB")
        async with mesh_with(make_mesh, images) as (mesh, folder):
            reached, image = [f"127.0.0.1:{port}"], f"oci:{folder}/debian"
            async with BaseSandboxAsync(base_url=mesh.addresses[0], image=image, network=reached, limits=limits) as box:
                filled = await box.run_shell_command("head -c 64M /dev/zero > /workspace/filled")
                assert "No space left on device" in filled.text
                refused = await box.run_shell_command(GREETER.install)
                assert refused.is_error
                assert "No space left on device" in refused.text
                await run(box, "rm /workspace/filled")
                await _install(box, GREETER)
