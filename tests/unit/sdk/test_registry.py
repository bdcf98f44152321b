"""Classes of sandboxes are registered once, with what can be enforced; their tools can be shipped or are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandmesh import (
    BaseSandbox,
    DummySandbox,
    FilesystemSandbox,
    Sandbox,
    SandboxAsync,
    SandboxRegistry,
    SandboxType,
    build_image_uri,
    errors,
    sandbox_tool,
)
from sandmesh.sandbox.class_registry import class_registry
from sandmeshd.templates import TemplateCatalog, open_catalog

OUTSIDE = 3


@SandboxRegistry.register(
    build_image_uri("runtime-sandbox-unit"),
    sandbox_type="unit-tests",
    resource_limits={"memory": "512m", "cpu": "1.5"},
    runtime_config={"pids_limit": 9},
    environment={"KEY": "secret"},
)
class UnitSandbox(Sandbox):
    """A class of a user's."""


def test_what_was_registered_can_be_asked_for() -> None:
    config = SandboxRegistry.get_config(UnitSandbox)
    assert config is not None
    assert (config.sandbox_type, config.security_level, config.timeout) == (SandboxType("unit-tests"), "medium", 60)
    assert SandboxRegistry.get_image(UnitSandbox) == "sandmesh/runtime-sandbox-unit:latest"
    assert SandboxRegistry.get_classes_by_type("unit-tests") is UnitSandbox
    assert SandboxRegistry.get_config_by_type(SandboxType("unit-tests")) is config
    assert SandboxRegistry.get_image_by_type("base") == "sandmesh/runtime-sandbox-base:latest"
    assert {BaseSandbox, FilesystemSandbox, DummySandbox, UnitSandbox} <= set(SandboxRegistry.list_all_sandboxes())
    assert SandboxRegistry.get_config(str) is None
    assert SandboxRegistry.get_image_by_type("nobody's") is None
    assert "secret" not in repr(config)
    assert UnitSandbox().sandbox_type == "unit-tests"


def test_limits_are_read_as_docker_and_kubernetes_write_them() -> None:
    definition = class_registry().definition_of("unit-tests")
    assert definition is not None
    limits = definition.limits
    assert (limits.memory_bytes, limits.cpu_millis, limits.pids) == (512 * 2**20, 1500, 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sandbox_type": ""}, "letter"),
        ({"sandbox_type": None}, "letter"),
        ({"sandbox_type": "Mixed"}, "letter"),
        ({"sandbox_type": "fits", "security_level": "utmost"}, "low, medium, high"),
        ({"sandbox_type": "fits", "resource_limits": {"wheels": 4}}, "wheels"),
        ({"sandbox_type": "fits", "resource_limits": {"cpu": "many"}}, "cores"),
        ({"sandbox_type": "fits", "timeout": 0}, "timeout"),
        ({"sandbox_type": "fits", "environment": {"KEY": None}}, "env"),
        ({"sandbox_type": "fits", "runtime_config": {"a": object()}}, "JSON"),
        (
            {"sandbox_type": "fits", "mcp_config": {"mcpServers": {"a": object()}}},
            "mcp_config cannot be encoded as JSON",
        ),
        ({"sandbox_type": "fits", "mcp_config": ["a"]}, "mcp_config must be a mapping"),
    ],
)
def test_what_cannot_be_is_refused_when_the_class_is_defined(options: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=message):
        SandboxRegistry.register("image", **options)(type("Wrong", (Sandbox,), {}))


def test_a_type_is_one_classs_and_a_class_that_is_defined_again_takes_its_own_place() -> None:
    def define() -> type[Sandbox]:
        @SandboxRegistry.register("base", sandbox_type="again")
        class Again(Sandbox):
            """Defined twice, as in a notebook."""

        return Again

    first, second = define(), define()
    assert SandboxRegistry.get_classes_by_type("again") is second
    assert SandboxRegistry.get_config(first) is None
    for taken in ("again", "base", "dummy"):
        with pytest.raises(errors.AlreadyExists, match=taken):
            SandboxRegistry.register("base", sandbox_type=taken)(type("Other", (Sandbox,), {}))
    with pytest.raises(errors.AlreadyExists, match="differently"):
        SandboxRegistry.register("base", sandbox_type="again", timeout=5)(type("Twin", (SandboxAsync,), {}))
    SandboxRegistry.register("base", sandbox_type="again")(type("Twin", (SandboxAsync,), {}))
    with pytest.raises(errors.InvalidArgument, match="must derive from Sandbox"):
        SandboxRegistry.register("base", sandbox_type="text")(str)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="colour"):
        SandboxRegistry.register("base", sandbox_type="text", colour="red")  # type: ignore[call-arg]


def uses_its_module(number: int) -> int:
    return number + OUTSIDE


def has_a_default_that_is_no_value(number: int = 3 + len("abc")) -> int:
    return number


def run_shell_command(command: str) -> str:
    return command


def uses_what_is_around_it() -> Callable[[], int]:
    around = 4
    return lambda: around


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (uses_its_module, "OUTSIDE"),
        (has_a_default_that_is_no_value, "must be a literal"),
        (run_shell_command, "every sandbox has a tool"),
        (uses_what_is_around_it(), "def"),
        (len, "function"),
        (3, "function"),
    ],
)
def test_a_function_that_cannot_be_shipped_says_why(function: Any, said: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=said):
        sandbox_tool(function)


def test_a_dummy_needs_no_mesh() -> None:
    with DummySandbox() as box:
        assert (box.sandbox_type, box.list_tools(), box.get_info()["state"]) == ("dummy", {}, "READY")
        with pytest.raises(errors.ToolNotFound):
            box.call_tool("run_ipython_cell")


def test_images_are_named_by_registry_namespace_and_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    assert build_image_uri("a", tag="v1", registry="r.example:5000", namespace="n") == "r.example:5000/n/a:v1"
    monkeypatch.setenv("SANDMESH_IMAGE_REGISTRY", "r.example")
    monkeypatch.setenv("SANDMESH_IMAGE_TAG", "v2")
    assert build_image_uri("a") == "r.example/sandmesh/a:v2"
    assert build_image_uri("a", registry="", namespace="") == "a:v2"
    with pytest.raises(errors.InvalidArgument):
        build_image_uri(" ")


FILES = {
    "no_such.py": (None, "cannot be imported"),
    "raises.py": ("1/0", "ZeroDivisionError"),
    "leaves.py": ("import sys; sys.exit(3)", "SystemExit"),
    "registers_nothing.py": ("x = 1", "registers no template"),
    "untyped.py": (
        "from sandmesh import *\n@SandboxRegistry.register('base', sandbox_type='')\nclass A(Sandbox): ...",
        "letter",
    ),
    "no.such.module": (None, "cannot be imported"),
}


@pytest.mark.parametrize("name", FILES)
def test_an_extension_that_cannot_be_used_is_named(tmp_path: Path, name: str) -> None:
    text, said = FILES[name]
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(errors.InvalidArgument, match=said) as caught:
        open_catalog([str(path) if name.endswith(".py") else name])
    assert name in caught.value.message


def test_two_extensions_with_one_name_are_refused(tmp_path: Path) -> None:
    text = "from sandmesh import *\n@SandboxRegistry.register('base', sandbox_type='twice')\nclass A(Sandbox): ..."
    paths = [tmp_path / "one.py", tmp_path / "two.py"]
    for path in paths:
        path.write_text(text)
    with pytest.raises(errors.SandmeshError, match="twice"):
        open_catalog([str(path) for path in paths])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.yaml", "{", "while parsing"),
        ("a.yaml", "- 1", "mapping"),
        ("a.toml", "limits = 3", "limits"),
        ("a.toml", 'colour = "red"', "colour"),
        ("a.toml", "[limits]\nmemory = 'much'", "memory"),
        ("a.toml", 'extends = "spaceship"', "spaceship"),
        ("a.toml", "network = ['not a host/']", "host"),
        ("Loud.toml", "", "letter"),
        ("a.toml", None, "No such file"),
    ],
)
def test_a_file_that_is_no_template_stops_the_start(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(errors.InvalidArgument, match=said):
        open_catalog(files=[tmp_path / name])


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for name, text in {
        "a.toml": "timeout = 1",
        "b.toml": 'name = "a"\ntimeout = 2',
        "base.toml": "timeout = 1",
    }.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(errors.AlreadyExists, match="'a'"):
        open_catalog(files=[tmp_path / "a.toml", tmp_path / "b.toml"])
    with pytest.raises(errors.AlreadyExists, match="'base'"):
        open_catalog(files=[tmp_path / "base.toml"])
    assert "a" not in TemplateCatalog()
