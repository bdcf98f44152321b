"""Builds images on this machine, without an engine."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from sandmesh.api.image.v1 import image_pb2
from sandmesh.api.sandbox.v1 import sandbox_pb2
from sandmesh.errors import InvalidArgument
from sandmesh.shared.files.atomic_file import open_replacement
from sandmeshd.auth.principal import Principal
from sandmeshd.drivers.bubblewrap import BubblewrapSettings, check_build, check_pull, open_runner
from sandmeshd.drivers.node.images.policy import store_settings
from sandmeshd.images.builds.context import Context
from sandmeshd.images.builds.folders import build_folder
from sandmeshd.images.builds.options import ImageBuildOptions, MountedSecret, Report, Totals
from sandmeshd.images.builds.servicer import ImageServicer, owner_of
from sandmeshd.images.builds.uploads import ContextUploads
from sandmeshd.images.image import PulledImage
from sandmeshd.images.reference import DOCKER_HUB
from sandmeshd.images.store import ImageStore
from sandmeshd.mesh.driver import settings_for
from sandmeshd.mesh.settings import MeshSettings
from sandmeshd.runtime.full_disk import full_disk_explained

_MOST_CREDENTIALS: Final = 20
_HUB: Final = "https://index.docker.io/v1/"


async def build_image(
    settings: MeshSettings, name: str, options: ImageBuildOptions, report: Report
) -> tuple[PulledImage, Totals]:
    """Build an image in the store that the settings name, by sandboxes of bubblewrap, whatever the mesh's driver.

    Raises:
        InvalidArgument, TemplateBuildFailed, PermissionDenied, RuntimeUnavailable, TooLarge, CapabilityMissing: As
            `DockerfileBuilder.build`.
    """
    # A mesh that builds nothing need not wait for it.
    from sandmeshd.images.builds.builder import DockerfileBuilder  # noqa: PLC0415

    own = settings_for(settings, "bubblewrap", BubblewrapSettings)
    store = ImageStore(settings.image_store, _directory(settings))
    async with open_runner(own) as runner:
        builder = DockerfileBuilder(store=store, runner=runner, options=options, report=report)
        return await builder.build(name), builder.totals


def image_servicer(settings: MeshSettings) -> ImageServicer:
    """Return what builds images for clients of a mesh."""
    directory = (settings.image_store.images or _directory(settings)) / "uploads"
    uploads = ContextUploads(directory, settings.image_store.image_context_bytes)
    return ImageServicer(settings.image_store, uploads, partial(_build_request, settings, uploads))


async def _build_request(
    settings: MeshSettings,
    uploads: ContextUploads,
    request: image_pb2.BuildImageRequest,
    principal: Principal,
    report: Report,
) -> tuple[PulledImage, Totals]:
    own = settings_for(settings, "bubblewrap", BubblewrapSettings)
    check_build(own)
    settings = settings.model_copy(update={"image_store": store_settings(own)})
    store = ImageStore(settings.image_store, _directory(settings))
    await store.prepare()
    # What a killed mesh has left of it is removed with what killed builds have.
    async with build_folder(store.directory) as folder:
        context = folder / "context"
        context.mkdir()
        owner = owner_of(principal)
        if request.context_digest:
            report.line("unpacking the build's files")
            with full_disk_explained(store.directory):
                await asyncio.to_thread(uploads.unpack, owner, request.context_digest, context)
        options = ImageBuildOptions(
            dockerfile=request.dockerfile,
            context=Context(context),
            arguments=dict(request.arguments),
            secrets={name: MountedSecret(value) for name, value in request.secrets.items()},
            network=_words(request),
            only_public=principal.only_public or request.network.only_public,
            target=request.target,
            cached=not request.no_cache,
            pull=request.pull,
            owner=owner,
            private=bool(request.credentials),
            check_pull=partial(check_pull, own),
        )
        of_users = settings.model_copy(update={"image_store": store_settings(own)})
        chosen = _with_credentials(of_users, request.credentials, folder / "credentials.json")
        return await build_image(chosen, request.name, options, report)


def _directory(settings: MeshSettings) -> Path:
    return settings.state_directory / "images"


def _words(request: image_pb2.BuildImageRequest) -> tuple[str, ...]:
    """Return what commands may reach, as the options of builds have it."""
    grant = request.network
    if not request.HasField("network"):
        return ("packages",)
    return ("public", *grant.hosts) if grant.mode == sandbox_pb2.NETWORK_MODE_PUBLIC else tuple(grant.hosts)


def _with_credentials(
    settings: MeshSettings, credentials: Sequence[image_pb2.RegistryCredentials], file: Path
) -> MeshSettings:
    """Return settings with a request's credentials in the place of the mesh's; without any they stay."""
    if not credentials:
        return settings
    if len(credentials) > _MOST_CREDENTIALS:
        message = f"a build has credentials for at most {_MOST_CREDENTIALS} registries"
        raise InvalidArgument(message, {"field": "credentials"})
    logins = {
        _HUB if credential.registry == DOCKER_HUB else credential.registry: {
            "auth": base64.b64encode(f"{credential.username}:{credential.password}".encode()).decode()
        }
        for credential in credentials
    }
    with open_replacement(str(file), 0o600) as out:
        out.write(json.dumps({"auths": logins}).encode())
    store = settings.image_store.model_copy(update={"image_credentials": file})
    return settings.model_copy(update={"image_store": store})
