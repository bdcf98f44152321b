"""Images as an engine has them: found there, or pulled by it for the first sandbox that wants one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiodocker import DockerError

from sandmesh.errors import CapabilityMissing, InvalidArgument, RuntimeUnavailable
from sandmeshd.drivers.engine.engine import NOT_FOUND, Engine
from sandmeshd.drivers.engine.settings import DockerSettings
from sandmeshd.drivers.node.images.containers import check_volumes
from sandmeshd.drivers.node.images.policy import check_pull_allowed, store_settings
from sandmeshd.images.documents import ImageProcess, ProgramConfig
from sandmeshd.images.image import ImageConfig, to_image_config
from sandmeshd.images.reference import LocalReference, Reference, parse_reference
from sandmeshd.images.registry.connection import url_of
from sandmeshd.images.registry.credentials import find_credentials
from sandmeshd.images.registry.policy import check_policy
from sandmeshd.images.registry.public_only import check_registry
from sandmeshd.images.sources.archives import machine_architecture


@dataclass(frozen=True)
class EngineImage:
    """An image that an engine has."""

    reference: str
    digest: str
    """Its id at the engine."""
    config: ImageConfig


class EngineImages:
    """The images of one driver's sandboxes."""

    def __init__(self, settings: DockerSettings, engine: Engine) -> None:
        self._settings = settings
        self._images = store_settings(settings)
        self._engine = engine
        self._pulls: dict[str, asyncio.Task[None]] = {}

    async def find(self, name: str) -> EngineImage:
        """Return an image; the engine pulls one that it lacks.

        Raises:
            PermissionDenied: A setting forbids it.
            CapabilityMissing: It is named as a file, which engines do not take.
            InvalidArgument: It does not exist, or this machine or this driver cannot run it.
            RuntimeUnavailable: The engine does not answer, or cannot reach the registry.
        """
        reference = parse_reference(name)
        check_policy(self._images, reference)
        if isinstance(reference, LocalReference):
            driver = self._settings.profile.name
            fix = "load it into the engine (docker load, docker import), and use the name that it has there"
            message = f"the {driver} driver runs images of its engine, and {reference} is a file: {fix}"
            raise CapabilityMissing(message, {"needs": "images", "fix": fix})
        found = await self._engine.image(str(reference))
        if found is None:
            check_pull_allowed(self._settings, reference, f"docker pull {reference}")
            await check_registry(self._images, url_of(reference.registry))
            await self._pull(reference)
            found = await self._engine.image(str(reference))
        if found is None:
            raise InvalidArgument(f"the engine has no image {reference}", {"field": "spec.image"})
        return _to_image(str(reference), found)

    async def _pull(self, reference: Reference) -> None:
        name = str(reference)
        task = self._pulls.get(name)
        if task is None:
            task = self._pulls[name] = asyncio.create_task(self._pulled(reference))
            task.add_done_callback(lambda _: self._pulls.pop(name, None))
        # Who gives up leaves the pull to the others, and to a later request.
        await asyncio.shield(task)

    async def _pulled(self, reference: Reference) -> None:
        login = await find_credentials(self._images.credential_files, reference.registry)
        auth = None
        if login is not None:
            auth = {"username": login.username, "password": login.password, "serveraddress": reference.registry}
            auth |= {"identitytoken": login.identity_token} if login.identity_token else {}
        try:
            async for _ in self._engine.pull(str(reference), auth):
                pass
        except DockerError as error:
            message = f"the engine could not pull {reference}: {error.message}"
            if error.status == NOT_FOUND or "not found" in error.message or "unknown" in error.message:
                raise InvalidArgument(message, {"field": "spec.image"}) from None
            fix = f"try: docker pull {reference}"
            raise RuntimeUnavailable(f"{message}; {fix}", {"fix": fix}) from None

    async def close(self) -> None:
        """Stop waiting for pulls; engines keep what they have of them."""
        tasks = list(self._pulls.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _to_image(reference: str, found: Mapping[str, Any]) -> EngineImage:
    process: Mapping[str, Any] = found.get("Config") or {}
    built_for = f"{found.get('Os')}/{found.get('Architecture')}"
    if built_for != f"linux/{machine_architecture()}":
        fix = f"docker pull --platform linux/{machine_architecture()} {reference}"
        message = f"the image {reference} is for {built_for}, and this machine is another: {fix}"
        raise InvalidArgument(message, {"field": "spec.image", "fix": fix})
    config = to_image_config(ProgramConfig(config=ImageProcess.model_validate(process, strict=False)))
    check_volumes(reference, config)
    return EngineImage(reference, str(found["Id"]), config)
