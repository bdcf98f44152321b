"""What a registry says of an image, without its layers: for drivers whose sandboxes' machines pull by themselves."""

from __future__ import annotations

import hashlib
from typing import Final

from sandmesh.errors import InvalidArgument
from sandmeshd.images.documents import (
    INDEXES,
    LARGEST_DOCUMENT,
    Descriptor,
    Index,
    Manifest,
    Platform,
    ProgramConfig,
    choose_manifest,
    parse_document,
    parse_manifest,
)
from sandmeshd.images.image import ImageConfig, to_image_config
from sandmeshd.images.reference import Reference
from sandmeshd.images.registry.source import RegistrySource, open_registry
from sandmeshd.images.settings import ImageSettings
from sandmeshd.images.sources.archives import machine_architecture

_MOST_INDEXES: Final = 3


async def look_up(settings: ImageSettings, reference: Reference) -> tuple[str, ImageConfig]:
    """Return the digest that an image has in its registry, of all platforms, and its configuration for this one.

    Raises:
        InvalidArgument: It does not exist, is not what its digest says, or is for another platform.
        PermissionDenied: Credentials are missing or not right, or the registry may not be used.
        RuntimeUnavailable: The registry does not respond.
    """
    platform = Platform(os="linux", architecture=machine_architecture())
    async with open_registry(settings, reference) as source:
        digest, manifest = await _manifest(source, reference, platform)
        data = await _document(source, manifest.config)
    document = parse_document(data, ProgramConfig)
    own = Platform(os=document.os, architecture=document.architecture)
    if own.architecture and not platform.takes(own):
        raise InvalidArgument(f"the image {reference} is for {own}, and this machine is {platform}")
    return digest, to_image_config(document)


async def _manifest(source: RegistrySource, reference: Reference, platform: Platform) -> tuple[str, Manifest]:
    """Return the digest that the name leads to, and the manifest for the platform, through indexes."""
    resolved = await source.read_manifest(reference.wanted)
    data, media_type = resolved.data, resolved.media_type
    digest = reference.digest or _digest(data)
    _check(data, digest)
    for _ in range(_MOST_INDEXES):
        if media_type not in INDEXES and b'"manifests"' not in data:
            return digest, parse_manifest(data)
        chosen = choose_manifest(parse_document(data, Index), platform)
        data, media_type = (await source.read_manifest(chosen.digest)).data, chosen.media_type
        _check(data, chosen.digest)
    raise InvalidArgument("the image's index leads only to indexes")


async def _document(source: RegistrySource, blob: Descriptor) -> bytes:
    if blob.size > LARGEST_DOCUMENT:
        raise InvalidArgument(f"the image's configuration is larger than {LARGEST_DOCUMENT} bytes")
    data = bytearray()
    async for part in source.read_blob(blob):
        data += part
        if len(data) > blob.size:
            break
    _check(bytes(data), blob.digest)
    return bytes(data)


def _check(data: bytes, digest: str) -> None:
    if _digest(data) != digest:
        raise InvalidArgument(f"the registry sent something else than {digest}: try again, or name another image")


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
