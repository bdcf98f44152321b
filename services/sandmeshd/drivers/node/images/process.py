"""What a sandbox has of its image beside files: which image it is, where processes start, and their variables."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from sandmesh.api.agent.v1 import agent_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import InvalidArgument
from sandmeshd.drivers.node.agent_config import WORKSPACE
from sandmeshd.drivers.node.interpreter import VERSION
from sandmeshd.images.image import ImageConfig
from sandmeshd.templates import Template

KERNELS: Final = "kernels"
"""The line of a sandbox's record that has what they run by."""
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MOST_NAME: Final = 300
_PLAIN: Final = {"PATH": _PATH, "LANG": "C.UTF-8"}
"""What processes have where an image sets nothing else."""


def image_of(spec: sandbox_pb2.SandboxSpec, template: Template) -> str:
    """Return the image that is to be a sandbox's root; empty where its root is made from this machine."""
    return spec.image or ("" if template.image_is_shipped else template.image)


def check_name(spec: sandbox_pb2.SandboxSpec, templates: Container[str]) -> None:
    """Check that what names an image names no template.

    Raises:
        InvalidArgument: It does.
    """
    if spec.image in templates:
        fix = f"use template={spec.image!r}, or write the image out, as docker.io/library/{spec.image}:latest"
        raise InvalidArgument(f"{spec.image!r} is a template's name, too: {fix}", {"field": "spec.image", "fix": fix})


def describe_kernels(python: str = "") -> str:
    """Return what kernels of Python run by, for people; `python` is the image's own where that has IPython."""
    return f"the image's own {python[:_MOST_NAME]}" if python else f"Python {VERSION} of the template, in /opt/env"


def directory_of(config: ImageConfig) -> str:
    """Return where processes start and relative paths begin: an image's own directory, else the workspace."""
    return WORKSPACE if config.working_dir in ("", "/") else config.working_dir


def variables(config: ImageConfig, template: Template, spec: sandbox_pb2.SandboxSpec) -> dict[str, str]:
    """Return the environment variables of user code in an image; the account's are added inside."""
    return {**_PLAIN, **config.env, **template.variables, **spec.environment}


def configure(
    agent: agent_pb2.AgentConfig, config: ImageConfig, template: Template, spec: sandbox_pb2.SandboxSpec
) -> None:
    """Set what an agent's configuration has of the image that is its root."""
    agent.environment.clear()
    agent.environment.update(variables(config, template, spec))
    agent.workspace, agent.home = directory_of(config), ""
    agent.entrypoint.extend(config.entrypoint)
    agent.entrypoint_arguments.extend(config.cmd)
