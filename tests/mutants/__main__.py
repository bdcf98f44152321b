"""Remove each protection from a copy of the sources, run the test that must notice, and print a table."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.protections import MUTANTS

_SECONDS = 600
_COPIED = ("sdk", "services", "tests", "scripts", "docs", "protos", "examples", "images", "benchmarks")
# What a test run answers with when a test failed; others mean that it did not run: https://docs.pytest.org exit codes.
_FAILED = 1
_PASSED = 0


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant."""

    mutant: Mutant
    word: str
    seconds: float
    output: str


def main() -> None:
    """Run the mutants whose protection has one of the given words, or all; end with 1 unless all turned a test red."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only protections that have one of these words; none: all")
    parser.add_argument("--processes", type=int, default=2, help="how many tests run at once")
    parser.add_argument("--list", action="store_true", help="run nothing: print the table of docs/threat-model.md")
    options = parser.parse_args()
    if options.list:
        print(table())
        return
    chosen = [
        mutant for mutant in MUTANTS if not options.words or any(word in mutant.protection for word in options.words)
    ]
    with tempfile.TemporaryDirectory(prefix="sandmesh-mutants-") as folder:
        Path(folder).chmod(0o755)  # ordinary users run tests from it, too
        copies = [_copy(Path(folder) / str(number)) for number in range(max(1, options.processes))]
        if red := _red_without_patches(copies[0], chosen):
            raise SystemExit(f"tests that fail without any patch tell nothing:\n{red}")
        with ThreadPoolExecutor(len(copies)) as pool:
            outcomes = list(pool.map(partial(_try, copies), chosen))
    for one in outcomes:
        if one.word != "red":
            print(f"\n--- {one.mutant.protection}: {one.mutant.test} ---\n{one.output}")
    noticed = sum(outcome.word == "red" for outcome in outcomes)
    print(f"\n{noticed} of {len(outcomes)} protections turn a test red when they are removed")
    if noticed < len(outcomes) or not outcomes:
        raise SystemExit(1)


def table() -> str:
    """Return the protections with the tests that notice their absence, in Markdown."""
    rows = [f"| {one.protection} | `{one.test.rpartition('::')[2]}` |" for one in MUTANTS]
    return "\n".join(["| without this | this test fails |", "| --- | --- |", *rows])


def _copy(folder: Path) -> Path:
    for name in _COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def _red_without_patches(copy: Path, chosen: Sequence[Mutant]) -> str:
    done = _run(copy, sorted({one.test for one in chosen}))
    return "" if done.returncode == _PASSED else done.stdout


def _try(copies: list[Path], mutant: Mutant) -> Outcome:
    copy, started = copies.pop(), time.monotonic()
    path = copy / mutant.file
    before = path.read_text()
    try:
        mutant.apply(copy)
        done = _run(copy, [mutant.test])
    finally:
        path.write_text(before)
        copies.append(copy)
    word = {_FAILED: "red", _PASSED: "GREEN"}.get(done.returncode, "BROKEN")
    outcome = Outcome(mutant, word, time.monotonic() - started, done.stdout)
    print(f"{word:6} {outcome.seconds:5.1f} s  {mutant.protection}  ({mutant.test.rpartition('::')[2]})", flush=True)
    return outcome


def _run(copy: Path, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(copy / name) for name in ("sdk", "services", "."))
    # Without bytecode: two patches within a second would be one to a cache that goes by times.
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "SANDMESH_TEST_REQUIRE": "all"}
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "--show-capture=no", *tests]
    return subprocess.run(
        command, cwd=copy, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=_SECONDS, check=False,
    )  # fmt: skip


if __name__ == "__main__":
    main()
