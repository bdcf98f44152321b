"""Runs the commands as a person or a script does, on a mesh that a module shares."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from sandmeshd.mesh import MeshSettings
from sandmeshd.mesh.sweep import remove

SECONDS = 180


@dataclass(frozen=True)
class Done:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it wrote, as JSON."""
        return json.loads(self.out)


@dataclass(frozen=True)
class Commands:
    """The command `sandmesh` with an environment of its own, so that no other mesh is touched."""

    settings: MeshSettings
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def run(self, *arguments: str, ok: bool = True, stdin: str = "", **environment: str) -> Done:
        """Run a command to its end; `ok` asserts that it succeeds."""
        done = subprocess.run(
            [sys.executable, "-m", "sandmeshd.cli.user", *arguments],
            env={**self.variables, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert not ok or done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def start(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a command, its output in pipes."""
        return subprocess.Popen(
            [sys.executable, "-m", "sandmeshd.cli.user", *arguments],
            env=dict(self.variables),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the commands."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SANDMESH_")}
        return {**kept, "SANDMESH_MESH_ID": self.settings.mesh_id, **self.environment}


@contextmanager
def own_mesh_id() -> Generator[Commands]:
    """Give commands that mean a mesh of a made-up id, which is ended and removed afterwards."""
    commands = Commands(MeshSettings(mesh_id=f"test-{secrets.token_hex(5)}"))
    try:
        yield commands
    finally:
        commands.run("down", ok=False)
        remove(commands.settings.paths)


@contextmanager
def running_mesh(*arguments: str, **environment: str) -> Generator[Commands]:
    """Give commands and the mesh that they mean, which runs in the background."""
    with own_mesh_id() as commands:
        other = replace(commands, environment=environment)
        other.run("up", "-d", *arguments)
        yield other
