"""The protos and what is made of them."""

from __future__ import annotations

import ast
import importlib
import pkgutil
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
def implemented() -> set[str]:
    """The methods that the product implements, as Service.Method."""
    paths = [path for folder in ("sdk", "services") for path in (ROOT / folder).rglob("*.py")]
    trees = [ast.parse(path.read_text()) for path in paths if GENERATED not in path.parents]
    return {name for tree in trees for name in (*servicer_methods(tree), *handled_methods(tree))}


def servicer_methods(tree: ast.AST) -> Iterator[str]:
    """Yield the methods that the classes of a module define which derive from a generated servicer."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = [base.attr for base in node.bases if isinstance(base, ast.Attribute)]
            services = [base.removesuffix("Servicer") for base in bases if base.endswith("ServiceServicer")]
            own = [each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            yield from (f"{service}.{name}" for service in services for name in own)


def handled_methods(tree: ast.AST) -> Iterator[str]:
    """Yield the methods in a module's tables of handlers: a name, a bound method, and the type of the name's request.

    CallService has no servicer, for its streams pass through the gateway as bytes.
    """
    for table in ast.walk(tree):
        if isinstance(table, ast.Dict):
            for key, value in zip(table.keys, table.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple):
                    name = str(key.value)
                    parts = {part.attr for part in value.elts if isinstance(part, ast.Attribute)}
                    if {f"{name}Request", snake_case(name)} <= parts:
                        yield f"CallService.{name}"


def snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def test_the_committed_stubs_are_those_of_the_protos() -> None:
    run("python", "scripts/generate_stubs.py", "--check")


def test_the_protos_keep_the_lint_rules() -> None:
    run("buf", "lint")


def test_the_protos_are_formatted() -> None:
    run("buf", "format", "--diff", "--exit-code")


def test_there_are_methods_to_look_at() -> None:
    assert len(methods()) > 20


@pytest.mark.parametrize("method", methods(), ids=lambda method: str(method.full_name))
def test_every_method_is_implemented(method: MethodDescriptor, implemented: set[str]) -> None:
    assert f"{method.containing_service.name}.{method.name}" in implemented


def test_a_mention_of_a_method_is_no_implementation() -> None:
    mentions = ast.parse("""
class Base(pb_grpc.SandboxServiceStub):
    def GetSandbox(self): ...

class Servicer(pb_grpc.SandboxServiceServicer):
    def GetCapacity(self):
        return self.ClaimSandbox("RenewLease")

names = {"RunCall": pb.RunCallRequest, "OpenCall": (calls.open_call, pb.OpenCallRequest)}
""")
    assert [*servicer_methods(mentions), *handled_methods(mentions)] == [
        "SandboxService.GetCapacity",
        "CallService.OpenCall",
    ]


@pytest.mark.parametrize("method", methods(), ids=lambda method: str(method.full_name))
def test_every_method_says_whether_it_is_public(method: MethodDescriptor) -> None:
    assert method.GetOptions().Extensions[options_pb2.visibility] != options_pb2.VISIBILITY_UNSPECIFIED
