"""Templates are data."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from sandmesh.api.template.v1 import template_pb2 as pb
from sandmesh.errors import InvalidArgument
from sandmeshd.templates import load_templates
from sandmeshd.templates.template_builder import make_template

GOOD = 'description = "d"\ntool_groups = ["generic"]\nenvironment = "python"\n'


def _write(root: Path, definition: str = GOOD, environment: str = 'requirements = ["a==1"]\n') -> Path:
    for kind, name, text in (("definitions", "one", definition), ("environments", "python", environment)):
        (root / kind).mkdir()
        (root / kind / f"{name}.toml").write_text(text)
    return root


def test_the_shipped_templates_share_one_environment() -> None:
    templates = load_templates()
    shipped = "aider appworld base bfcl browser claude code-interpreter-v1 codex data desktop e2b-base filesystem"
    more = "gemini gui languages managed-agents mobile opencode textarena training"
    assert list(templates) == [*shipped.split(), *more.split()]
    assert templates["base"].tool_groups == ("generic", "git")
    assert templates["filesystem"].tool_groups == ("generic", "git", "filesystem")
    assert templates["base"].python == templates["filesystem"].python


def test_the_environment_of_browsers_is_the_shared_one_and_what_drives_them() -> None:
    templates = load_templates()
    shared, own = templates["base"].python.requirements, templates["browser"].python.requirements
    assert own[: len(shared)] == shared
    assert [line.partition("==")[0] for line in own[len(shared) :]] == ["greenlet", "playwright"]
    assert templates["browser"].python.variables == templates["base"].python.variables


def test_every_package_is_pinned() -> None:
    for template in load_templates().values():
        assert all(
            re.fullmatch(r"[a-z0-9-]+==[0-9.]+(a[0-9]+|\.post[0-9]+)?", line) for line in template.python.packages
        )


@pytest.mark.parametrize(
    ("definition", "needs"),
    [
        (pb.TemplateDefinition(name="one"), False),
        (pb.TemplateDefinition(name="one", image="registry.example:5000/team/runtime-sandbox-base-node:1"), True),
        (pb.TemplateDefinition(name="one", image="runtime-sandbox-filesystem-node"), True),
        (pb.TemplateDefinition(name="one", mcp_config_json=b'{"mcpServers": {"a": {"command": "npx"}}}'), True),
        (pb.TemplateDefinition(name="one", mcp_config_json=b'{"mcpServers": {"a": {"command": "/opt/uvx"}}}'), True),
        (pb.TemplateDefinition(name="one", mcp_config_json=b'{"mcpServers": {"a": {"url": "http://a"}}}'), False),
    ],
)
def test_a_template_has_node_and_uv_by_its_images_name_or_for_its_servers(
    definition: pb.TemplateDefinition, needs: bool
) -> None:
    shipped = load_templates()
    template = make_template(definition, shipped)
    assert template.needs_programs is needs
    assert template.image_is_shipped
    assert template.python == shipped["base"].python
    assert ("filesystem" in template.tool_groups) is ("filesystem" in definition.image)


def test_the_generation_changes_with_anything_in_a_template(tmp_path: Path) -> None:
    texts = [GOOD, GOOD.replace('"d"', '"e"'), GOOD + '[variables]\nA = "1"\n']
    for number, text in enumerate(texts):
        (tmp_path / str(number)).mkdir()
        _write(tmp_path / str(number), text)
    generations = {load_templates(tmp_path / str(number))["one"].generation for number in range(len(texts))}
    assert len(generations) == len(texts)
    assert load_templates(tmp_path / "0")["one"].generation in generations


@pytest.mark.parametrize(
    "definition",
    [
        "not toml",
        GOOD + "colour = 1\n",
        GOOD.replace("generic", "").replace('""', ""),
        GOOD.replace('"python"', '"none"'),
    ],
    ids=["no TOML", "an unknown value", "no tools", "no such environment"],
)
def test_a_bad_definition_is_refused_by_its_name(tmp_path: Path, definition: str) -> None:
    with pytest.raises(InvalidArgument, match=r"(one|none)\.toml"):
        load_templates(_write(tmp_path, definition))


def test_a_template_ships_mcp_servers_by_a_file(tmp_path: Path) -> None:
    root = _write(tmp_path, GOOD + 'mcp_config = "time.json"\n')
    (root / "servers").mkdir()
    (root / "servers" / "time.json").write_text(
        '{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}'
    )
    assert "uvx" in load_templates(root)["one"].mcp_config
    for bad in ("{", "[]", '{"mcpServers": {"time": {}}}'):
        (root / "servers" / "time.json").write_text(bad)
        with pytest.raises(InvalidArgument, match=r"time\.json"):
            load_templates(root)
    (root / "servers" / "time.json").unlink()
    with pytest.raises(InvalidArgument, match=r"time\.json"):
        load_templates(root)


def test_templates_need_nothing_of_the_services() -> None:
    program = "import sys, sandmeshd.templates; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "sandmeshd" in loaded
    assert not loaded & {"grpc", "structlog", "redis"}


def test_directories_in_memory_are_added_to_those_of_the_type() -> None:
    made = make_template(pb.TemplateDefinition(name="one", scratch=["/app", "/logs", "/app"]), load_templates())
    assert made.scratch == ("/app", "/logs")


@pytest.mark.parametrize(
    ("scratch", "said"),
    [
        (["/usr"], "scratch names /usr, which every sandbox has"),
        (["app"], "scratch"),
        (["/app/deep"], "scratch"),
        (["/.."], "scratch"),
        ([f"/a{number}" for number in range(9)], "at most 8"),
    ],
)
def test_directories_that_cannot_be_mounted_at_the_root_are_refused(scratch: list[str], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        make_template(pb.TemplateDefinition(name="one", scratch=scratch), load_templates())


def test_requirements_are_added_to_those_of_the_type_and_made_on_demand() -> None:
    shipped = load_templates()
    made = make_template(pb.TemplateDefinition(name="one", extends="training", requirements=["a==1.0"]), shipped)
    assert made.python.requirements == (*shipped["training"].python.requirements, "a==1.0")
    assert made.on_demand
    assert set(made.environments) == {"gym"}
    assert not make_template(pb.TemplateDefinition(name="one"), shipped).on_demand


@pytest.mark.parametrize("line", ["a", "a>=1", "-r /etc/passwd", "a==1 --index-url=x", "https://example.org/a.whl", ""])
def test_a_requirement_that_is_not_pinned_is_refused(line: str) -> None:
    with pytest.raises(InvalidArgument, match="must be a name with a version"):
        make_template(pb.TemplateDefinition(name="one", requirements=[line]), load_templates())


@pytest.mark.parametrize(("name", "target"), [("Shop", "a:B"), ("shop", "a.B"), ("shop", "")])
def test_an_environment_with_a_wrong_name_or_class_is_refused(name: str, target: str) -> None:
    definition = pb.TemplateDefinition(name="one", environments={name: pb.EnvironmentDefinition(target=target)})
    with pytest.raises(InvalidArgument, match="environments"):
        make_template(definition, load_templates())
