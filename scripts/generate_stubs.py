"""Generate the Python stubs of protos/ into sdk/sandmesh/api; with --check, fail where those there are stale."""

from __future__ import annotations

import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc_tools  # type: ignore[import-untyped]  # ships no types

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
TARGET = ROOT / "sdk" / "sandmesh" / "api"


def generate(out: Path) -> None:
    """Write the stubs of every proto below `out`, as packages."""
    files = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.rglob("*.proto"))
    well_known = Path(str(grpc_tools.__file__)).parent / "_proto"
    plain = [f"--{name}_out={out}" for name in ("python", "grpc_python")]
    plugins = [*plain, *(f"--{name}_out=quiet:{out}" for name in ("mypy", "mypy_grpc"))]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", f"-I{well_known}", *plugins, *files]
    subprocess.run(command, check=True)
    for path in [*(out / "sandmesh" / "api").rglob("*"), out / "sandmesh" / "api"]:
        if path.is_dir():
            (path / "__init__.py").write_text("")
    for path in (out / "sandmesh" / "api").rglob("*_pb2_grpc.py"):
        if "Servicer" not in path.read_text():
            path.unlink()
            path.with_suffix(".pyi").unlink(missing_ok=True)
    for path in (out / "sandmesh" / "api").rglob("*_pb2_grpc.pyi"):
        if not path.with_suffix(".py").exists():
            path.unlink()


def stale(left: Path, right: Path) -> list[str]:
    """Return the names of the files that differ between two trees of stubs."""
    names = {
        str(path.relative_to(tree))
        for tree in (left, right)
        for path in tree.rglob("*.py*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    return sorted(n for n in names if not _same(left / n, right / n))


def _same(left: Path, right: Path) -> bool:
    return left.exists() and right.exists() and filecmp.cmp(left, right, shallow=False)


def main() -> None:
    """Run the command line."""
    # protoc finds its plugins on PATH, beside this interpreter.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh = Path(folder) / "sandmesh" / "api"
        differing = stale(fresh, TARGET)
        if "--check" in sys.argv:
            if differing:
                raise SystemExit("stale stubs, run `make stubs`: " + ", ".join(differing))
            return
        shutil.rmtree(TARGET, ignore_errors=True)
        shutil.copytree(fresh, TARGET)
        print(f"{len(differing)} files changed")


if __name__ == "__main__":
    main()
