"""Settings of images."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import SettingsConfigDict

from sandmeshd.runtime.setting_types import check_proxy, check_web_url
from sandmeshd.runtime.settings import Settings


class ImageSettings(Settings):
    """Where images are kept and come from, and what they may be."""

    model_config = SettingsConfigDict(env_prefix="SANDMESH_")

    images: Path | None = None
    """Where images are pulled to and unpacked, for all meshes of a user; unset: below the state directory."""

    images_bytes: int = Field(default=64 << 30, ge=1 << 20)
    """The bytes of all images beyond which a pull removes those that were not used for longest."""

    image_bytes: int = Field(default=32 << 30, ge=1 << 20)
    """The most bytes that an image may have unpacked; larger ones are refused."""

    image_files: int = Field(default=2_000_000, ge=1)
    """The most files that an image may have."""

    image_registries: tuple[str, ...] = ()
    """Patterns of the images that are allowed, like docker.io/library/*; empty: all."""

    image_digests_only: bool = False
    """Images must be named by their digest."""

    image_public_only: bool | None = None
    """Registries must have public addresses, but for mirrors, and all that SANDMESH_IMAGE_REGISTRIES names; unset: they
    must in a mesh that several users share."""

    image_mirrors: tuple[str, ...] = ()
    """Mirrors of registries, as REGISTRY=URL; they are tried in order, then the registry itself."""

    image_certificates: Path | None = None
    """A file with certificates of authorities (PEM) that registries may have, beside the system's."""

    image_credentials: Path | None = None
    """The file with credentials of registries; unset: Docker's config.json, then Podman's auth.json."""

    image_proxy: SecretStr | None = None
    """The proxy for registries, as http://[user:password@]host:port; by default HTTPS_PROXY's."""

    image_no_proxy: str = ""
    """Hosts that are reached without that proxy, separated by commas; by default NO_PROXY's."""

    image_builds: int = Field(default=2, ge=1)
    """How many images are built at a time for clients of the mesh; others wait."""

    image_build_seconds: float = Field(default=3600, gt=0)
    """The most seconds that a build for a client may take."""

    image_build_memory: int | None = Field(default=None, ge=1 << 24)
    """The bytes of memory of each step of a build; unset: 4 GiB where control groups can limit it."""

    image_build_certificates: Path | None = None
    """A file of certificates (PEM) that commands of builds trust where they have a network; unset: their image's."""

    image_build_processes: int | None = Field(default=None, ge=16)
    """The most processes of each step of a build; unset: 4096 where control groups can limit it."""

    image_context_bytes: int = Field(default=4 << 30, ge=1 << 10)
    """The most bytes that a client may upload for a build; all uploads together have at most four times that."""

    @field_validator("image_proxy")
    @classmethod
    def _none_if_empty(cls, proxy: SecretStr | None) -> SecretStr | None:
        return check_proxy(proxy)

    @field_validator("image_mirrors")
    @classmethod
    def _check_mirrors(cls, mirrors: tuple[str, ...]) -> tuple[str, ...]:
        for mirror in mirrors:
            registry, _, url = mirror.partition("=")
            if not registry or not check_web_url(url):
                raise ValueError(f"{mirror!r} is not REGISTRY=URL, like docker.io=https://mirror.example")
        return mirrors

    @property
    def credential_files(self) -> tuple[Path, ...]:
        """The files with credentials, in the order in which they are read."""
        if self.image_credentials is not None:
            return (self.image_credentials,)
        home = Path.home()
        return (home / ".docker" / "config.json", home / ".config" / "containers" / "auth.json")
