"""A docker engine of the tests' own: its data, socket and bridge are nobody else's, and it ends with them.

The images that were built stay in the cache of this user's state directory, or where SANDMESH_TEST_DOCKER_CACHE says,
so that the next run builds what changed. Two runs at once do not share them: the second has its own, for the time of
its run. So has each run with SANDMESH_TEST_DOCKER=short without a cache folder: earlier leftovers cannot fail it.
With SANDMESH_TEST_DOCKER_URL an engine that runs already is used as it is.
"""

from __future__ import annotations

import asyncio
import fcntl
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from sandmesh.errors import TemplateBuildFailed
from sandmeshd.drivers.engine.images.build import ImageBuilder
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.builds import BuildStep
from sandmeshd.runtime.paths import MeshPaths, default_runtime_directory, default_state_directory

START_SECONDS, END_SECONDS = 90.0, 30.0
ATTEMPTS = 3
OWN_NETWORKS = {"bridge", "host", "none"}
"""What every engine has."""
RUNSC = {"path": "/usr/bin/runsc", "runtimeArgs": ["--network=none", "--host-uds=create", "--host-fifo=open"]}


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("engine", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def slow_parts() -> list[str]:
    """Return what to leave out of a folder of tests: an engine, its images and a cluster take minutes: opted in."""
    engines = [] if os.environ.get("SANDMESH_TEST_DOCKER") else ["test_docker*.py", "test_gvisor*.py"]
    boxes = [] if os.environ.get("SANDMESH_TEST_BOXLITE") else ["test_boxlite*.py"]
    clusters = {None: ["test_kubernetes*.py"], "short": ["test_kubernetes_*.py"]}
    return [*engines, *boxes, *clusters.get(os.environ.get("SANDMESH_TEST_CLUSTER") or None, [])]


def in_full() -> bool:
    """Return whether such tests run in full; with SANDMESH_TEST_DOCKER=short no property is tested twice."""
    return os.environ.get("SANDMESH_TEST_DOCKER") != "short"


def query(url: str, path: str, method: str = "GET") -> Any:
    """Request a path of an engine's API; return its JSON, None without any.

    Raises:
        OSError: It does not answer.
    """
    connection = _Connection(url.removeprefix("unix://"))
    try:
        connection.request(method, path)
        response = connection.getresponse()
        data = response.read()
        return json.loads(data) if response.status == 200 and data[:1] in b"[{" else None
    finally:
        connection.close()


class Daemon:
    """An engine's process: it can be ended and started again."""

    def __init__(self, folder: Path, command: list[str]) -> None:
        self.url = f"unix://{folder}/docker.sock"
        self._folder = folder
        self._command = [*command, "--host", self.url]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and return when it answers."""
        log = self._folder / "log"
        with log.open("ab") as kept:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=kept, stderr=kept, start_new_session=True
            )
        _wait(self._process, self.url, log)

    def kill(self) -> None:
        """End it at once: its containers go on until it is started again, which ends them."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            # Its containerd ends with it, and stays a zombie where nobody waits for it: it would be taken for alive.
            (self._folder / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)

    def end(self) -> None:
        """End it as its service would."""
        if self._process is not None:
            _end(self._process)


@contextmanager
def own_engine(folder: Path) -> Generator[tuple[str, Daemon | None]]:
    """Run an engine with its socket in a folder, the image of the templates in it; give its URL, and its process.

    It has a bridge and data of its own.
    """
    url = os.environ.get("SANDMESH_TEST_DOCKER_URL")
    if url is not None:
        build_image(url, "base")
        yield url, None
        return
    with ExitStack() as stack:
        bridge, _ = stack.enter_context(own_bridge())
        daemon = stack.enter_context(bridged_engine(folder, bridge))
        yield daemon.url, daemon


@contextmanager
def bridged_engine(folder: Path, bridge: str, config: Mapping[str, Any] | None = None) -> Generator[Daemon]:
    """Run an engine as `own_engine`, on a bridge that is there, and with more of a daemon.json."""
    with _data_root(folder / "data") as data, _daemon(folder, data, bridge, config or {}) as daemon:
        build_image(daemon.url, "base")
        yield daemon


def kept_data_root() -> Path:
    """Return the data directory that one run at a time keeps for the next, unless the environment has another."""
    return default_state_directory() / "cache" / "test-engine"


@contextmanager
def _data_root(otherwise: Path) -> Generator[Path]:
    cache = os.environ.get("SANDMESH_TEST_DOCKER_CACHE")
    if not in_full() and not cache:
        yield otherwise
        shutil.rmtree(otherwise, ignore_errors=True)
        return
    kept = Path(cache) if cache else kept_data_root()
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.with_name("test-engine.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield otherwise
            shutil.rmtree(otherwise, ignore_errors=True)
        else:
            yield kept


@contextmanager
def own_bridge() -> Generator[tuple[str, str]]:
    """Make a bridge for an engine; give its name and its address."""
    # An engine without a bridge of its own takes, or deletes, that of the machine's engine.
    name, third = f"smt{secrets.token_hex(4)}", secrets.randbelow(250) + 1
    run("ip", "link", "add", name, "type", "bridge")
    try:
        run("ip", "address", "add", f"10.213.{third}.1/24", "dev", name)
        run("ip", "link", "set", name, "up")
        yield name, f"10.213.{third}.1"
    finally:
        run("ip", "link", "delete", name)


def run(*command: str) -> None:
    """Run a command of the machine's to its end."""
    subprocess.run(command, check=True, capture_output=True)


@contextmanager
def _daemon(folder: Path, data: Path, bridge: str, more: Mapping[str, Any]) -> Generator[Daemon]:
    config = folder / "daemon.json"
    config.write_text(json.dumps({"runtimes": {"runsc": RUNSC} if shutil.which("runsc") else {}, **more}))
    files = {"data-root": data, "exec-root": folder / "exec", "pidfile": folder / "pid", "config-file": config}
    places = [part for name, value in files.items() for part in (f"--{name}", str(value))]
    network = ["--bridge", bridge, "--iptables=false", "--ip-forward=false", "--ip-masq=false"]
    daemon = Daemon(folder, ["dockerd", *places, *network])
    try:
        daemon.start()
        yield daemon
    finally:
        end_daemon(daemon, folder)


def end_daemon(daemon: Daemon, folder: Path) -> None:
    """End an engine, with what it left mounted below its folder."""
    daemon.end()
    for mount in _mounts(folder):
        run("umount", "--lazy", mount)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError):
            if query(url, "/info") is not None:
                return
        # It has no way to tell that it listens but its socket.
        time.sleep(0.05)
    raise RuntimeError(f"dockerd did not start:\n{log.read_text(errors='replace')[-3000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _mounts(folder: Path) -> list[str]:
    places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted((place for place in places if place.startswith(f"{folder}/")), reverse=True)


def build_image(url: str, image: str) -> None:
    """Build an image on an engine; what is there already is not built again.

    Raises:
        TemplateBuildFailed: It failed as often as is tried: the packages in it come from servers that may falter.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            asyncio.run(_build(url, image))
        except TemplateBuildFailed:
            if attempt == ATTEMPTS:
                raise
        else:
            return


async def _build(url: str, image: str) -> None:
    paths = MeshPaths("suite-images", default_state_directory(), default_runtime_directory())
    builder = ImageBuilder(DockerSettings(paths=paths, url=url))
    steps: list[BuildStep] = [step async for step in builder.bootstrap()]
    steps += [step async for step in builder.build(image)]


def left_on(url: str) -> list[str]:
    """List what an engine has beside images: containers with the ports that they publish, volumes, networks."""
    containers = [f"container {one['Names']} {one['Ports']}" for one in query(url, "/containers/json?all=1")]
    volumes = [f"volume {volume['Name']}" for volume in query(url, "/volumes")["Volumes"] or ()]
    networks = [f"network {one['Name']}" for one in query(url, "/networks") if one["Name"] not in OWN_NETWORKS]
    return [*containers, *volumes, *networks]
