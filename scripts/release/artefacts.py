"""The files of a release, which are the same byte for byte wherever a commit is built."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CONSTRAINTS: Final = Path(__file__).with_name("build-constraints.txt")
# Directories of different lengths and files of different modes, which must not show in what is built.
_UMASKS: Final = {"first": 0o022, "a-second-build-elsewhere": 0o077}


def tool(name: str) -> str:
    """Return the path of a program beside this interpreter."""
    return str(Path(sys.executable).with_name(name))


class Differs(Exception):
    """Two builds of one commit are not the same."""


def commit_time(commit: str = "HEAD") -> int:
    """Return when a commit was made, in seconds since 1970: the time of everything in a release."""
    command = ["git", "show", "--no-patch", "--format=%ct", commit]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def export(commit: str, folder: Path, umask: int = 0o022) -> Path:
    """Write the files of a commit into a new directory, with the modes that a umask leaves, and return it."""
    folder.mkdir(parents=True)
    command = ["git", "archive", commit]
    archive = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    command = ["tar", "-x", "-C", str(folder), "--no-same-permissions"]
    subprocess.run(command, input=archive, check=True, umask=umask)
    return folder


def build(sources: Path, out: Path, epoch: int) -> list[Path]:
    """Build the wheel and the sdist of a directory of sources, and the artefact of its protos."""
    out.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    command = [tool("uv"), "build", "--quiet", "--no-config", "--out-dir", str(out)]
    command += ["--build-constraint", str(CONSTRAINTS), str(sources)]
    subprocess.run(command, env=environment, check=True)
    (out / ".gitignore").unlink(missing_ok=True)
    [wheel] = out.glob("*.whl")
    pack_protos(sources / "protos", out / f"sandmesh-protos-{wheel.name.split('-')[1]}.tar.gz", epoch)
    return sorted(out.iterdir())


def pack_protos(protos: Path, target: Path, epoch: int) -> None:
    """Pack the protos with their licence, for clients in other languages."""
    files = sorted(path for path in protos.rglob("*.proto") if path.is_file())
    with (
        target.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for path in [*files, protos.parent / "LICENSE"]:
            name = path.relative_to(protos if path in files else protos.parent)
            entry = tarfile.TarInfo(f"{target.name.removesuffix('.tar.gz')}/{name}")
            entry.size, entry.mtime, entry.mode = path.stat().st_size, epoch, 0o644
            with path.open("rb") as content:
                archive.addfile(entry, content)


def hashes(files: list[Path]) -> Mapping[str, str]:
    """Return the SHA-256 of each file by its name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def build_twice(commit: str, out: Path) -> list[Path]:
    """Build a commit in two directories, and keep the files of the first.

    Raises:
        Differs: A file is not the same in both; the message names it.
    """
    epoch, made = commit_time(commit), list[Mapping[str, str]]()
    with tempfile.TemporaryDirectory(prefix="sandmesh-release-") as folder:
        for name, umask in _UMASKS.items():
            sources = export(commit, Path(folder) / name / "sources", umask)
            made.append(hashes(build(sources, Path(folder) / name / "out", epoch)))
        different = sorted(name for name in made[0].keys() | made[1].keys() if made[0].get(name) != made[1].get(name))
        if different:
            raise Differs(f"two builds of {commit} differ in {', '.join(different)}")
        out.mkdir(parents=True, exist_ok=True)
        return [Path(shutil.copy2(Path(folder) / "first" / "out" / name, out / name)) for name in made[0]]
