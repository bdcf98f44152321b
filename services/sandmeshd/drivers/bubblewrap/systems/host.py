"""The Debian packages that are installed on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

STATUS = Path("/var/lib/dpkg/status")
FILES = ("/etc/X11", "/etc/xdg", "/etc/gtk-3.0", "/etc/chromium", "/etc/chromium.d")
"""What programs of a desktop read besides /usr and what every sandbox sees of the host's /etc."""

SUBSTITUTES = {"chromium-headless-shell": "chromium"}
"""Packages that do as well where they are installed."""

FONTS = Path("/var/cache/fontconfig")


def lacking(packages: Iterable[str]) -> list[str]:
    """Return those of the packages that are not installed."""
    try:
        changed = STATUS.stat().st_mtime_ns
    except FileNotFoundError:
        return list(packages)
    present = _installed(changed)
    return [name for name in packages if not {name, SUBSTITUTES.get(name, name)} & present]


def binds() -> tuple[str, ...]:
    """Return bwrap's arguments for what a desktop reads of the host's files."""
    present = [Path(name) for name in FILES if Path(name).exists()]
    files = [part for path in present for part in ("--ro-bind", str(path.resolve()), str(path))]
    return (*files, *(bind_fonts(str(FONTS)) if FONTS.exists() else ()))


def bind_fonts(cache: str) -> tuple[str, ...]:
    """Return bwrap's arguments for the cache of fonts, in directories that everybody may list."""
    parents = [part for path in ("/var", "/var/cache") for part in ("--perms", "0755", "--dir", path)]
    return (*parents, "--ro-bind", cache, str(FONTS))


@lru_cache(maxsize=1)
def _installed(_changed: int) -> frozenset[str]:
    """Return the names of installed packages; `_changed` is when dpkg last wrote its status."""
    found: set[str] = set()
    name = ""
    for line in STATUS.read_text("utf-8", "replace").splitlines():
        if line.startswith("Package: "):
            name = line[9:]
        elif line.startswith("Status: ") and line.endswith(" installed"):
            found.add(name)
    return frozenset(found)
