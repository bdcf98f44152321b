"""The templates of a driver: found by name, and as it reports them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from google.protobuf.duration_pb2 import Duration

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import CapabilityMissing, TemplateNotFound
from sandmeshd.drivers.egress import default_grant
from sandmeshd.templates import Template

BASE = "base"
_IDLE_ACTIONS: Final = {
    None: sandbox_pb2.IDLE_ACTION_UNSPECIFIED,
    "release": sandbox_pb2.IDLE_ACTION_RELEASE,
    "pause": sandbox_pb2.IDLE_ACTION_PAUSE,
}


def template_of(templates: Mapping[str, Template], name: str) -> Template:
    """Return a template by name.

    Raises:
        TemplateNotFound: There is none; `facts["known"]` lists those there are.
    """
    if name not in templates:
        known = ", ".join(templates)
        raise TemplateNotFound(f"there is no template {name!r}: choose one of {known}", {"known": known})
    return templates[name]


def template_info(template: Template, prepared: bool) -> pb.TemplateInfo:
    """Return a template as drivers report it."""
    return pb.TemplateInfo(
        name=template.name,
        prepared=prepared,
        generation=template.generation,
        tool_groups=template.tool_groups,
        network=default_grant(template),
        limits=sandbox_pb2.Limits(**template.limits.model_dump()),
        network_fixed=template.security_level == "high",
        description=template.description,
        image=template.image,
        system=template.system,
        idle_timeout=None if template.idle_timeout is None else _duration(template.idle_timeout),
        on_idle=_IDLE_ACTIONS[template.on_idle],
    )


def _duration(seconds: float) -> Duration:
    return Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))


class ImageNames(Protocol):
    """The settings by which a driver that pulls its images names them."""

    @property
    def registry(self) -> str:
        """The registry."""
        ...

    @property
    def namespace(self) -> str:
        """What precedes their names."""
        ...

    @property
    def tag(self) -> str:
        """Their tag."""
        ...


def image_of(template: Template, templates: Mapping[str, Template], names: ImageNames) -> str:
    """Return the name of a template's image: its own, or the one that those with the shipped packages share."""
    if not template.image_is_shipped:
        return template.image
    shipped = templates.get(BASE)
    name = BASE if shipped is None or template.python == shipped.python else template.name
    registry = f"{names.registry}/" if names.registry else ""
    return f"{registry}{names.namespace}/{name}:{names.tag}"


def check_no_system(template: Template, driver: str) -> None:
    """Check that a template states no packages of Debian or npm, for a driver that can add none to its images.

    Raises:
        CapabilityMissing: It does.
    """
    check_no_node_packages(template, driver)
    if template.system:
        fix = "install them in an image of your own, or choose the bubblewrap driver"
        message = f"the {driver} driver cannot add the Debian packages (system) of {template.name!r}: {fix}"
        raise CapabilityMissing(message, {"needs": "system", "fix": fix, "template": template.name})


def check_no_data(template: Template, driver: str) -> None:
    """Check that a template needs no data of the administrator's, for a driver whose sandboxes are elsewhere.

    Raises:
        CapabilityMissing: It does.
    """
    if template.data:
        fix = "choose a driver whose sandboxes are on this machine: bubblewrap, or docker with an engine here"
        message = f"the {driver} driver cannot show its sandboxes the data of {template.name!r}, which is here: {fix}"
        raise CapabilityMissing(message, {"needs": f"data {template.data}", "fix": fix, "template": template.name})


def check_no_scratch(template: Template, driver: str) -> None:
    """Check that a template states no directories in memory, for a driver that mounts none.

    Raises:
        CapabilityMissing: It does.
    """
    if template.scratch:
        fix = "use /tmp or the workspace, or choose the bubblewrap or the docker driver"
        message = f"the {driver} driver mounts no {', '.join(template.scratch)} (scratch) of {template.name!r}: {fix}"
        raise CapabilityMissing(message, {"needs": "scratch", "fix": fix, "template": template.name})


def check_no_node_packages(template: Template, driver: str) -> None:
    """Check that a template states no packages of npm, for a driver that installs none.

    Raises:
        CapabilityMissing: It does.
    """
    if template.node_packages:
        listed = ", ".join(template.node_packages)
        fix = "install them in an image of your own, or choose the bubblewrap driver"
        message = f"the {driver} driver cannot add the packages of npm of {template.name!r} ({listed}): {fix}"
        raise CapabilityMissing(message, {"needs": "node_packages", "fix": fix, "template": template.name})


def unknown_settings(template: Template, known: Mapping[str, str]) -> list[str]:
    """Return a template's settings of a runtime that are not among those known, which have one value each, as JSON."""
    return [name for name, value in template.runtime_config.items() if known.get(name) != value]


def check_settings(template: Template, driver: str, known: Mapping[str, str] = MappingProxyType({})) -> None:
    """Check that a template states nothing that only another runtime knows.

    Raises:
        CapabilityMissing: It does; `facts["needs"]` names each.
    """
    if unknown := unknown_settings(template, known):
        listed = ", ".join(unknown)
        what = f"runtime_config {listed} of {template.name!r}"
        only = ", only " + ", ".join(f"{name}: {json.loads(value)}" for name, value in known.items()) if known else ""
        message = f"the {driver} driver knows no {what}{only}: state it as a limit, or drop it"
        raise CapabilityMissing(message, {"needs": listed, "template": template.name})
