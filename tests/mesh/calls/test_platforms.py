"""The client on systems that are not Linux, as far as an interpreter without what only Linux and Unix have shows it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping

import pytest

from sandmesh.mesh import MeshAsync
from tests.mesh.conftest import MeshMaker

MODULES = {
    "darwin": ("spwd", "crypt"),
    "win32": (
        "crypt",
        "fcntl",
        "grp",
        "pty",
        "pwd",
        "readline",
        "resource",
        "spwd",
        "syslog",
        "termios",
        "tty",
        "uvloop",
    ),
}
LINUX_ONLY = {
    "os": "O_TMPFILE O_PATH eventfd getrandom getxattr listxattr memfd_create pidfd_open sched_getaffinity setxattr",
    "signal": "pidfd_send_signal sigtimedwait",
    "select": "epoll",
    "socket": "SO_PEERCRED AF_VSOCK AF_NETLINK",
}
UNIX_ONLY = {
    "os": "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK chown fchmod fchown fork getegid geteuid getgid getuid killpg "
    "lchown mkfifo mknod setsid statvfs uname",
    "signal": "SIGHUP SIGKILL SIGUSR1 SIGWINCH pthread_sigmask",
    "select": "poll",
    "socket": "AF_UNIX recv_fds send_fds",
}
# What other packages import of these is theirs: they are imported before.
START = """
import asyncio, concurrent.futures.thread, http.client, json, logging.handlers, multiprocessing, shutil, ssl, subprocess
import importlib, pkgutil, sys, tempfile
import grpc, pydantic

platform, modules, attributes = sys.argv[1], sys.argv[2].split(), json.loads(sys.argv[3])


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


for name in modules:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
for module, names in attributes.items():
    for name in names.split():
        if hasattr(sys.modules[module], name):
            delattr(sys.modules[module], name)
sys.platform = platform
"""
IMPORTS = """
import sandmesh
for found in pkgutil.walk_packages(sandmesh.__path__, "sandmesh."):
    # The last two are for programs and packages that have requirements of their own.
    if not found.name.startswith(("sandmesh.integrations.", "sandmesh.compat.")):
        importlib.import_module(found.name)
print("imported")
"""
NO_ADDRESS = """
from sandmesh._client.addresses import configured
from sandmesh._client.private_mesh import find_program
# An event loop of Unix needs what is taken away here.
try:
    print(configured(None) or find_program())
except Exception as error:
    print(type(error).__name__, error)
"""
A_CALL = """
from sandmesh import BaseSandbox
with BaseSandbox(base_url=sys.argv[4], bearer_token=sys.argv[5]) as box:
    print(box.run_ipython_cell("6 * 7").text)
    box.fs.write("a.txt", "hello")
    print(box.fs.read("a.txt"))
"""


def run_on(platform: str, program: str, *arguments: str) -> str:
    attributes: Mapping[str, str] = LINUX_ONLY
    if platform == "win32":
        attributes = {name: f"{LINUX_ONLY[name]} {UNIX_ONLY[name]}" for name in LINUX_ONLY}
    command = [sys.executable, "-c", START + program, platform, " ".join(MODULES[platform]), json.dumps(attributes)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("platform", MODULES)
def test_the_sdk_imports_nothing_that_only_linux_has(platform: str) -> None:
    assert run_on(platform, IMPORTS) == "imported\n"


@pytest.mark.parametrize("platform", MODULES)
def test_without_an_address_the_error_says_where_to_point_it(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SANDMESH_ADDRESS", raising=False)
    monkeypatch.setenv("SANDMESH_RUNTIME_DIRECTORY", "/nonexistent")
    assert run_on(platform, NO_ADDRESS) == (
        f"RuntimeUnavailable a mesh runs on Linux, not on {platform}: "
        "pass base_url=, or set SANDMESH_ADDRESS and SANDMESH_TOKEN\n"
    )


async def test_the_client_works_with_a_mesh_elsewhere(make_mesh: MeshMaker) -> None:
    async with make_mesh(listen=("127.0.0.1:0",)) as mesh, MeshAsync(mesh.addresses[0]) as administrator:
        token = (await administrator.tokens.create("ada")).secret
        # gRPC's polling needs what Windows lacks: only an interpreter of Windows has its own way.
        printed = await asyncio.to_thread(run_on, "darwin", A_CALL, mesh.addresses[1], token)
    assert printed == "42\nhello\n"
