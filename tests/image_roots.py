"""Images of a few files that tests start sandboxes with: busybox, which is static, and nothing at all."""

from __future__ import annotations

import shutil
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


def write_image(folder: Path, layers: tuple[bytes, ...], **config: Any) -> str:
    """Write an OCI layout of an image; return its reference."""
    return f"oci:{make_image(layers, config).write_layout(folder)}"
