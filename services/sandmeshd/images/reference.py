"""References of images: a repository of a registry by tag or digest, or a file or directory of this machine.

Short names are Docker's: `python:3.12-slim` is `docker.io/library/python:3.12-slim`. The grammar is that of the OCI
Distribution Specification 1.1 and, for hosts, of Docker's references.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandmesh.errors import InvalidArgument

DOCKER_HUB: Final = "docker.io"
TRANSPORTS: Final = ("oci", "oci-archive", "docker-archive", "tar")
"""What names something of this machine: an OCI layout, one in a tar, what `docker save` wrote, a root's tar."""
BUILDS: Final = "build.sandmesh.invalid"
"""Where names of images are that builds make by themselves: no registry can have it (RFC 6761)."""
STEPS: Final = f"{BUILDS}/step"
"""What the names of images begin with that builds keep of their steps."""
BUILT: Final = f"{BUILDS}/image"
"""As STEPS, of images that users built without a name for all."""
PRIVATE: Final = f"{BUILDS}/base"
"""As STEPS, of images that were pulled with a user's own credentials: who does not have those cannot know the rest."""

_LONGEST: Final = 1024
_HOST: Final = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*|\[[0-9a-fA-F:]+\])(?::[0-9]{1,5})?"
)
_REPOSITORY: Final = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Reference:
    """The name of an image: a registry's host, a repository, and a tag or a digest; of both the digest counts."""

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""

    def __str__(self) -> str:
        """Return the whole name."""
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.registry}/{self.repository}{tag}" + (f"@{self.digest}" if self.digest else "")

    @property
    def wanted(self) -> str:
        """What names the manifest within the repository."""
        return self.digest or self.tag

    @property
    def familiar(self) -> str:
        """The name as people write it: without Docker Hub's host and its `library`."""
        return str(self).removeprefix(f"{DOCKER_HUB}/").removeprefix("library/")


@dataclass(frozen=True)
class LocalReference:
    """An image in a file or directory of this machine; `name` is one of those in it, or empty."""

    transport: str
    path: Path
    name: str = ""

    def __str__(self) -> str:
        """Return it as it is written."""
        return f"{self.transport}:{self.path}" + (f":{self.name}" if self.name else "")

    @property
    def familiar(self) -> str:
        """The name as people write it."""
        return str(self)

    def version(self) -> str:
        """Return what changes where the image does; empty where there is none any more."""
        try:
            facts = (self.path / "index.json" if self.transport == "oci" else self.path).stat()
        except OSError:
            return ""
        return f"{facts.st_dev} {facts.st_ino} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}"


AnyReference = Reference | LocalReference


def parse_reference(text: str) -> AnyReference:
    """Parse the name of an image.

    Raises:
        InvalidArgument: It is not one; the message says what one looks like.
    """
    if len(text) > _LONGEST or not text.isprintable():
        raise InvalidArgument(f"{text[:100]!r} is not the name of an image")
    transport, colon, rest = text.partition(":")
    if colon and transport in TRANSPORTS and rest.startswith(("/", "./", "../", "~/")):
        return _local(transport, rest)
    remote = text.removeprefix("docker://")
    name, _, digest = remote.partition("@")
    if "@" in remote and not DIGEST.fullmatch(digest):
        raise InvalidArgument(f"the digest of {text!r} is not sha256: and 64 hexadecimal digits")
    host, path = _split_host(name)
    repository, colon, tag = path.partition(":")
    if not _HOST.fullmatch(host) or not _REPOSITORY.fullmatch(repository) or (colon and not _TAG.fullmatch(tag)):
        lower = f": repositories are in lower case ({text.lower()!r}?)" if text.lower() != text else ""
        example = "like python:3.12-slim, ghcr.io/owner/name@sha256:..., oci:/DIR, docker-archive:/FILE or tar:/FILE"
        raise InvalidArgument(f"{text!r} is not the name of an image{lower}, {example}")
    return Reference(host, repository, tag or ("" if digest else "latest"), digest)


def _split_host(name: str) -> tuple[str, str]:
    """Return the registry and the rest: the first part is a host if it has a dot or a port, or is localhost."""
    first, slash, rest = name.partition("/")
    if not slash or not (any(sign in first for sign in ".:[") or first == "localhost"):
        return DOCKER_HUB, name if slash else f"library/{name}"
    if first in {DOCKER_HUB, "index.docker.io", "registry-1.docker.io"}:
        return DOCKER_HUB, rest if "/" in rest else f"library/{rest}"
    return first, rest


def _local(transport: str, rest: str) -> LocalReference:
    path, colon, name = rest.partition(":")
    if transport == "tar" and colon:
        raise InvalidArgument(f"{rest!r}: the path of a tar must not have a colon")
    return LocalReference(transport, Path(path).expanduser().absolute(), name)
