"""Two versions of sandmesh, one after the other on the same state, and clients of each with a mesh of the other.

python -m tests.faults.versions COMMIT [--record FILE]

COMMIT is unpacked into a folder beside and runs with the packages of this environment. A mesh of that version gets
sessions, a sandbox that runs, tokens, quotas, a secret and a snapshot; then this version takes over while the sandbox
runs, hands back, and takes over again after everything was saved. `--record` keeps the state of the earlier version,
with nothing running, as an archive that `test_versions.py` opens. `tests/faults/upgrade.py` upgrades under load.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweep import remove
from tests.leaks import mark_process

ROOT = Path(__file__).resolve().parents[2]
GIT = (shutil.which("git") or "git", "-C", str(ROOT))
BEFORE = ("b705bdaa", "f0f46e0d")
"""Commits that stand for releases until there are two: each was checked as a whole, unlike those between them."""
CLIENT = Path(__file__).with_name("version_client.py")
MESH_ID = "recorded"
SECONDS = 180


@dataclass(frozen=True)
class Version:
    """One version's interpreter and the variables that its commands get."""

    name: str
    python: Path
    variables: Mapping[str, str]

    def run(self, *arguments: str, stdin: str = "") -> str:
        """Run a command of `sandmesh` and return its output.

        Raises:
            RuntimeError: It failed.
        """
        return self._program("-m", "sandmeshd.cli.user", *arguments, stdin=stdin)

    def client(self, action: str, address: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Use a mesh by this version's SDK and return what it found.

        Raises:
            RuntimeError: Something was not as it should be.
        """
        out = self._program(str(CLIENT), action, address, stdin=json.dumps(facts))
        found: dict[str, Any] = json.loads(out.splitlines()[-1])
        return found

    def _program(self, *arguments: str, stdin: str) -> str:
        done = subprocess.run(
            [str(self.python), *arguments], env=dict(self.variables), input=stdin, capture_output=True, text=True,
            timeout=SECONDS, check=False, cwd="/",
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{self.name}: {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-3000:]}")
        return done.stdout


def state_variables(folder: Path) -> dict[str, str]:
    """Return the environment of a mesh whose workspaces are saved below a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SANDMESH_", "PYTHON"))}
    return {**kept, "SANDMESH_MESH_ID": MESH_ID, "SANDMESH_STORAGE_FOLDER": str(folder / "storage")}


def earlier_commits() -> list[str]:
    """Return the last two releases, or commits of before; none where the clone has no history."""
    tags = subprocess.run(
        [*GIT, "tag", "--list", "v*", "--sort=-v:refname"], capture_output=True, text=True, check=True
    )
    releases = [tag for tag in tags.stdout.split() if "-" not in tag][:2]
    return releases if len(releases) == len(BEFORE) else [commit for commit in BEFORE if _is_there(commit)]


def _is_there(commit: str) -> bool:
    command = [*GIT, "rev-parse", "--quiet", "--verify", commit]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def check_out(commit: str, folder: Path) -> Path:
    """Make an environment with that commit's packages and this one's dependencies, and return its interpreter."""
    tree, made = folder / "tree", folder / "venv"
    tree.mkdir(parents=True)
    command = [*GIT, "archive", commit, "sdk", "services", "images", "pyproject.toml"]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(tree)  # noqa: S202 - of this repository
    venv.create(made, with_pip=False)
    [packages] = made.glob("lib/python3*/site-packages")
    ours = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    [metadata] = ours.glob("sandmesh-*.dist-info")
    shutil.copytree(metadata, packages / metadata.name)
    (packages / metadata.name / "entry_points.txt").write_text(_entry_points(tree / "pyproject.toml"))
    (packages / "earlier.pth").write_text(f"{tree / 'sdk'}\n{tree / 'services'}\n{ours}\n")
    return made / "bin" / "python"


def _entry_points(project: Path) -> str:
    groups: dict[str, dict[str, str]] = tomllib.loads(project.read_text())["project"].get("entry-points", {})
    return "\n".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in groups.items()
    )


def start_mesh(version: Version) -> str:
    """Start a mesh of a version in the background and return its address."""
    return str(json.loads(version.run("up", "-d", "-o", "json"))["addresses"][0])


def prepare(version: Version) -> dict[str, Any]:
    """Start a mesh of a version and give it everything that the next one must find."""
    address = start_mesh(version)
    version.run("token", "create", "ci", "--user", "ada", "--expires", "never")
    version.run("quota", "set", "--user", "ada", "sandboxes=3")
    version.run("secret", "set", "KEY", "--host", "example.org", stdin="value")
    return version.client("prepare", address, {}) | {"address": address}


def check(version: Version, facts: Mapping[str, Any], address: str) -> None:
    """Look for all of it by a version's SDK and commands.

    Raises:
        RuntimeError: Something is missing.
    """
    version.client("check", address, facts)
    tokens, secrets = (json.loads(version.run(noun, "ls", "-o", "json")) for noun in ("token", "secret"))
    quotas = json.loads(version.run("quota", "show", "--user", "ada", "-o", "json"))
    found = (
        [token["name"] for token in tokens],
        [secret["name"] for secret in secrets],
        [quota["limits"] for quota in quotas],
    )
    if found != (["ci"], ["KEY"], [{"sandboxes": 3}]):
        raise RuntimeError(f"{version.name} finds {found}")
    version.run("doctor", "--mesh")


def record(archive: Path, folder: Path) -> None:
    """Keep a mesh's state and storage with the facts as one archive."""
    settings = MeshSettings(mesh_id=MESH_ID)
    with tarfile.open(archive, "w:xz") as tar:
        tar.add(settings.paths.state, "mesh", filter=_kept)
        tar.add(folder / "storage", "storage")
        tar.add(folder / "facts.json", "facts.json")


def _kept(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return what a state is without what is of this machine."""
    return None if Path(info.name).name in ("sandboxes", "lock", "mesh.log", "server.log") else info


def main() -> None:
    """Run all of it and say what held."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    mark_process()
    with tempfile.TemporaryDirectory(prefix="versions-") as name:
        folder = Path(name)
        try:
            _take_turns(options.commit, folder, options.record)
        finally:
            remove(MeshSettings(mesh_id=MESH_ID).paths)


def _take_turns(commit: str, folder: Path, archive: Path | None) -> None:
    variables = state_variables(folder)
    (folder / "storage").mkdir()
    earlier = Version("the earlier version", check_out(commit, folder), variables)
    present = Version("this version", Path(sys.executable), variables)
    try:
        facts = prepare(earlier)
        running = facts | {"runs": True}
        _held("the earlier mesh, this SDK", present.client("check", facts["address"], running))
        earlier.run("down", "--keep")
        address = start_mesh(present)
        check(present, running, address)
        _held("upgraded with a sandbox running: this mesh, this SDK")
        _held("this mesh, the earlier SDK", earlier.client("check", address, running))
        present.run("down", "--keep")
        address = start_mesh(earlier)
        check(earlier, running, address)
        _held("rolled back with a sandbox running: the earlier mesh, the earlier SDK")
        earlier.run("down")
        (folder / "facts.json").write_text(json.dumps(facts))
        if archive is not None:
            record(archive, folder)
        check(present, facts, start_mesh(present))
        _held("upgraded after everything was saved")
    finally:
        present.run("down")


def _held(what: str, found: object = "") -> None:
    sys.stdout.write(f"held: {what} {found or ''}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
