"""What the image has installed for the agent, compared with what the agent's code imports and pyproject.toml allows."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

# pytest itself needs it.
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import sandmesh
import sandmeshd
from sandmeshd.drivers.engine.images.build import images_folder
from sandmeshd.drivers.node.agent_bundle import LIBRARIES, MCP_DISTRIBUTIONS, MCP_LIBRARIES, MODULES
from sandmeshd.drivers.node.agent_sources import list_sources
from sandmeshd.templates import load_templates

OWN = {"sandmesh": sandmesh, "sandmeshd": sandmeshd}
ROOT = Path(__file__).parents[4]
USERLAND = Path(next(iter(sandmeshd.__path__))) / "agent" / "userland"
OF_TEMPLATES = {"browser": {"playwright"}, "training": {"gymnasium"}}
"""The programs that run in the environment of the template with their name, and what they are known to import."""


def _pins(name: str) -> dict[str, str]:
    lines = (images_folder() / "base" / name).read_text().splitlines()
    wanted = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(one.name): str(one.specifier).removeprefix("==") for one in wanted}


def _distributions(modules: set[str]) -> dict[str, set[str]]:
    """Return, by module, the distributions that have its top level; by its own name where none is installed."""
    found = packages_distributions()
    tops = {name: name.split(".")[0] for name in modules}
    return {name: {canonicalize_name(one) for one in found.get(top, [top])} for name, top in tops.items()}


def _without(modules: set[str], have: set[str]) -> set[str]:
    return {name for name, owners in _distributions(modules).items() if not owners & have}


def _agent_files() -> Iterator[Path]:
    return (path for path, _ in list_sources({name: Path(next(iter(own.__path__))) for name, own in OWN.items()}))


def _imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    return {name.split(".")[0] for name in names}


def test_the_image_has_each_library_that_sandboxes_of_the_bubblewrap_driver_have() -> None:
    agent, mcp = set(_pins("agent.txt")), set(_pins("mcp.txt"))
    assert _without({*LIBRARIES, *MODULES}, agent) == set()
    assert _without({*MCP_LIBRARIES}, mcp) == set()
    assert {canonicalize_name(name) for name in MCP_DISTRIBUTIONS} <= mcp
    assert not agent & mcp


def test_all_that_the_agents_code_imports_is_in_the_image() -> None:
    required = {
        canonicalize_name(Requirement(requirement).name) for requirement in load_templates()["base"].python.requirements
    }
    # IPython is made of it.
    user_code = required | {"traitlets"}
    elsewhere = {USERLAND / name for name in OF_TEMPLATES}
    code = [path for path in _agent_files() if path.suffix == ".py" and not path.name.endswith("_grpc.py")]
    files = [path for path in code if not elsewhere & {*path.parents}]
    imported = {name for path in files for name in _imported(path)} - OWN.keys() - set(sys.stdlib_module_names)
    assert "pydantic" in imported
    assert _without(imported, {*_pins("agent.txt"), *_pins("mcp.txt"), *user_code}) == set()


@pytest.mark.parametrize("name", OF_TEMPLATES)
def test_all_that_a_templates_own_program_imports_is_in_its_environment(name: str) -> None:
    requirements = load_templates()[name].python.requirements
    required: set[str] = {canonicalize_name(Requirement(requirement).name) for requirement in requirements}
    imported = {module for path in _agent_files() if USERLAND / name in path.parents for module in _imported(path)}
    imported -= OWN.keys() | set(sys.stdlib_module_names)
    assert OF_TEMPLATES[name] <= imported
    assert _without(imported, required) == set()


def test_what_the_image_pins_is_what_this_release_may_be_installed_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    wanted = [Requirement(line) for line in [*project["dependencies"], *extras["server"], *extras["mcp"]]]
    pins = {**_pins("agent.txt"), **_pins("mcp.txt")}
    common = [requirement for requirement in wanted if canonicalize_name(requirement.name) in pins]
    assert {"protobuf", "pydantic", "uvloop", "mcp"} <= {one.name for one in common}
    refused = [str(one) for one in common if not one.specifier.contains(pins[canonicalize_name(one.name)])]
    assert refused == []
