"""ImageService, as its proto specifies it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import grpc
import structlog

from sandmesh.api.image.v1 import image_pb2 as pb
from sandmesh.api.image.v1 import image_pb2_grpc
from sandmesh.errors import DeadlineExceeded, PermissionDenied
from sandmeshd.auth.principal import Principal, current_principal
from sandmeshd.images.builds.options import Report, Totals
from sandmeshd.images.builds.uploads import ContextUploads, UploadedPart
from sandmeshd.images.image import PulledImage
from sandmeshd.images.settings import ImageSettings

log = structlog.get_logger()

_WAITING: Final = 1000
"""How many lines wait for a slow client; of more, those of commands are left out."""

Context = grpc.aio.ServicerContext[Any, Any]


CarryOut = Callable[[pb.BuildImageRequest, Principal, Report], Awaitable[tuple[PulledImage, Totals]]]
"""Builds what a principal requests."""


class ImageServicer(image_pb2_grpc.ImageServiceServicer):
    """Takes uploads, and carries out a few builds at a time."""

    def __init__(self, settings: ImageSettings, uploads: ContextUploads, build: CarryOut) -> None:
        self._settings = settings
        self._uploads = uploads
        self._build = build
        self._slots = asyncio.Semaphore(settings.image_builds)

    async def UploadBuildContext(
        self, request: pb.UploadBuildContextRequest, context: Context
    ) -> pb.UploadBuildContextResponse:
        """Add a part of a build's files to those that are there."""
        part = UploadedPart(request.digest, request.size, request.offset, request.data)
        received, complete = await asyncio.to_thread(self._uploads.add, owner_of(current_principal()), part)
        return pb.UploadBuildContextResponse(received=received, complete=complete)

    async def BuildImage(self, request: pb.BuildImageRequest, context: Context) -> AsyncIterator[pb.BuildImageResponse]:
        """Build an image, and stream what happens."""
        principal = current_principal()
        if request.name and principal.scope == "user":
            message = "a name for all of the mesh takes an administrator: leave it out, and use the one that you get"
            raise PermissionDenied(message, {"field": "name"})
        events: asyncio.Queue[pb.BuildImageResponse | None] = asyncio.Queue(_WAITING)
        task = asyncio.create_task(self._run(request, principal, events))
        task.add_done_callback(lambda _: _force(events, None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield await task
        finally:
            task.cancel()
            with suppress(BaseException):
                await task

    async def _run(
        self, request: pb.BuildImageRequest, principal: Principal, events: asyncio.Queue[pb.BuildImageResponse | None]
    ) -> pb.BuildImageResponse:
        report = Report(
            lambda line: _force(events, pb.BuildImageResponse(step=line)),
            lambda line: _offer(events, pb.BuildImageResponse(output=line)),
        )
        if self._slots.locked():
            report.line("waiting for other builds to end")
        seconds = self._settings.image_build_seconds
        async with self._slots:
            try:
                async with asyncio.timeout(seconds):
                    image, totals = await self._build(request, principal, report)
            except TimeoutError:
                fix = "build again, which goes on after the last complete step, or raise SANDMESH_IMAGE_BUILD_SECONDS"
                raise DeadlineExceeded(f"the build took longer than {seconds:g} s: {fix}", {"fix": fix}) from None
        log.info("an image was built", image=image.reference, digest=image.digest, steps=totals.steps)
        return pb.BuildImageResponse(
            image=pb.BuiltImage(
                reference=image.reference,
                digest=image.digest,
                steps=totals.steps,
                cached_steps=totals.cached,
                written_bytes=totals.written,
            )
        )


def owner_of(principal: Principal) -> str:
    """Return whose uploads and images those of a principal are; empty: the mesh's."""
    if principal.scope != "user":
        return ""
    return f"{principal.project}/{principal.user_id}/{principal.sandbox_id}"


def _offer(events: asyncio.Queue[pb.BuildImageResponse | None], event: pb.BuildImageResponse) -> None:
    with suppress(asyncio.QueueFull):
        events.put_nowait(event)


def _force(events: asyncio.Queue[pb.BuildImageResponse | None], event: pb.BuildImageResponse | None) -> None:
    if events.full():
        events.get_nowait()
    events.put_nowait(event)
