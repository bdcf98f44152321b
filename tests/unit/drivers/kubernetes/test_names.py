"""Names and labels, which a cluster takes whatever the ids are."""

from __future__ import annotations

import re
from typing import cast

import pytest

from sandmeshd.drivers.kubernetes.names import mesh_labels, metadata, object_name, policy_name

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


@pytest.mark.parametrize("sandbox_id", ["a", "A_b.c-", "x" * 128])
@pytest.mark.parametrize("template", ["base", "a-", "a_-_", "t" * 63])
def test_names_and_labels_are_as_the_api_wants_them(sandbox_id: str, template: str) -> None:
    described = metadata("m" * 200, sandbox_id, template)
    labels = cast("dict[str, str]", described["labels"])
    assert NAME.fullmatch(str(described["name"]))
    assert all(LABEL.fullmatch(value) for value in labels.values())
    assert NAME.fullmatch(policy_name("m" * 200))


def test_ids_that_differ_have_names_that_differ() -> None:
    assert object_name("mesh", "one") != object_name("mesh", "two") != object_name("mesh2", "two")
    assert mesh_labels("mesh") != mesh_labels("mesh2")
