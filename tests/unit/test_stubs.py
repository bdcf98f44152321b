"""The protos and what is made of them."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import FileDescriptor, MethodDescriptor

import sandmesh.api
from sandmesh.api.options.v1 import options_pb2

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "sdk" / "sandmesh" / "api"
TOOLS = Path(sys.executable).parent


def run(*command: str) -> None:
    path = str(TOOLS / command[0])
    done = subprocess.run([path, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def files() -> Iterator[FileDescriptor]:
    for module in pkgutil.walk_packages(sandmesh.api.__path__, "sandmesh.api."):
        if module.name.endswith("_pb2"):
            yield importlib.import_module(module.name).DESCRIPTOR


def methods() -> list[MethodDescriptor]:
    return [method for file in files() for service in file.services_by_name.values() for method in service.methods]


@pytest.fixture(scope="module")
def handwritten() -> str:
    """All code of the product that is not generated."""
    paths = [path for folder in ("sdk", "services") for path in (ROOT / folder).rglob("*.py")]
    return "\n".join(path.read_text() for path in paths if GENERATED not in path.parents)


def test_the_committed_stubs_are_those_of_the_protos() -> None:
    run("python", "scripts/generate_stubs.py", "--check")


def test_the_protos_keep_the_lint_rules() -> None:
    run("buf", "lint")


def test_the_protos_are_formatted() -> None:
    run("buf", "format", "--diff", "--exit-code")


def test_there_are_methods_to_look_at() -> None:
    assert len(methods()) > 20


@pytest.mark.parametrize("method", methods(), ids=lambda method: str(method.full_name))
def test_every_method_is_implemented_or_called(method: MethodDescriptor, handwritten: str) -> None:
    assert re.search(rf"\b{method.name}\b", handwritten), f"{method.full_name} has neither a caller nor a servicer"


@pytest.mark.parametrize("method", methods(), ids=lambda method: str(method.full_name))
def test_every_method_says_whether_it_is_public(method: MethodDescriptor) -> None:
    assert method.GetOptions().Extensions[options_pb2.visibility] != options_pb2.VISIBILITY_UNSPECIFIED
