"""Training environments of templates: what is shipped of a class, and what is refused."""

from __future__ import annotations

import json as data
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sandmesh import Environment, errors
from sandmesh.templates.environments import shipped_class, write_environments

GREETING = "hello"
UNUSED = os.sep


def greet() -> str:
    """Return the greeting."""
    return data.dumps(GREETING)


class Whole(Environment):
    """An environment that uses a function, which uses a module and a constant."""

    @classmethod
    def list_tasks(cls, split: str, params: Mapping[str, Any]) -> Sequence[str]:
        """Return one task."""
        return ["one"]

    def __init__(self, task_id: str, params: Mapping[str, Any]) -> None:
        """Do nothing."""

    def reset(self) -> Mapping[str, Any]:
        """Return the greeting."""
        return {"state": greet()}

    def step(self, action: Any, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return nothing."""
        return {}

    def evaluate(self, messages: Any, params: Mapping[str, Any]) -> Any:
        """Return nothing."""


class Partial(Environment):
    """An environment without methods."""


def test_of_a_module_only_what_the_class_uses_is_shipped() -> None:
    source = shipped_class(Whole)
    space: dict[str, Any] = {}
    exec(compile(source, "<shipped>", "exec"), space)  # noqa: S102 - it is what is tested
    assert space["Whole"]("one", {}).reset() == {"state": '"hello"'}
    assert "UNUSED" not in source
    assert "pytest" not in source
    assert "from sandmesh import Environment\n" in source


def test_an_installed_class_is_named() -> None:
    (made,) = write_environments({"shop": "webshop.env:Shop"}).values()
    assert (made.target, made.source) == ("webshop.env:Shop", "")


@pytest.mark.parametrize(
    ("environments", "message"),
    [
        ([], "must be a mapping"),
        ({"Loud": Whole}, "name must be a letter"),
        ({"one": int}, "must be a class derived from Environment"),
        ({"one": "webshop"}, "must be a class derived from Environment"),
        ({"one": Partial}, "lacks __init__, evaluate, list_tasks, reset, step"),
    ],
)
def test_what_is_no_environment_is_refused(environments: object, message: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=message):
        write_environments(environments)


def test_a_class_inside_of_a_function_is_refused() -> None:
    class Inner(Whole):
        """An environment that its module does not have by name."""

    with pytest.raises(errors.InvalidArgument, match="define it at the top of its module"):
        write_environments({"inner": Inner})
