"""Write the table of docs/integrations/README.md, by running every program.

`python -m tests.mesh.integrations.integrations_page` does it.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from scripts.door_tables import replaced

from tests.mesh.doors.e2b.e2b_world import World, open_world
from tests.mesh.integrations.framework_programs import NODE, PROGRAMS, Program, node_packages, python_of, run_program
from tests.mesh.integrations.scripted_model import scripted_model

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "integrations" / "README.md"
BEGIN: Final = "<!-- made by tests/mesh/integrations/integrations_page.py -->"
HEAD: Final = "| framework | form | command | ran with | on |\n| --- | --- | --- | --- | --- |"
VERSIONS: Final = "import importlib.metadata as m, sys; print(*(f'{n} {m.version(n)}' for n in sys.argv[1:]), sep=', ')"


async def row(program: Program, world: World, node: Path) -> str:
    """Run a program, and return its row.

    Raises:
        AssertionError: It did not end with its answer.
    """
    async with scripted_model(tool=program.tool, arguments=program.arguments) as model:
        printed = await run_program(program, world, model, node)
    assert program.answer in printed, printed
    sys.stderr.write(f"{program.file}\n")
    cells = (f"[{program.framework}]({program.page})", program.form, f"`{program.command}`", versions(program))
    return f"| {' | '.join(cells)} | {datetime.datetime.now(datetime.UTC).date()} |"


def versions(program: Program) -> str:
    """Return the versions of what the table names of a program."""
    if program.file.endswith(".mjs"):
        packages = json.loads((NODE / "package-lock.json").read_text())["packages"]
        node = subprocess.run([shutil.which("node") or "node", "--version"], capture_output=True, text=True, check=True)
        found = [f"{name} {packages[f'node_modules/{name}']['version']}" for name in program.packages]
        return ", ".join([*found, f"Node {node.stdout.strip().removeprefix('v')}"])
    command = [str(python_of(program)), "-c", VERSIONS, *program.packages]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


async def main() -> None:
    """Run all programs, and write the table."""
    with tempfile.TemporaryDirectory(prefix="sm-") as folder:
        node = node_packages(Path(folder) / "node")
        async with open_world() as world:
            rows = [await row(program, world, node) for program in PROGRAMS]
    PAGE.write_text(replaced(PAGE.read_text(), "\n".join([HEAD, *rows]), BEGIN))


if __name__ == "__main__":
    asyncio.run(main())
