"""The table of sandbox types: classes, functions and templates follow it."""

from __future__ import annotations

from collections.abc import Generator

import pytest

import sandmesh
from sandmesh import SandboxRegistry, SandboxType, tools
from sandmesh.sandbox import builtin
from sandmesh.shared.sandbox_types import SANDBOX_TYPES, class_name, first_type, offers
from sandmeshd.templates.loader import load_templates

TYPES = [name for name, groups in SANDBOX_TYPES.items() if groups]


def tools_of(groups: tuple[str, ...]) -> set[str]:
    return {name for name, declaration in tools.TOOLS.items() if declaration.group in groups}


@pytest.mark.parametrize("sandbox_type", TYPES)
def test_the_classes_of_a_type_have_the_tools_of_its_groups_and_no_others(sandbox_type: str) -> None:
    for is_async in (False, True):
        made = getattr(sandmesh, class_name(sandbox_type, is_async=is_async))
        offered = {name for name, one in tools.TOOLS.items() if hasattr(made, name) and one.group not in tools.PLUMBING}
        assert offered == tools_of(SANDBOX_TYPES[sandbox_type])


def test_each_tool_of_a_type_is_a_function_for_the_first_type_that_has_it() -> None:
    for sandbox_type in TYPES:
        for name in tools_of(SANDBOX_TYPES[sandbox_type]):
            assert getattr(tools, name).sandbox_type == first_type(tools.TOOLS[name].group)


def test_each_type_has_a_template_with_its_groups_a_member_and_registered_classes() -> None:
    groups = {name: template.tool_groups for name, template in load_templates().items()}
    # Templates alone, of types that there are: another desktop, agents, games, languages, views for other systems.
    assert groups.pop("e2b-base") == groups.pop("code-interpreter-v1") == SANDBOX_TYPES["filesystem"]
    for name in ("data", "aider", "claude", "codex", "gemini", "languages", "managed-agents", "opencode"):
        assert groups.pop(name) == SANDBOX_TYPES["filesystem"]
    assert groups.pop("desktop") == SANDBOX_TYPES["gui"]
    assert groups.pop("textarena") == SANDBOX_TYPES["training"]
    assert groups == {name: SANDBOX_TYPES[name] for name in TYPES}
    assert set(SandboxType.__members__.values()) >= set(SANDBOX_TYPES)
    for sandbox_type in SANDBOX_TYPES:
        made = SandboxRegistry.get_classes_by_type(sandbox_type)
        assert made is getattr(sandmesh, class_name(sandbox_type, is_async=False))


def test_a_type_offers_what_another_does_if_it_has_its_groups() -> None:
    assert offers("filesystem", "base")
    assert not offers("base", "filesystem")
    assert offers("registered-elsewhere", "filesystem")


@pytest.fixture
def another_type(monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """Add a line to the table for one test."""
    monkeypatch.setattr(builtin, "SANDBOX_TYPES", {**SANDBOX_TYPES, "paper_desk": ("generic", "filesystem")})
    builtin.sync_class.cache_clear()
    builtin.async_class.cache_clear()
    yield "paper_desk"
    builtin.sync_class.cache_clear()
    builtin.async_class.cache_clear()


def test_a_line_in_the_table_makes_the_classes_of_a_type(another_type: str) -> None:
    made, made_async = builtin.class_named("PaperDeskSandbox"), builtin.class_named("PaperDeskSandboxAsync")
    assert made is not None
    assert made_async is not None
    assert issubclass(made, sandmesh.BaseSandbox)
    assert issubclass(made_async, sandmesh.BaseSandboxAsync)
    assert getattr(made_async, "default_type") == another_type  # noqa: B009 - it is made at run time
    assert getattr(made, "twin_class") is made_async  # noqa: B009 - as above
    assert hasattr(made, "read_file")
    assert hasattr(made_async, "read_file")
