"""The versions of the site: a directory each, and the list that the selector of every page reads.

The list has the form of mike's, which the theme's selector takes: newest first, and `latest` names the newest release.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Final

from packaging.version import InvalidVersion, Version

LIST: Final = "versions.json"
_START: Final = """<!DOCTYPE html>
<meta charset="utf-8">
<title>sandmesh</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
<a href="{version}/index.html">Documentation of sandmesh {version}</a>
"""


def add_version(built: Path, version: str, site: Path) -> Path:
    """Add a version's pages to a site, in place of earlier ones of the same version, and return where they are.

    Pages of other versions stay as they are.

    Raises:
        ValueError: The directory exists and is not a site of this kind.
    """
    if site.is_dir() and any(site.iterdir()) and not (site / LIST).is_file():
        raise ValueError(
            f"{site} has files, but no {LIST}: name an empty directory, or one that an earlier build wrote"
        )
    folder = site / version
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(built, folder)
    # The selector keeps a reader's page only where the list of pages has the address of their directory.
    pages = folder / "sitemap.xml"
    pages.write_text(re.sub(r"(<loc>[^<]*/)index\.html(</loc>)", r"\1\2", pages.read_text(), count=1))
    versions = versions_of(site)
    newest = next((name for name in versions if not Version(name).is_prerelease), versions[0])
    rows = [{"version": name, "title": name, "aliases": ["latest"] if name == newest else []} for name in versions]
    (site / LIST).write_text(json.dumps(rows, indent=2) + "\n")
    (site / "index.html").write_text(_START.format(version=newest))
    return folder


def versions_of(site: Path) -> list[str]:
    """Return the versions that a site has, newest first."""
    found = [path.name for path in site.iterdir() if (path / "index.html").is_file() and _is_version(path.name)]
    return sorted(found, key=Version, reverse=True)


def _is_version(name: str) -> bool:
    try:
        Version(name)
    except InvalidVersion:
        return False
    return True
