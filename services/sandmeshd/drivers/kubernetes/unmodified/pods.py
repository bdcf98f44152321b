"""The pod of a sandbox whose image has no agent, made of that of one whose image has it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from sandmeshd.drivers.kubernetes.pods.pod import AGENT_DIRECTORY, AGENT_PORT, PostureName
from sandmeshd.drivers.node.agent_config import AGENT, ENVIRONMENT, HOME, MCP
from sandmeshd.drivers.node.images.containers import agent_command, capabilities_of
from sandmeshd.drivers.node.portable_python.contents import PORTABLE
from sandmeshd.images.image import ImageConfig

TRUSTED: Final = "/opt/sandmesh/trusted"
"""Where such a sandbox has the certificates of the agent's image: its own may lack them."""
INSTALL: Final = "/opt/sandmesh/portable/install"
"""What copies the agent, its Python and the template's packages, in the agent's image."""
PROGRAMS: Final = "programs"
_PLACE: Final = "/programs"
_SHOWN: Final = {"python": PORTABLE, "env": ENVIRONMENT, "site": AGENT, "mcp": MCP, "trusted": TRUSTED}
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def with_image(
    body: Mapping[str, Any], pinned: str, config: ImageConfig, root: bool | None, posture: PostureName, processes: int
) -> dict[str, Any]:
    """Return a pod with another image than that of the agent, which an init container copies into a volume.

    `root` is whether user code is to be root, None: as the image says. The root can be written, and nothing that the
    image says of programs, variables or users is left to the cluster.
    """
    spec = dict(body["spec"])
    container = dict(spec["containers"][0])
    agent = str(container["image"])
    waits = list(container.pop("args"))[-1]
    python = f"{PORTABLE}/bin/python3"
    shut_in = ["--shut-in", str(AGENT_PORT)] if posture == "full" else []
    added = [*capabilities_of(config, root), *(["NET_ADMIN"] if posture == "full" else [])]
    shown = [
        {"name": PROGRAMS, "mountPath": place, "subPath": name, "readOnly": True} for name, place in _SHOWN.items()
    ]
    container |= {
        "image": pinned,
        "command": [*agent_command(python, AGENT_DIRECTORY, config, root, processes), *shut_in, "--waits", waits],
        "workingDir": "/",
        # Kubernetes can take no variable from a container. Empty ones mean nothing to the agent's loader.
        "env": [{"name": name, "value": ""} for name in sorted(config.env) if _VARIABLE.fullmatch(name)],
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": False,
            "capabilities": {"drop": ["ALL"], "add": added},
        },
        "volumeMounts": [mount for mount in container["volumeMounts"] if mount["mountPath"] != HOME] + shown,
    }
    spec["containers"] = [container]
    spec["initContainers"] = [_copying(agent, container["resources"])]
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] != "home"]
    spec["volumes"].append({"name": PROGRAMS, "emptyDir": {}})
    return {**body, "spec": spec}


def _copying(image: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container that copies what the agent needs; it runs before the sandbox's own."""
    return {
        "name": PROGRAMS,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", INSTALL, _PLACE],
        "resources": resources,
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": PROGRAMS, "mountPath": _PLACE}],
    }
