"""What the command line imports before it does anything, and what it says where packages are missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAMS = {"sandmesh": "sandmeshd.cli.user", "sandmeshd": "sandmeshd.cli.service"}
SLOW = {"grpc", "rich", "aiohttp", "asyncio", "google.protobuf", "structlog", "pydantic_settings", "sandmeshd.mesh"}

LOADED = """
import atexit, sys
atexit.register(lambda: print("\\nLOADED", *sys.modules))
sys.argv = [{name!r}, *{arguments!r}]
from {module} import main
main()
"""

# As in an environment that has the SDK alone: the finders do not find what only the extras have.
HIDDEN = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
sys.argv = [{name!r}, *{arguments!r}]
from {module} import main
main()
"""


def run(program: str, name: str, *arguments: str, **values: object) -> subprocess.CompletedProcess[str]:
    code = program.format(name=name, arguments=arguments, module=PROGRAMS[name], **values)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("arguments", [("--help",), ("version",), ("version", "-o", "json")])
def test_help_and_version_import_nothing_of_a_mesh(arguments: tuple[str, ...]) -> None:
    done = run(LOADED, "sandmesh", *arguments)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert "typer" in loaded
    assert loaded & SLOW == set()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_list_of_commands_imports_no_command_and_no_pydantic(name: str) -> None:
    done = run(LOADED, name, "--help")
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert loaded & (SLOW | {"pydantic"}) == set()
    commands = [module for module in loaded if module.startswith("sandmeshd.cli.")]
    assert not any(module.startswith(("sandmeshd.cli.sandboxes", "sandmeshd.cli.mesh")) for module in commands)


@pytest.mark.parametrize(
    ("name", "arguments", "hidden", "extra"),
    [
        ("sandmesh", ("version",), {"typer", "rich"}, 'pip install "sandmesh[server]"'),
        ("sandmesh", ("up",), {"typer", "rich"}, '"sandmesh[local]" to run a mesh'),
        ("sandmesh", ("ls",), {"typer"}, 'pip install "sandmesh[server]"'),
        ("sandmesh", ("up",), {"structlog"}, 'pip install "sandmesh[server]"'),
        ("sandmeshd", ("broker", "--help"), {"typer"}, 'pip install "sandmesh[server]"'),
        ("sandmeshd", ("broker", "--listen", "x:1", "--allocator", "x:2"), {"redis"}, 'pip install "sandmesh[server]"'),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_has_it(
    name: str, arguments: tuple[str, ...], hidden: set[str], extra: str
) -> None:
    done = run(HIDDEN, name, *arguments, hidden=hidden)
    assert done.returncode == 2
    assert done.stdout == ""
    assert extra in done.stderr
    assert f"{name} needs the package" in done.stderr
    assert "Traceback" not in done.stderr
