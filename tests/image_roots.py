"""Images of a few files that tests start sandboxes with: busybox, which is static, and nothing at all."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
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


def host_root() -> bytes:
    """Return a layer with programs of this machine and their libraries, and the user `user`."""
    programs = [Path(found) for name in HOST_PROGRAMS if (found := shutil.which(name, path="/usr/bin:/bin"))]
    listed = subprocess.run(["/usr/bin/ldd", *programs], capture_output=True, text=True, check=True).stdout
    libraries = {Path(found) for found in re.findall(r"(?:=> |\t)(/\S+) \(", listed)}
    files = {f"usr/bin/{path.name}": path for path in programs}
    files |= {f"usr/{str(path).removeprefix('/').removeprefix('usr/')}": path for path in libraries}
    accounts = PASSWD.replace(b"/bin/sh", b"/bin/bash") + b"user:x:1000:1000:user:/home/user:/bin/bash\n"
    return make_tar(
        *(entry(name, tarfile.SYMTYPE, linkname=f"usr/{name}") for name in ("bin", "lib", "lib64", "sbin")),
        *(file_entry(name, path.read_bytes(), mode=0o755) for name, path in sorted(files.items())),
        entry("etc", tarfile.DIRTYPE),
        file_entry("etc/passwd", accounts),
        file_entry("etc/group", GROUP + b"user:x:1000:\n"),
        entry("root", tarfile.DIRTYPE, mode=0o700),
        entry("tmp", tarfile.DIRTYPE, mode=0o1777),
        entry("home", tarfile.DIRTYPE),
        entry("home/user", tarfile.DIRTYPE, uid=1000, gid=1000),
    )


def write_image(folder: Path, layers: tuple[bytes, ...], **config: Any) -> str:
    """Write an OCI layout of an image; return its reference."""
    return f"oci:{make_image(layers, config).write_layout(folder)}"
