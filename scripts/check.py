"""Run every check of the repository, two at a time; print a line for each, then the output of those that fail."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = Path(sys.executable).parent
PROCESSES = 2


@dataclass(frozen=True)
class Outcome:
    """The outcome of a check."""

    name: str
    passed: bool
    seconds: float
    output: str


def checks() -> dict[str, Sequence[str]]:
    """Return the checks' commands by name, the slow ones first."""
    found: dict[str, Sequence[str]] = {
        "pyright": ("pyright", "--warnings"),
        "mypy": ("mypy",),
        "import rules": ("lint-imports", "--no-cache"),
        "import graph": ("python", "scripts/import_graph.py"),
        "ruff": ("ruff", "check", "."),
        "formatting": ("ruff", "format", "--check", "."),
        "proto lint": ("buf", "lint"),
        "proto formatting": ("buf", "format", "--diff", "--exit-code"),
        "subjects of commits": ("python", "scripts/commit_messages.py", "--new"),
        "stubs are fresh": ("python", "scripts/generate_stubs.py", "--check"),
        "what is made of tools is fresh": ("python", "scripts/tool_stubs.py", "--check"),
        "documentation": ("python", "-m", "scripts.site"),
    }
    tag = last_release()
    if tag:
        found["protos break nobody"] = ("buf", "breaking", "--against", f".git#tag={tag}")
    return found


def last_release() -> str:
    """Return the newest tag of a release, empty where there is none: until then the protos may change freely."""
    command = ["git", "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""


def run(name: str, command: Sequence[str]) -> Outcome:
    """Run one check with the tools beside this interpreter."""
    environment = {**os.environ, "PATH": f"{TOOLS}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    # Otherwise pyright looks for a newer version on the network.
    environment["PYRIGHT_PYTHON_IGNORE_WARNINGS"] = "1"
    started = time.monotonic()
    done = subprocess.run(
        [str(TOOLS / command[0]), *command[1:]],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return Outcome(name, done.returncode == 0, time.monotonic() - started, done.stdout)


def main() -> None:
    """Run the checks that the arguments name, or all."""
    chosen = {name: command for name, command in checks().items() if not sys.argv[1:] or name in sys.argv[1:]}
    with ThreadPoolExecutor(PROCESSES) as pool:
        outcomes = list(pool.map(run_and_report, chosen, chosen.values()))
    failed = [outcome for outcome in outcomes if not outcome.passed]
    for outcome in failed:
        print(f"\n--- {outcome.name} ---\n{outcome.output}")
    if failed or not chosen:
        raise SystemExit(f"failed: {', '.join(outcome.name for outcome in failed) or 'no such check'}")


def run_and_report(name: str, command: Sequence[str]) -> Outcome:
    """Run one check and print its line."""
    outcome = run(name, command)
    print(f"{'ok    ' if outcome.passed else 'FAILED'} {outcome.seconds:5.1f} s  {outcome.name}", flush=True)
    return outcome


if __name__ == "__main__":
    main()
