"""Images for clouds: the vendor's rules, checked on an engine's image, and the commands that push it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandmesh.errors import InvalidArgument, TemplateBuildFailed
from sandmesh.shared.frames import LINK_PROTOCOL
from sandmeshd.drivers.engine.images.labels import PROTOCOL_LABEL, labels_of

CLOUDS: Final = ("fc", "agentrun")
PLATFORM: Final = "linux/amd64"
AGENT_PORT: Final = "8571"
LARGEST: Final = 10 << 30
"""The bytes of an image, uncompressed."""

_ROOT: Final = ("", "0", "root", "0:0", "root:root")


def check_cloud(cloud: str) -> None:
    """Check that images can be made for a cloud.

    Raises:
        InvalidArgument: There is no such cloud.
    """
    if cloud not in CLOUDS:
        message = f"images cannot be built for {cloud!r}: name {' or '.join(CLOUDS)}"
        raise InvalidArgument(message, {"field": "for"})


def check_rules(name: str, image: Mapping[str, Any] | None) -> None:
    """Check that an engine's image keeps to what the clouds' vendor demands of images.

    Raises:
        TemplateBuildFailed: It does not exist or breaks a rule; `facts["detail"]` names each.
    """
    broken = list(_broken(image)) if image is not None else ["it does not exist"]
    if broken:
        detail = "; ".join(broken)
        fix = "mend its Dockerfile, and build it for linux/amd64 on the base of this release"
        message = f"the image {name} cannot run in a cloud: {detail}; {fix}"
        raise TemplateBuildFailed(message, {"detail": detail, "fix": fix})


def _broken(image: Mapping[str, Any]) -> Iterator[str]:
    config: Mapping[str, Any] = image.get("Config") or {}
    platform = f"{image.get('Os')}/{image.get('Architecture')}"
    if platform != PLATFORM:
        yield f"its platform is {platform}, and instances are {PLATFORM}"
    size = int(image.get("Size") or 0)
    if size > LARGEST:
        yield f"it has {size / (1 << 30):.1f} GiB, and may have {LARGEST >> 30}"
    user = str(config.get("User") or "")
    if user not in _ROOT:
        yield f"its user is {user}, and the agent starts as root, which it gives up before user code runs"
    if labels_of(image).get(PROTOCOL_LABEL) != str(LINK_PROTOCOL) or "--container" not in (
        config.get("Entrypoint") or []
    ):
        yield "its entry point is not this release's agent"
    exposed: Mapping[str, Any] = config.get("ExposedPorts") or {}
    others = [port for port in exposed if port.partition("/")[0] != AGENT_PORT]
    if others:
        yield f"it exposes {', '.join(sorted(others))}, and the agent's {AGENT_PORT} is the only port that is reached"


def push_commands(name: str, target: str) -> list[str]:
    """Return the commands that push an image under a name of the cloud's registry; only the user runs them."""
    registry = target.partition("/")[0]
    tag = [f"docker tag {shlex.quote(name)} {shlex.quote(target)}"] if name != target else []
    return [f"docker login {shlex.quote(registry)}", *tag, f"docker push {shlex.quote(target)}"]
