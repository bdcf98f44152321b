"""Make the files of a release from a commit, and install and use them as their users will. It publishes nothing.

Run by `make release`: files are left in `dist`, with `SHA256SUMS` over them; its last lines say how to publish them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from scripts.release.artefacts import Differs, build_twice, commit_time, hashes
from scripts.release.bill import write_bill
from scripts.release.installs import Installed, extras_of, install_all, table
from scripts.release.notes import write_notes
from scripts.release.programs import ProgramFailed, run_first_commands, run_mcp, run_tests
from scripts.release.pythons import find_pythons
from scripts.release.version import read_version, stale

ROOT: Final = Path(__file__).resolve().parents[2]
NEXT: Final = """
Nothing was published. What comes next, by hand:
  git tag -s v{version} -m "sandmesh {version}"    # from then on `make check` compares the protos with it
  cosign sign-blob --bundle dist/SHA256SUMS.sigstore.json dist/SHA256SUMS
  uv publish dist/*.whl dist/sandmesh-{version}.tar.gz
  make docs DOCS="--into SITE"    # adds a directory for {version} to the site that is served; earlier versions stay
Then README's first command becomes: pip install "sandmesh[local]\""""


@contextmanager
def step(name: str) -> Generator[None]:
    """Print a line for a step, with its seconds or its failure."""
    started = time.monotonic()
    try:
        yield
    except (Differs, ProgramFailed, ValueError, subprocess.CalledProcessError) as error:
        print(f"FAILED {time.monotonic() - started:6.1f} s  {name}", flush=True)
        raise SystemExit(f"make release: {name}: {error}") from None
    print(f"ok     {time.monotonic() - started:6.1f} s  {name}", flush=True)


def check_sources() -> str:
    """Return the version of the commit that is checked out.

    Raises:
        ValueError: Files differ from the commit, or places have another version; the message says what to do.
    """
    command = ["git", "status", "--porcelain", "--untracked-files=no"]
    changed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    if any(changed):
        raise ValueError(f"a release is made of a commit: commit these first:{''.join(changed)[:500]}")
    if wrong := stale():
        raise ValueError(f"other versions in {wrong}: python -m scripts.release.version {read_version()}")
    return read_version()


def make_files(out: Path) -> Path:
    """Write the files of the release, and return the wheel."""
    out.mkdir(exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    with step("the version is the same everywhere, and nothing is uncommitted"):
        version = check_sources()
    with step("wheel, sdist and protos: two builds with equal hashes"):
        files = build_twice("HEAD", out)
    wheel = next(path for path in files if path.suffix == ".whl")
    with step("SBOM and licences of dependencies"):
        files += write_bill(wheel, out, commit_time())
    with step("notes of the release"):
        files.append(write_notes(version, out / f"sandmesh-{version}.notes.md"))
    lines = [f"{digest}  {name}\n" for name, digest in sorted(hashes(files).items())]
    (out / "SHA256SUMS").write_text("".join(lines))
    print("".join(lines), end="")
    return wheel


def check_installs(wheel: Path, out: Path) -> None:
    """Install each extra on each Python, and write the table.

    Raises:
        ValueError: An extra cannot be installed or used.
    """
    rows: list[Installed] = []
    for row in install_all(wheel, find_pythons(), extras_of(wheel)):
        rows.append(row)
        print(
            f"  {'FAILED' if row.failure else 'ok    '} {row.python:8} {row.extra or '-':22} {row.seconds:5.1f} s",
            flush=True,
        )
    (out / "installs.md").write_text(f"{table(rows)}\n")
    failures = [f"{row.extra} on {row.python}: {row.failure}" for row in rows if row.failure]
    if failures:
        raise ValueError("\n  ".join(failures))


def check_use(wheel: Path, out: Path) -> None:
    """Install and use the wheel as users do."""
    with step("each extra in a fresh environment on each Python"):
        check_installs(wheel, out)
    with step("sandmesh mcp by uvx"):
        run_mcp(wheel)
    # Below /var/tmp, where sandboxes' uid can read an interpreter's packages.
    with tempfile.TemporaryDirectory(prefix="sandmesh-release-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        with step("the README's first commands"):
            run_first_commands("HEAD", Path(folder))
        with step("programs of README, quickstart and integrations"):
            print(run_tests("HEAD", wheel, Path(folder)))


def main() -> None:
    """Make and check a release."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--build", action="store_true", help="only build the files")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the files are written")
    options = parser.parse_args()
    wheel = make_files(options.out.absolute())
    if not options.build:
        check_use(wheel, options.out.absolute())
    print(NEXT.format(version=read_version()))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
