"""Writes the files with hashes that images install from: `python -m scripts.image_locks`, with `uv` on the PATH.

Each `images/*/*.txt` names the packages with their versions, also those that others need; the `.lock` beside it has the
same with the hashes of their files for every platform.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = "# Written by scripts/image_locks.py from {name}, with the hashes of each file of a release.\n"
LOCK = (
    *("pip", "compile", "--quiet", "--generate-hashes", "--no-deps", "--universal", "--python-version", "3.11"),
    *("--no-header", "--no-annotate"),
)


def requirement_files() -> list[Path]:
    """Return the lists of packages that images are made with."""
    return sorted((ROOT / "images").glob("*/*.txt"))


def main() -> None:
    """Write every lock."""
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("uv is not installed: pip install uv")
    for path in requirement_files():
        done = subprocess.run([uv, *LOCK, str(path)], check=True, stdout=subprocess.PIPE, text=True)
        path.with_suffix(".lock").write_text(HEADER.format(name=path.name) + done.stdout)
        print(path.with_suffix(".lock").relative_to(ROOT))


if __name__ == "__main__":
    main()
