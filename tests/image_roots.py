"""Images of a few files that tests start sandboxes with: busybox, which is static, and nothing at all."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.image_layouts import entry, file_entry, make_image, make_tar

APPLETS = ("sh", "ls", "cat", "id", "su", "env", "rm", "mkdir", "chown", "grep", "httpd", "wget", "readlink", "stat")
PASSWD = b"root:x:0:0:root:/root:/bin/sh\napp:x:1234:1235:app:/home/app:/bin/sh\n"
GROUP = b"root:x:0:\napp:x:1235:\nextra:x:1300:app\n"


def busybox_root() -> tuple[bytes, bytes]:
    """Return two layers: programs and accounts, and above them a directory of `app` and a file that is gone."""
    program = Path(shutil.which("busybox") or "").read_bytes()
    links = [entry(f"bin/{name}", tarfile.SYMTYPE, linkname="busybox") for name in APPLETS if name != "su"]
    below = make_tar(
        entry("bin", tarfile.DIRTYPE),
        file_entry("bin/busybox", program, mode=0o755),
        file_entry("bin/su", program, mode=0o4755),
        *links,
        entry("etc", tarfile.DIRTYPE),
        file_entry("etc/passwd", PASSWD),
        file_entry("etc/group", GROUP),
        file_entry("etc/shadow", b"root::::::::\napp::::::::\n"),
        file_entry("gone", b"x"),
        entry("root", tarfile.DIRTYPE, mode=0o700),
    )
    above = make_tar(
        file_entry(".wh.gone"),
        entry("app", tarfile.DIRTYPE, uid=1234, gid=1235),
        file_entry("app/own", b"app's", uid=1234, gid=1235, mode=0o600),
        entry("home", tarfile.DIRTYPE),
        entry("home/app", tarfile.DIRTYPE, uid=1234, gid=1235),
    )
    return below, above


HOST_PROGRAMS = (
    *("bash", "sh", "cat", "chmod", "chown", "cp", "env", "grep", "head", "id", "ln", "ls", "mkdir", "mktemp", "pwd"),
    *("rm", "setpriv", "sleep", "stat", "tar", "gzip", "touch", "true", "whoami"),
)


APT_PROGRAMS = (
    *("apt-get", "dpkg", "dpkg-deb", "dpkg-split", "dpkg-query", "dpkg-trigger", "ldconfig", "start-stop-daemon"),
    *("busybox", "cut", "diff", "find", "sed", "/usr/lib/apt/methods/http", "/usr/lib/apt/methods/store"),
)


_DPKG_TABLES = ("abitable", "cputable", "ostable", "tupletable")


def packages_root(source: str) -> bytes:
    """Return a layer as `host_root`'s in which apt installs what a line of sources.list names."""
    state = ("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers", "var/lib/apt/lists/partial")
    return host_root(
        *APT_PROGRAMS,
        folders=(
            *state,
            "var/cache/apt/archives/partial",
            "etc/apt/apt.conf.d",
            "etc/apt/preferences.d",
            "var/log/apt",
        ),
        files={
            **{f"usr/share/dpkg/{name}": Path("/usr/share/dpkg", name).read_bytes() for name in _DPKG_TABLES},
            "var/lib/dpkg/status": b"",
            "etc/apt/sources.list": source.encode(),
            "etc/apt/apt.conf": b'APT::Sandbox::User "root";\n',
        },
    )


def host_root(*more: str, folders: Iterable[str] = (), files: Mapping[str, bytes] | None = None) -> bytes:
    """Return a layer with programs of this machine and their libraries, and the user `user`."""
    names, path = (*HOST_PROGRAMS, *more), "/usr/bin:/bin:/usr/sbin:/sbin"
    programs = [Path(found) for name in names if (found := shutil.which(name, path=path))]
    # It fails for a static one.
    listed = subprocess.run(["/usr/bin/ldd", *programs], capture_output=True, text=True, check=False).stdout
    libraries = {Path(found) for found in re.findall(r"(?:=> |\t)(/\S+) \(", listed)}
    copied = {str(path).removeprefix("/") if "lib" in path.parts else f"usr/bin/{path.name}": path for path in programs}
    copied |= {f"usr/{str(path).removeprefix('/').removeprefix('usr/')}": path for path in libraries}
    accounts = PASSWD.replace(b"/bin/sh", b"/bin/bash") + b"user:x:1000:1000:user:/home/user:/bin/bash\n"
    return make_tar(
        *(entry(name, tarfile.SYMTYPE, linkname=f"usr/{name}") for name in ("bin", "lib", "lib64", "sbin")),
        *(file_entry(name, path.read_bytes(), mode=0o755) for name, path in sorted(copied.items())),
        entry("etc", tarfile.DIRTYPE),
        *(entry(name, tarfile.DIRTYPE) for name in folders),
        *(file_entry(name, content) for name, content in (files or {}).items()),
        file_entry("etc/passwd", accounts),
        file_entry("etc/group", GROUP + b"user:x:1000:\n"),
        entry("root", tarfile.DIRTYPE, mode=0o700),
        entry("tmp", tarfile.DIRTYPE, mode=0o1777),
        entry("home", tarfile.DIRTYPE),
        entry("home/user", tarfile.DIRTYPE, uid=1000, gid=1000),
    )


def write_image(folder: Path, layers: tuple[bytes, ...], **config: Any) -> str:
    """Write an OCI layout of an image; return its reference."""
    return f"oci:{make_image(layers, config, bytes).write_layout(folder)}"


_KERNEL_PACKAGES = (
    *("IPython", "traitlets", "ipython", "decorator", "pexpect", "ptyprocess", "prompt_toolkit", "wcwidth"),
    *("pygments", "matplotlib_inline", "stack_data", "executing", "asttokens", "pure_eval", "typing_extensions"),
    *("ipython_pygments_lexers", "psutil"),
)
_UNUSED = re.compile(
    r"^(test|idlelib|lib2to3|ensurepip|tkinter|turtledemo|pydoc_data|distutils|config-.*|(site|dist)-packages)/|/tests/"
)


def python_root(packages: Path) -> tuple[bytes, bytes]:
    """Return two layers: this machine's Python with what it is linked to, and IPython of a template's packages."""
    program = Path(sys.executable).resolve()
    query = "import site, sys, sysconfig; print(sys.prefix, sysconfig.get_path('stdlib'), site.getsitepackages()[-1])"
    said = subprocess.run([program, "-I", "-c", query], capture_output=True, text=True, check=True).stdout
    own, library, place = map(Path, said.split())
    prefix = own if own == Path("/usr") else Path("/usr/local")
    """Another may be in a home, which others cannot read."""
    extensions = [*(library / "lib-dynload").glob("*.so")]
    listed = subprocess.run(["/usr/bin/ldd", program, *extensions], capture_output=True, text=True, check=True).stdout
    files = {path: path for path in map(Path, re.findall(r"(?:=> |\t)(/\S+) \(", listed))}
    files |= {prefix / "bin" / name: program for name in ("python3", program.name)}
    files |= {prefix / path.relative_to(own): path for path in _sources(library)}
    found = [path for path in packages.iterdir() if re.split(r"[.-]", path.name)[0] in _KERNEL_PACKAGES]
    return _tar_of(files), _tar_of(
        {place / path.relative_to(packages): path for one in found for path in _sources(one)}
    )


def _sources(place: Path) -> list[Path]:
    found = [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]
    return [path for path in found if not _UNUSED.search(str(path.relative_to(place)))]


def _tar_of(files: dict[Path, Path]) -> bytes:
    named = {f"usr/{str(name).removeprefix('/').removeprefix('usr/')}": path for name, path in files.items()}
    return make_tar(*(file_entry(name, path.read_bytes(), mode=0o755) for name, path in sorted(named.items())))
