"""Print the version, or write another one to every file that has it: `python -m scripts.release.version [VERSION]`.

`sdk/sandmesh/shared/version.py` is where it is kept; the other places follow it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = "sdk/sandmesh/shared/version.py"
_SOURCE: Final = re.compile(r'^(__version__ = ")([^"]+)(")$', re.MULTILINE)
# A file's places of the version, which Helm wants as SemVer has it.
_CHART: Final = re.compile(r'^((?:version|appVersion): "?)([^"\n]+)("?)$', re.MULTILINE)
_REGISTRY: Final = re.compile(r'(^ *"version": ")([^"]+)(")', re.MULTILINE)
PLACES: Final[Mapping[str, re.Pattern[str]]] = {
    SOURCE: _SOURCE,
    "server.json": _REGISTRY,
    "deploy/helm/sandmesh/Chart.yaml": _CHART,
}


def read_version(root: Path = ROOT) -> str:
    """Return the version of a checkout.

    Raises:
        ValueError: The file does not have one.
    """
    found = _SOURCE.search((root / SOURCE).read_text())
    if found is None:
        raise ValueError(f'{SOURCE} has no version: it must have a line such as __version__ = "0.1.0"')
    return found[2]


def semantic(version: str) -> str:
    """Return a version of Python's as SemVer writes it: 0.1.0.dev0 is 0.1.0-dev.0, 0.1.0rc1 is 0.1.0-rc.1."""
    parsed = Version(version)
    kind = parsed.pre or (None if parsed.dev is None else ("dev", parsed.dev))
    return parsed.base_version + (f"-{kind[0]}.{kind[1]}" if kind else "")


def expected(name: str, version: str) -> str:
    """Return what a place has for a version."""
    return semantic(version) if name.endswith("Chart.yaml") else version


def stale(root: Path = ROOT) -> dict[str, list[str]]:
    """Return the places that have another version than the source, with what they have."""
    version = read_version(root)
    found = {name: [each[2] for each in PLACES[name].finditer((root / name).read_text())] for name in PLACES}
    return {name: seen for name, seen in found.items() if set(seen) != {expected(name, version)}}


def write_version(version: str, root: Path = ROOT) -> None:
    """Write a version to every place."""
    for name, pattern in PLACES.items():
        path, text = root / name, expected(name, version)
        path.write_text(pattern.sub(rf"\g<1>{text}\g<3>", path.read_text()))


def main() -> None:
    """Print the version, or write that of the argument."""
    if len(sys.argv) == 1:
        print(read_version())
        return
    try:
        version = str(Version(sys.argv[1]))
    except InvalidVersion:
        raise SystemExit(f"{sys.argv[1]} is not a version: write one such as 0.1.0, 0.1.0rc1 or 0.2.0.dev0") from None
    write_version(version)
    print(f"{version}: {', '.join(PLACES)}; docs/tour.md has it after `python scripts/tour_page.py > docs/tour.md`")


if __name__ == "__main__":
    main()
