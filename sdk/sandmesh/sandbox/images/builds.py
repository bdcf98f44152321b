"""Builds of images in a mesh: the files are uploaded as far as they are not there, then the steps are followed."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Final

from sandmesh._client.connection import Connection, acquire, release
from sandmesh._client.messages import read_seconds, write_network
from sandmesh.api.image.v1 import image_pb2 as pb
from sandmesh.errors import CapabilityMissing, DeadlineExceeded, MeshUnavailable, MethodNotFound
from sandmesh.sandbox.images.context import PIECE, ContextTar, write_context
from sandmesh.sandbox.images.image import Image, ImageBuildArguments
from sandmesh.shared.wire_errors import translated

SECONDS: Final = 3600.0
CONTEXT_BYTES: Final = 8 << 30
"""The most bytes of a build's files here; the mesh has another bound."""

log = logging.getLogger("sandmesh")


@dataclass(frozen=True)
class BuiltImage:
    """An image that a mesh has."""

    reference: str
    """The name by which its sandboxes take it."""
    digest: str
    """The digest of its manifest."""
    steps: int
    """Its steps of RUN, COPY and ADD, of all stages that were needed."""
    cached_steps: int
    """Those that were carried out before."""
    written_bytes: int
    """The bytes of new layers, compressed."""


async def build_image(image: Image, tag: str, options: ImageBuildArguments) -> BuiltImage:
    """Build an image: see `Image.build`."""
    timeout = read_seconds("timeout", options.get("timeout", SECONDS))
    mesh = acquire(options.get("base_url"), options.get("bearer_token"), timeout, options.get("ca_cert"))
    connection = await mesh
    try:
        return await build_on(connection, image, timeout, tag, options)
    finally:
        await release(connection)


async def build_on(
    connection: Connection, image: Image, timeout: float, tag: str = "", options: ImageBuildArguments | None = None
) -> BuiltImage:
    """Build an image over a connection within `timeout` seconds.

    Raises:
        DeadlineExceeded: It took longer; steps that were complete stay.
        SandmeshError: As `Image.build`.
    """
    chosen = options or ImageBuildArguments()
    try:
        async with asyncio.timeout(timeout):
            digest = await _upload(connection, image, timeout) if image.sources else ""
            return await _follow(connection, _request(image, tag, digest, chosen), chosen.get("progress"))
    except TimeoutError:
        message = f"the build did not end within {timeout:g} s: build again, which goes on where it was"
        raise DeadlineExceeded(message, {"limit": "timeout"}) from None
    except MethodNotFound:
        fix = "build with `sandmesh build --tag NAME` on each node's machine, or push an image to a registry"
        message = f"this mesh builds no images, since its services run apart: {fix}"
        raise CapabilityMissing(message, {"fix": fix}) from None


def _request(image: Image, tag: str, digest: str, options: ImageBuildArguments) -> pb.BuildImageRequest:
    return pb.BuildImageRequest(
        name=tag,
        dockerfile=image.dockerfile.encode(),
        context_digest=digest,
        arguments=dict(options.get("arguments") or {}),
        secrets=dict(image.secrets),
        network=write_network(image.network),
        target=options.get("target", ""),
        no_cache=options.get("no_cache", False),
        pull=options.get("pull", False),
        credentials=[
            pb.RegistryCredentials(registry=login.registry, username=login.username, password=login.password)
            for login in image.logins
        ],
    )


async def _upload(connection: Connection, image: Image, timeout: float) -> str:
    """Upload the files of a build, but for what is there; return the digest of their tar."""
    with tempfile.TemporaryFile() as file:
        tar = await asyncio.to_thread(write_context, image.sources, file, CONTEXT_BYTES)
        await _send(connection, tar, file, timeout)
    return tar.digest


async def _send(connection: Connection, tar: ContextTar, file: IO[bytes], timeout: float) -> None:
    data, offset = b"", 0
    while True:
        request = pb.UploadBuildContextRequest(digest=tar.digest, size=tar.size, offset=offset, data=data)
        answer = await connection.ask(lambda stubs: stubs.images.UploadBuildContext, request, timeout)
        if answer.complete:
            return
        offset = answer.received
        file.seek(offset)
        data = await asyncio.to_thread(file.read, PIECE)


async def _follow(
    connection: Connection, request: pb.BuildImageRequest, progress: Callable[[str], None] | None
) -> BuiltImage:
    with translated():
        async for response in connection.follow(lambda stubs: stubs.images.BuildImage, request):
            match response.WhichOneof("event"):
                case "image":
                    made = response.image
                    return BuiltImage(made.reference, made.digest, made.steps, made.cached_steps, made.written_bytes)
                case "step":
                    if progress is None:
                        log.info("build: %s", response.step)
                    else:
                        progress(response.step)
                case _:
                    if progress is not None:
                        progress(f"  | {response.output}")
    raise MeshUnavailable("the mesh ended the build without a result: build again")
