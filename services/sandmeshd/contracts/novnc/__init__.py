"""noVNC (https://novnc.com, MPL-2.0), the unmodified npm package with its licences in it.

The gateway serves it in the pages of desktops, and sandboxes to programs that expect noVNC's own server at /opt/noVNC.
"""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).with_name("novnc-1.7.0.tgz")


@cache
def modules() -> dict[str, bytes]:
    """Return noVNC's modules by their paths in the package, such as `core/rfb.js`."""
    found: dict[str, bytes] = {}
    with tarfile.open(PACKAGE) as archive:
        for member in archive:
            name = member.name.removeprefix("package/")
            if member.isfile() and name.startswith(("core/", "vendor/")) and name.endswith(".js"):
                content = archive.extractfile(member)
                found[name] = content.read() if content is not None else b""
    return found
