"""The host's programs and a few files of /etc, which sandboxes see read-only."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from sandmeshd.drivers.node.agent_config import HOME, USER, USER_ID
from sandmeshd.drivers.node.builds import building
from sandmeshd.drivers.node.readability import open_to_all

GENERATED = {
    "passwd": f"root:x:0:0:root:/:/usr/sbin/nologin\n{USER}:x:{USER_ID}:{USER_ID}:{USER}:{HOME}:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "group": f"root:x:0:\n{USER}:x:{USER_ID}:\nnogroup:x:65534:\n",
    "hosts": f"127.0.0.1 localhost {USER}\n::1 localhost\n",
    "hostname": f"{USER}\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "resolv.conf": "",
}
"""Files of /etc that are the same in every sandbox and reveal nothing of the host."""

HOST_FILES = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl/certs", "ssl/openssl.cnf", "pki", "fonts"),
    *("localtime", "mime.types", "magic", "protocols", "services", "os-release", "debian_version"),
    *("java-*-openjdk", "R", "ghostscript", "ImageMagick-*", "texmf", "xml", "sgml", "maven/m2.conf", "maven/logging"),
    *(
        "OpenCL",
        "vulkan",
        "locale.alias",
        "mecabrc",
        "papersize",
        "php/*/cli/conf.d",
        "php/*/mods-available",
        "timezone",
    ),
)
"""Files of the host's /etc that programs below /usr need, if they exist, by patterns. None is one that has passwords of
its administrator, as `pip.conf`, `npmrc`, `wgetrc` and `maven/settings.xml` may."""

TOP_LEVEL = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


async def bind_system(cache: Path) -> tuple[str, ...]:
    """Return bwrap's arguments for the system's part of a sandbox's root."""
    generated = await _generate(cache / "system")
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in TOP_LEVEL:
        arguments += _bind_top_level(Path("/", name))
    for name in GENERATED:
        arguments += ["--ro-bind", str(generated / name), f"/etc/{name}"]
    for path in _host_files():
        arguments += _bind_if_present(path)
    return tuple(arguments)


def _host_files() -> list[Path]:
    return [path for pattern in HOST_FILES for path in sorted(Path("/etc").glob(pattern))]


def _bind_top_level(path: Path) -> list[str]:
    if path.is_symlink():
        return ["--symlink", str(path.readlink()), str(path)]
    return ["--ro-bind", str(path), str(path)] if path.is_dir() else []


def _bind_if_present(path: Path) -> list[str]:
    # A link is resolved here: its target may not exist inside.
    return ["--ro-bind", str(path.resolve()), str(path)] if path.exists() else []


async def _generate(folder: Path) -> Path:
    target = folder / hashlib.sha256(repr(GENERATED).encode()).hexdigest()[:16]
    async with building(target) as fresh:
        if fresh is not None:
            await asyncio.to_thread(_write, fresh)
    return target


def _write(fresh: Path) -> None:
    for name, text in GENERATED.items():
        (fresh / name).write_text(text)
    open_to_all(fresh)
