"""Checks the files of npm's packages that the console's pages use against their list of hashes, or fetches them.

scripts/console_packages.py           # checks the files
scripts/console_packages.py --fetch   # fetches the packages by `npm pack`, checks their hashes, writes the files
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VENDOR = ROOT / "services" / "sandmeshd" / "facades" / "console" / "vendor"
LIST = VENDOR / "packages.json"


def digest(content: bytes) -> str:
    """Return a hash as the registry of npm writes it."""
    return "sha512-" + base64.b64encode(hashlib.sha512(content).digest()).decode()


def fetch(package: dict[str, Any]) -> None:
    """Fetch a package as it was published, and write what is used of it."""
    name = f"{package['name']}@{package['version']}"
    with tempfile.TemporaryDirectory() as folder:
        npm = shutil.which("npm") or "npm"
        subprocess.run([npm, "pack", "--silent", name], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).glob("*.tgz")
        if digest(archive.read_bytes()) != package["integrity"]:
            raise SystemExit(f"{name} is not what {LIST.name} names")
        with tarfile.open(archive) as opened:
            for file, facts in package["files"].items():
                content = opened.extractfile(f"package/{facts['source']}")
                (VENDOR / file).write_bytes(content.read() if content is not None else b"")


def problems(listed: list[dict[str, Any]]) -> list[str]:
    """Return what is wrong with the files."""
    files: dict[str, str] = {name: facts["hash"] for package in listed for name, facts in package["files"].items()}
    there = {path.name: digest(path.read_bytes()) for path in VENDOR.iterdir() if path != LIST}
    found = [f"{name} is missing" for name in files if name not in there]
    found += [f"{name} is not in {LIST.name}" for name in there if name not in files]
    return found + [f"{name} has another hash: {there[name]}" for name in files if there.get(name, "") != files[name]]


def main() -> int:
    """Check the files, and with --fetch fetch them first."""
    listed: list[dict[str, Any]] = json.loads(LIST.read_text())
    if "--fetch" in sys.argv[1:]:
        for package in listed:
            fetch(package)
    found = problems(listed)
    for problem in found:
        sys.stderr.write(f"{problem}\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
