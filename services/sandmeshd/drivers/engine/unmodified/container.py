"""The configuration of a container whose image has no agent, made of that of one whose image has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sandmesh.api.agent.v1 import agent_pb2
from sandmeshd.drivers.engine.container_config import AGENT_DIRECTORY, BUNDLE, TEMPLATE, bind
from sandmeshd.drivers.engine.reach.network import TRUSTED
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.engine.unmodified.images import EngineImage
from sandmeshd.drivers.engine.unmodified.programs import Binds
from sandmeshd.drivers.node.agent_config import HOME
from sandmeshd.drivers.node.images.containers import agent_command, capabilities_of
from sandmeshd.drivers.node.interpreter import VERSION
from sandmeshd.drivers.node.portable_python.contents import PORTABLE

_PYTHON: Final = f"{PORTABLE}/bin/python{VERSION}"


def with_image(
    container: Mapping[str, Any],
    settings: DockerSettings,
    image: EngineImage,
    config: agent_pb2.AgentConfig,
    root: bool | None,
) -> dict[str, Any]:
    """Return a container's configuration with the image; `root` is whether user code is to be root, None: as it says.

    The root can be written, and nothing that the image says of programs, variables or health is left to the engine.
    """
    host = dict(container["HostConfig"])
    labels = {name: value for name, value in container["Labels"].items() if name != TEMPLATE}
    mounts = [mount for mount in host["Mounts"] if mount["Target"] != AGENT_DIRECTORY]
    mounts += [
        {"Type": "volume", "Target": place, "VolumeOptions": {"Labels": labels}}
        for place in image.config.volumes
        if place not in {mount["Target"] for mount in mounts} | {*host["Tmpfs"]}
    ]
    host |= {
        "ReadonlyRootfs": False,
        "CapAdd": list(capabilities_of(image.config, root)),
        "Mounts": mounts,
        "Tmpfs": {place: options for place, options in host["Tmpfs"].items() if place != HOME},
    }
    return {
        **container,
        "Image": image.digest,
        "HostConfig": host,
        "Entrypoint": agent_command(_PYTHON, AGENT_DIRECTORY, image.config, root, config.max_processes),
        "Cmd": [],
        "WorkingDir": "/",
        # A name without a value: the engine removes that variable, which the agent's own Python must not have.
        "Env": list(image.config.env),
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGTERM",
    }


def show(container: Mapping[str, Any], binds: Binds) -> None:
    """Add directories and files of the host to a container's mounts."""
    container["HostConfig"]["Mounts"].extend(bind(real, place, read_only=not write) for real, place, write in binds)


def trusted_bundle(config: agent_pb2.AgentConfig, explicit: Mapping[str, str]) -> Binds:
    """Return what shows the node's CA certificates, and point user code to them.

    The image's own are left in place: packages with certificates write there.
    """
    if not config.egress_port or not BUNDLE.exists():
        return []
    place = f"{TRUSTED}/{BUNDLE.name}"
    for name, value in list(config.environment.items()):
        if value == str(BUNDLE) and name not in explicit:
            config.environment[name] = place
    return [(str(BUNDLE.resolve()), place, False)]
