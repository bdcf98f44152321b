"""Checks what drivers need of this machine, without starting anything but a probe."""

from __future__ import annotations

import ctypes.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from sandmesh.errors import RuntimeUnavailable, SandmeshError
from sandmeshd.cli.doctor.devices import check_devices
from sandmeshd.cli.doctor.engines import check_engine
from sandmeshd.cli.doctor.findings import Finding, bad, good, unknown, warning
from sandmeshd.drivers.bubblewrap.executable import FIX, find_installed
from sandmeshd.drivers.bubblewrap.probe import SWITCHES
from sandmeshd.drivers.bubblewrap.settings import BubblewrapSettings
from sandmeshd.drivers.bubblewrap.systems import Systems
from sandmeshd.drivers.node.interpreter import choose_interpreter
from sandmeshd.drivers.node.mounts.training_data import find_data
from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.driver import settings_for
from sandmeshd.runtime.processes.descriptors import FIX as FIX_DESCRIPTORS
from sandmeshd.runtime.processes.descriptors import attainable_limit, sandboxes_within
from sandmeshd.runtime.user_namespaces.subordinate import find_subordinate
from sandmeshd.store.embedded import server_binary
from sandmeshd.templates import open_catalog

MACHINE = "machine"
MIN_DISK_BYTES, LOW_DISK_BYTES = 1 << 30, 5 << 30
MAX_SOCKET_PATH = 107
FEW_SANDBOXES = 500
# The longest path below a mesh's runtime directory: an agent's socket.
LONGEST_SUFFIX = len("/1234567890/a/1234567890/agent.sock")


def check_machine(settings: MeshSettings) -> Iterator[Finding]:
    """Yield the finding of each check."""
    yield _python()
    yield _bwrap()
    yield _namespaces()
    yield _seccomp()
    yield _cgroups()
    yield _uids(settings)
    yield _interpreter(settings)
    yield _store(settings)
    yield _disk(settings)
    yield from _systems(settings)
    yield from _training_data(settings)
    yield _runtime_directory(settings)
    yield _descriptors()
    yield from check_engine(settings)
    yield from check_devices(settings)


def _python() -> Finding:
    return good(MACHINE, "python", f"{sys.version.split()[0]} at {sys.executable}")


def _bwrap() -> Finding:
    found = find_installed()
    if found is None or not found.is_file():
        return bad(MACHINE, "bwrap", "not installed", FIX)
    return good(MACHINE, "bwrap", str(found))


def _namespaces() -> Finding:
    forbidden = {path: fix for path, (value, fix) in SWITCHES.items() if _read(path) == value}
    if not forbidden:
        return good(MACHINE, "user namespaces", "allowed")
    seen = ", ".join(f"{path.removeprefix('/proc/sys/').replace('/', '.')} = {_read(path)}" for path in forbidden)
    make: Callable[[str, str, str, str], Finding] = warning if os.geteuid() == 0 else bad
    return make(MACHINE, "user namespaces", seen, "; ".join(forbidden.values()))


def _seccomp() -> Finding:
    if ctypes.util.find_library("seccomp") is None:
        return bad(MACHINE, "libseccomp", "not found", "install the system's package libseccomp2")
    try:
        import_module("pyseccomp")
    except (ImportError, RuntimeError) as error:
        return bad(MACHINE, "libseccomp", f"pyseccomp cannot be used: {error}", 'pip install "sandmesh[local]"')
    return good(MACHINE, "libseccomp", "usable")


def _cgroups() -> Finding:
    root = Path("/sys/fs/cgroup")
    own = Path("/proc/self/cgroup")
    if not own.exists() or not root.is_dir():
        return warning(MACHINE, "cgroups", "none", "mount cgroup v2: without cgroups only rlimits are enforced")
    v2 = (root / "cgroup.controllers").exists()
    here = root / next((line[4:] for line in own.read_text().splitlines() if line.startswith("0::/")), "")
    controllers = _read(str(here / "cgroup.controllers")) if v2 else ""
    writable = os.access(here if v2 else root / "memory", os.W_OK)
    version = f"v2 ({controllers or 'no controllers here'})" if v2 else "v1"
    if writable:
        return good(MACHINE, "cgroups", f"{version}, writable")
    fix = "for limits of memory and CPU run the mesh as root, or by `systemd-run --user --scope -p Delegate=yes`"
    return warning(MACHINE, "cgroups", f"{version}, not writable for this user", fix)


def _uids(settings: MeshSettings) -> Finding:
    driver = settings_for(settings, "bubblewrap", BubblewrapSettings)
    try:
        uids = driver.uid_range
    except RuntimeUnavailable as error:
        return bad(MACHINE, "uids", error.message, error.facts.get("fix", ""))
    if uids:
        return good(MACHINE, "uids", f"{uids.start}-{uids.stop - 1}, one for each sandbox")
    shared = "sandboxes share one, and what the kernel counts by it"
    if os.geteuid() == 0 or driver.sandbox_uids == "none":
        return warning(MACHINE, "uids", shared, "set SANDMESH_SANDBOX_UIDS to a range that is not in use")
    found = find_subordinate()
    return warning(MACHINE, "uids", f"{shared}: {found.lacking}", found.fix)


def _interpreter(settings: MeshSettings) -> Finding:
    driver = settings_for(settings, "bubblewrap", BubblewrapSettings)
    try:
        host_uid = driver.reader_uid
        found = choose_interpreter(host_uid, driver.python)
    except RuntimeUnavailable as error:
        return bad(MACHINE, "interpreter", error.message, error.facts.get("fix", ""))
    return good(MACHINE, "interpreter", f"{found.executable}, readable for uid {host_uid}")


def _store(settings: MeshSettings) -> Finding:
    if settings.redis_url is not None:
        return good(MACHINE, "store", "your own server (SANDMESH_REDIS_URL)")
    try:
        return good(MACHINE, "store", f"embedded: {server_binary()}")
    except SandmeshError as error:
        return bad(MACHINE, "store", error.message, error.facts.get("fix", ""))


def _disk(settings: MeshSettings) -> Finding:
    directory = settings.state_directory
    while not directory.exists():
        directory = directory.parent
    free = shutil.disk_usage(directory).free
    seen = f"{free / (1 << 30):.1f} GiB free at {directory}"
    fix = "free some space, or choose another SANDMESH_STATE_DIRECTORY"
    if not os.access(directory, os.W_OK):
        return bad(MACHINE, "disk", f"{directory} is not writable", "choose another SANDMESH_STATE_DIRECTORY")
    if free < MIN_DISK_BYTES:
        return bad(MACHINE, "disk", seen, fix)
    return warning(MACHINE, "disk", seen, fix) if free < LOW_DISK_BYTES else good(MACHINE, "disk", seen)


def _systems(settings: MeshSettings) -> Iterator[Finding]:
    driver = settings_for(settings, "bubblewrap", BubblewrapSettings)
    try:
        systems = Systems(driver, choose_interpreter(driver.reader_uid, driver.python))
        packaged = [
            template for template in open_catalog(settings.extensions, settings.templates).values() if template.system
        ]
    except SandmeshError:
        # The findings of interpreter and mesh name the reason.
        return
    for template in packaged:
        place = systems.find(template.system)
        if place is None:
            fix = systems.missing(template).facts["fix"]
            yield warning(MACHINE, f"system of {template.name}", "its Debian packages are not there", fix)
        else:
            yield good(MACHINE, f"system of {template.name}", str(place))


def _training_data(settings: MeshSettings) -> Iterator[Finding]:
    try:
        known = open_catalog(settings.extensions, settings.templates).values()
    except SandmeshError:
        # The mesh's findings name the reason.
        return
    for name in sorted({one.data for one in known if one.data}):
        found = find_data(settings.paths, name)
        if found is None:
            lacking = f"not there, so that no sandbox has it: sandmesh training prepare {name} --data PATH"
            yield unknown(MACHINE, f"data of {name}", lacking)
        else:
            yield good(MACHINE, f"data of {name}", f"version {found.version}, {found.tasks} tasks at {found.folder}")


def _runtime_directory(settings: MeshSettings) -> Finding:
    directory = settings.runtime_directory
    longest = len(os.fsencode(directory)) + LONGEST_SUFFIX
    seen = f"{directory}: paths of sockets have up to {longest} of {MAX_SOCKET_PATH} bytes"
    if longest > MAX_SOCKET_PATH:
        return bad(MACHINE, "runtime directory", seen, "choose a shorter SANDMESH_RUNTIME_DIRECTORY")
    return good(MACHINE, "runtime directory", seen)


def _descriptors() -> Finding:
    limit = attainable_limit()
    allowed = sandboxes_within(limit)
    seen = f"up to {limit}, enough for about {allowed} sandboxes (RLIMIT_NOFILE)"
    if allowed < FEW_SANDBOXES:
        return warning(MACHINE, "descriptors", seen, FIX_DESCRIPTORS)
    return good(MACHINE, "descriptors", seen)


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
