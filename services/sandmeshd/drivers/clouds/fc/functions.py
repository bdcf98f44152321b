"""The functions of a mesh: one for each template generation and size, made at its first sandbox."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import TemplateBuildFailed
from sandmeshd.drivers.api.templates import check_no_data, check_no_scratch, check_no_system, check_settings, image_of
from sandmeshd.drivers.clouds import container
from sandmeshd.drivers.clouds.fc.service import FunctionComputeApi
from sandmeshd.drivers.clouds.fc.settings import FcSettings
from sandmeshd.drivers.clouds.names import mesh_prefix
from sandmeshd.drivers.clouds.requirements import InstanceSize, size_of
from sandmeshd.runtime.keyed_locks import KeyedLocks
from sandmeshd.templates import Template

AFFINITY = "x-sandmesh-session"
"""The header by which the vendor's gateway finds a session."""

TRIGGER = "sandmesh"
POLL_SECONDS = 0.5
METHODS = ["GET", "POST"]


@dataclass(frozen=True)
class FunctionPlan:
    """A function as it is to be."""

    name: str
    body: Mapping[str, Any]


class Functions:
    """The functions of one driver, which is the only one of its mesh."""

    def __init__(
        self, settings: FcSettings, service: FunctionComputeApi, templates: Mapping[str, Template], pin: str
    ) -> None:
        self._settings = settings
        self._service = service
        self._templates = templates
        self._pin = pin
        self._prefix = mesh_prefix(settings.prefix, settings.paths.mesh_id)
        self._urls: dict[str, str] = {}
        self._locks = KeyedLocks()
        self._users: Counter[str] = Counter()

    def plan(self, template: Template, limits: sandbox_pb2.Limits) -> FunctionPlan:
        """Return the function of a template's sandboxes with some limits.

        Raises:
            CapabilityMissing: The template has what only other drivers know.
        """
        check_no_system(template, self._settings.driver)
        check_no_data(template, self._settings.driver)
        check_no_scratch(template, self._settings.driver)
        check_settings(template, self._settings.driver)
        return self._plan(template, limits)

    def _plan(self, template: Template, limits: sandbox_pb2.Limits) -> FunctionPlan:
        body = self._body(template, size_of(limits, self._settings))
        facts = json.dumps([template.name, template.generation, body], sort_keys=True)
        name = f"{self._prefix}{hashlib.sha256(facts.encode()).hexdigest()[:16]}"
        return FunctionPlan(name, {**body, "functionName": name, "description": f"sandmesh: {template.name}"})

    def _body(self, template: Template, size: InstanceSize) -> dict[str, Any]:
        settings = self._settings
        affinity = {
            "affinityHeaderFieldName": AFFINITY,
            "sessionTTLInSeconds": settings.session_seconds,
            "sessionIdleTimeoutInSeconds": settings.idle_seconds,
            "sessionConcurrencyPerInstance": 1,
        }
        body: dict[str, Any] = {
            "runtime": "custom-container",
            "handler": "index.handler",
            "cpu": size.cpu,
            "memorySize": size.mebibytes,
            "diskSize": container.DISK_MEBIBYTES,
            "timeout": settings.request_seconds,
            "instanceConcurrency": 200,
            # User code's way out is the agent's link, and no keys stand in its environment.
            "internetAccess": False,
            "disableInjectCredentials": "All",
            "sessionAffinity": "HEADER_FIELD",
            "instanceIsolationMode": "SESSION_EXCLUSIVE",
            "sessionAffinityConfig": json.dumps(affinity),
            "customContainerConfig": self._container(template),
        }
        if settings.role:
            body["role"] = settings.role
        if settings.log_project:
            body["logConfig"] = {"project": settings.log_project, "logstore": settings.log_store}
        return body

    def _container(self, template: Template) -> dict[str, Any]:
        return {
            "image": image_of(template, self._templates, self._settings),
            "port": container.PORT,
            "command": container.command(self._pin),
            "healthCheckConfig": dict(container.HEALTH),
        }

    @contextmanager
    def used(self, name: str) -> Generator[None]:
        """Keep a function from being removed meanwhile."""
        self._users[name] += 1
        try:
            yield
        finally:
            self._users[name] -= 1

    async def url(self, plan: FunctionPlan) -> str:
        """Return the URL of a function's sessions; the function is made unless it exists.

        Raises:
            TemplateBuildFailed: Its image cannot be used.
        """
        async with self._locks.held(plan.name):
            if plan.name not in self._urls:
                await self._service.create_function(dict(plan.body))
                config = json.dumps({"authType": "anonymous", "methods": METHODS})
                trigger = {"triggerName": TRIGGER, "triggerType": "http", "triggerConfig": config}
                await self._service.create_trigger(plan.name, trigger)
                await self._active(plan)
                self._urls[plan.name] = await self.existing_url(plan.name)
            return self._urls[plan.name]

    async def existing_url(self, name: str) -> str:
        """Return the URL of a function that exists.

        Raises:
            Refusal: It, or its trigger, does not.
        """
        trigger = await self._service.get_trigger(name, TRIGGER)
        return str(trigger["httpTrigger"]["urlInternet"])

    async def _active(self, plan: FunctionPlan) -> None:
        try:
            async with asyncio.timeout(self._settings.start_timeout):
                while True:
                    found = await self._service.get_function(plan.name)
                    if found.get("state", "Active") == "Active":
                        return
                    if found.get("state") == "Failed":
                        raise self._failed(plan, str(found.get("stateReason") or "Failed"))
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise self._failed(plan, f"it was not ready within {self._settings.start_timeout:g} s") from None

    def _failed(self, plan: FunctionPlan, detail: str) -> TemplateBuildFailed:
        image = plan.body["customContainerConfig"]["image"]
        fix = "push it for amd64 to a registry of the same account and region, and set SANDMESH_REGISTRY"
        return TemplateBuildFailed(f"the image {image} cannot be used: {detail}; {fix}", {"detail": detail, "fix": fix})

    async def names(self) -> list[str]:
        """Return the functions of the mesh, of whichever generation."""
        return await self._service.list_functions(self._prefix)

    async def remove_unused(self, name: str, *, whatever: bool = False) -> None:
        """Remove a function without sessions that no template has by itself any more; with `whatever`, any."""
        async with self._locks.held(name):
            if self._users[name] or (name in self._current() and not whatever):
                return
            if any(session.get("sessionStatus") != "Expired" for session in await self._service.list_sessions(name)):
                return
            self._urls.pop(name, None)
            await self._service.delete_trigger(name, TRIGGER)
            await self._service.delete_function(name)

    def _current(self) -> set[str]:
        """Return the functions that the templates have by themselves, with their own limits or none."""
        found: set[str] = set()
        for template in self._templates.values():
            own = sandbox_pb2.Limits(**template.limits.model_dump())
            found |= {self._plan(template, limits).name for limits in (own, sandbox_pb2.Limits())}
        return found
