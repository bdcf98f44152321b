"""Chooses the Python that templates and agents run on: one that sandboxes can read, of the mesh's own version.

The version must be the mesh's because the agent's compiled packages are copied from the mesh's environment.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sandmesh.errors import RuntimeUnavailable
from sandmeshd.drivers.node.readability import can_read

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class Interpreter:
    """A Python on the host, at the same path inside a sandbox."""

    executable: Path
    prefix: Path

    @property
    def binds(self) -> tuple[str, ...]:
        """The arguments of bwrap that show it; none where /usr, which is always shown, has it."""
        if self.prefix.is_relative_to("/usr"):
            return ()
        return ("--ro-bind", str(self.prefix), str(self.prefix))


def choose_interpreter(uid: int, wanted: Path | None) -> Interpreter:
    """Return the interpreter that sandboxes with a host uid use: `wanted`, the mesh's own, or the system's.

    Raises:
        RuntimeUnavailable: None can be read by that uid and has the mesh's version.
    """
    if wanted is not None:
        return _examined(wanted, uid)
    own = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    if _readable(Interpreter(own, Path(sys.base_prefix).resolve()), uid):
        return Interpreter(own, Path(sys.base_prefix).resolve())
    system = Path(f"/usr/bin/python{VERSION}")
    if _readable(Interpreter(system, Path("/usr")), uid):
        return Interpreter(system, Path("/usr"))
    fix = f"install Python {VERSION} below /usr, or run the mesh with a Python that uid {uid} can read"
    raise RuntimeUnavailable(f"sandboxes (uid {uid}) cannot read {own}: {fix}", {"fix": fix})


def _readable(interpreter: Interpreter, uid: int) -> bool:
    return can_read(interpreter.executable, uid) and can_read(interpreter.prefix, uid)


def _examined(wanted: Path, uid: int) -> Interpreter:
    ask = "import sys; print('%d.%d' % sys.version_info[:2], sys.base_prefix)"
    fix = f"name a Python {VERSION} that uid {uid} can read, or none"
    try:
        done = subprocess.run([wanted, "-I", "-S", "-c", ask], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise RuntimeUnavailable(f"{wanted} does not run: {error}; {fix}", {"fix": fix}) from None
    version, _, prefix = done.stdout.strip().partition(" ")
    found = Interpreter(wanted.resolve(), Path(prefix).resolve())
    if version != VERSION or not _readable(found, uid):
        raise RuntimeUnavailable(f"{wanted} is Python {version} in {prefix}: {fix}", {"fix": fix})
    return found
