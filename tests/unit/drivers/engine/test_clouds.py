"""The rules of clouds for images, and the commands that push one."""

from __future__ import annotations

from typing import Any

import pytest

from sandmesh.errors import InvalidArgument, TemplateBuildFailed
from sandmesh.shared.frames import LINK_PROTOCOL
from sandmeshd.drivers.engine.images.clouds import check_cloud, check_rules, push_commands


def image(**changed: Any) -> dict[str, Any]:
    """Return an image as an engine inspects it; `config` changes what it runs."""
    labels = {"dev.sandmesh.protocol": str(LINK_PROTOCOL)}
    config = {"User": "", "Entrypoint": ["python3", "--container", "/run"], "Labels": labels}
    config |= changed.pop("config", {})
    return {"Os": "linux", "Architecture": "amd64", "Size": 300 << 20, "Config": config, **changed}


def test_an_image_of_this_release_keeps_to_the_rules() -> None:
    check_rules("sandmesh/base:latest", image())
    check_rules("sandmesh/base:latest", image(config={"ExposedPorts": {"8571/tcp": {}}, "User": "0"}))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"Architecture": "arm64"}, "its platform is linux/arm64"),
        ({"Size": 11 << 30}, "it has 11.0 GiB, and may have 10"),
        ({"config": {"User": "app"}}, "its user is app"),
        ({"config": {"Entrypoint": ["sh"]}}, "not this release's agent"),
        ({"config": {"Labels": None}}, "not this release's agent"),
        ({"config": {"ExposedPorts": {"8571/tcp": {}, "80/tcp": {}}}}, "it exposes 80/tcp"),
    ],
)
def test_an_image_that_breaks_a_rule_is_refused_by_the_rule(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(TemplateBuildFailed) as refused:
        check_rules("mine:1", image(**changed))
    assert why in refused.value.facts["detail"]


def test_all_rules_that_an_image_breaks_are_named_at_once() -> None:
    with pytest.raises(TemplateBuildFailed, match=r"arm64.*its user is app"):
        check_rules("mine:1", image(Architecture="arm64", config={"User": "app"}))
    with pytest.raises(TemplateBuildFailed, match="it does not exist"):
        check_rules("mine:1", None)


def test_the_commands_name_the_clouds_registry() -> None:
    target = "registry.cn-hangzhou.aliyuncs.com/sandmesh/base:latest"
    assert push_commands("sandmesh/base:latest", target) == [
        "docker login registry.cn-hangzhou.aliyuncs.com",
        f"docker tag sandmesh/base:latest {target}",
        f"docker push {target}",
    ]
    assert push_commands(target, target)[1:] == [f"docker push {target}"]


def test_other_clouds_are_refused() -> None:
    check_cloud("agentrun")
    with pytest.raises(InvalidArgument, match="'aws': name fc or agentrun"):
        check_cloud("aws")
