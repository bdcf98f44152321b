"""What registries say of images: indexes, manifests and configurations, of OCI's and Docker's media types.

All of it is untrusted: its digest is checked before it comes here, its size where it is read, its form here. The fields
are those of the OCI Image Specification 1.1; unknown ones are ignored, as it demands.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from sandmesh.errors import InvalidArgument

LARGEST_DOCUMENT: Final = 4 << 20
"""The most bytes of an index, a manifest or a configuration, as the Distribution Specification recommends."""
MOST_LAYERS: Final = 127
"""As many as Docker takes."""

INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_CONFIGS: Final = ("application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json")
_LAYERS: Final = ("application/vnd.oci.image.layer.v1.tar", "application/vnd.docker.image.rootfs.diff.tar")
_DEPTH: Final = 64

Model = TypeVar("Model", bound=BaseModel)
Text = Annotated[str, Field(max_length=65536)]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Null = BeforeValidator(lambda value: [] if value is None else value)
NullMap = BeforeValidator(lambda value: {} if value is None else value)
Texts = Annotated[tuple[Text, ...], Null, Field(max_length=4096)]


class Document(BaseModel):
    """A part of a document."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Platform(Document):
    """What a manifest of an index is for."""

    architecture: Annotated[str, Field(max_length=64)] = ""
    os: Annotated[str, Field(max_length=64)] = ""
    variant: Annotated[str, Field(max_length=64)] = ""

    def takes(self, other: Platform) -> bool:
        """Return whether what is for another platform runs on this one."""
        is_same = (self.os, self.architecture) == (other.os, other.architecture)
        return is_same and (not self.variant or other.variant in {"", self.variant})

    def __str__(self) -> str:
        """Return it as people write it."""
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


class Descriptor(Document):
    """What names a blob: its kind, digest and size in bytes."""

    media_type: Annotated[str, Field(alias="mediaType", max_length=255)]
    digest: Digest
    size: Annotated[int, Field(ge=0, le=1 << 50)]
    platform: Platform | None = None
    annotations: Annotated[dict[str, Text], NullMap] = Field(default_factory=dict)

    @property
    def hex(self) -> str:
        """The digest's digits."""
        return self.digest.removeprefix("sha256:")


class Index(Document):
    """The manifests of one image, by platform."""

    manifests: Annotated[tuple[Descriptor, ...], Null, Field(max_length=1024)]


class Manifest(Document):
    """What an image of one platform consists of: its configuration, and its layers, lowest first."""

    media_type: Annotated[str, Field(alias="mediaType", max_length=255)] = ""
    config: Descriptor
    layers: Annotated[tuple[Descriptor, ...], Null, Field(max_length=MOST_LAYERS)]


class RootFs(Document):
    """The digests of the layers' tars without compression."""

    diff_ids: Annotated[tuple[Digest, ...], Null, Field(max_length=MOST_LAYERS)] = ()


class ImageProcess(Document):
    """How an image's program is started."""

    user: Annotated[Text | None, Field(alias="User")] = ""
    env: Annotated[Texts, Field(alias="Env")] = ()
    entrypoint: Annotated[Texts, Field(alias="Entrypoint")] = ()
    cmd: Annotated[Texts, Field(alias="Cmd")] = ()
    working_dir: Annotated[Text | None, Field(alias="WorkingDir")] = ""
    labels: Annotated[dict[str, Text], NullMap, Field(alias="Labels", max_length=4096)] = Field(default_factory=dict)
    ports: Annotated[dict[str, Any], NullMap, Field(alias="ExposedPorts", max_length=1024)] = Field(
        default_factory=dict
    )
    volumes: Annotated[dict[str, Any], NullMap, Field(alias="Volumes", max_length=1024)] = Field(default_factory=dict)


class ProgramConfig(Document):
    """The configuration of an image."""

    architecture: Annotated[str, Field(max_length=64)] = ""
    os: Annotated[str, Field(max_length=64)] = ""
    variant: Annotated[str | None, Field(max_length=64)] = ""
    config: ImageProcess | None = None
    rootfs: RootFs = RootFs()


def parse_document(data: bytes, model: type[Model]) -> Model:
    """Parse a document.

    Raises:
        InvalidArgument: It has not the form of one.
    """
    name = model.__name__.lower()
    if len(data) > LARGEST_DOCUMENT:
        raise InvalidArgument(f"the image's {name} is larger than {LARGEST_DOCUMENT} bytes")
    try:
        return model.model_validate(json.loads(data), strict=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidArgument(f"the image's {name} is not valid: {where}: {first['msg']}") from None
    except (ValueError, RecursionError):
        raise InvalidArgument(f"the image's {name} is not JSON") from None


def parse_manifest(data: bytes) -> Manifest:
    """Parse a manifest whose kinds of configuration and layers can be used here.

    Raises:
        InvalidArgument: It is not one of an image, but for example an artifact or a signature.
    """
    manifest = parse_document(data, Manifest)
    if manifest.config.media_type not in _CONFIGS:
        raise InvalidArgument(f"it is not an image but {manifest.config.media_type!r}")
    for layer in manifest.layers:
        if not layer.media_type.startswith(_LAYERS):
            raise InvalidArgument(f"a layer has a media type that is not supported: {layer.media_type!r}")
    return manifest


def choose_manifest(index: Index, platform: Platform) -> Descriptor:
    """Return an index's manifest for a platform.

    Raises:
        InvalidArgument: It has none; the message lists those there are.
    """
    images = [manifest for manifest in index.manifests if manifest.media_type in (*MANIFESTS, *INDEXES)]
    for one in images:
        if one.platform is not None and platform.takes(one.platform):
            return one
    if len(images) == 1 and images[0].platform is None:
        return images[0]
    known = sorted({str(image.platform) for image in images if image.platform and image.platform.os != "unknown"})
    raise InvalidArgument(f"the image has nothing for {platform}, but for {', '.join(known) or 'no platform'}")
