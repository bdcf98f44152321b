"""The templates as pods have them: the image of each, and its runtime class."""

from __future__ import annotations

import json
from collections.abc import Container, Mapping

from sandmesh.api.driver.v1 import driver_pb2 as pb
from sandmesh.errors import CapabilityMissing, RuntimeUnavailable
from sandmeshd.drivers.api.templates import (
    check_no_data,
    check_no_scratch,
    check_no_system,
    image_of,
    template_info,
    template_of,
)
from sandmeshd.drivers.kubernetes.cluster.requests import Cluster
from sandmeshd.drivers.kubernetes.requirements import NAME
from sandmeshd.drivers.kubernetes.settings import KubernetesSettings
from sandmeshd.templates import Template

CLASS = "runtime_class"
"""What a template's `runtime_config` may have."""

CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"


class DriverTemplates:
    """The templates of one driver."""

    def __init__(self, settings: KubernetesSettings, cluster: Cluster, templates: Mapping[str, Template]) -> None:
        self._settings = settings
        self._cluster = cluster
        self._templates = templates
        self._classes: dict[str, str] = {}

    @property
    def names(self) -> Container[str]:
        """The names of the templates."""
        return self._templates.keys()

    def find(self, name: str) -> Template:
        """Return a template by name.

        Raises:
            TemplateNotFound: It does not exist; `facts["known"]` lists the existing ones.
        """
        return template_of(self._templates, name)

    def image(self, template: Template) -> str:
        """Return the name of a template's image: its own, or the one that those with the shipped packages share."""
        return image_of(template, self._templates, self._settings)

    def any_image(self) -> str:
        """Return the name of the image of some template: `base`, which the others' begin with, if it is there."""
        first = next(iter(self._templates.values()), None)
        template = self._templates.get("base", first)
        return self.image(template) if template else "base"

    def describe(self) -> list[pb.TemplateInfo]:
        """Return the templates as drivers report them: machines pull images as pods are placed on them."""
        return [template_info(template, prepared=True) for template in self._templates.values()]

    async def runtime_class(self, template: Template) -> str:
        """Return the RuntimeClass of a template's sandboxes, empty for the cluster's own runtime.

        Raises:
            CapabilityMissing: The template has another setting of a runtime, Debian packages, or data of this machine.
            RuntimeUnavailable: The cluster does not have it; the message names those that it has.
        """
        check_no_system(template, NAME)
        check_no_data(template, NAME)
        check_no_scratch(template, NAME)
        others = [name for name in template.runtime_config if name != CLASS]
        if others:
            listed = ", ".join(others)
            what = f"runtime_config {listed} of {template.name!r}"
            message = f"the {NAME} driver knows no {what}, only {CLASS}: state it as a limit, or drop it"
            raise CapabilityMissing(message, {"needs": listed, "template": template.name})
        own = template.runtime_config.get(CLASS)
        name = self._settings.runtime_class if own is None else str(json.loads(own))
        await self.handler(name)
        return name

    async def handler(self, name: str) -> str:
        """Return the handler of a RuntimeClass, empty for the cluster's own runtime.

        Raises:
            RuntimeUnavailable: As `runtime_class`.
        """
        if not name or name in self._classes:
            return self._classes.get(name, "")
        found, _ = await self._cluster.list(CLASSES)
        self._classes = {str(one["metadata"]["name"]): str(one.get("handler") or "") for one in found}
        if name not in self._classes:
            known = ", ".join(sorted(self._classes))
            fix = f"create it, or choose one of {known}" if known else "create it: the cluster has none"
            raise RuntimeUnavailable(f"the cluster has no RuntimeClass {name}: {fix}", {"fix": fix, "known": known})
        return self._classes[name]
