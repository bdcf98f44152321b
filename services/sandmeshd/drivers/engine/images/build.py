"""Builds images with the engine's own builder, from the Dockerfiles below images/."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import distribution
from pathlib import Path

import sandmesh
import sandmeshd
from sandmesh.errors import InvalidArgument, RuntimeUnavailable, TemplateBuildFailed
from sandmeshd.drivers.engine.images.host import CODENAME, debian_sources, proxy_arguments, write_secrets
from sandmeshd.drivers.engine.images.layer import PACKAGES, UpperLayer
from sandmeshd.drivers.engine.images.platforms import ARCHITECTURES, EMULATE, archive_image, is_foreign, named_for
from sandmeshd.drivers.engine.settings import FULL, DockerSettings, how_to_start
from sandmeshd.drivers.node import agent_sources, portable_python
from sandmeshd.drivers.node.builds import BuildStep
from sandmeshd.drivers.node.commands import RunningCommand, running
from sandmeshd.drivers.node.portable_python import contents, elf
from sandmeshd.templates import WITH_PROGRAMS

METADATA = ("METADATA", "entry_points.txt")
"""The files with the drivers' entry points and the version."""


def fill_whole(context: Path, packages: Mapping[str, Path]) -> Path:
    """Lay a context out like the repository; `packages` are directories by their path in it."""
    for name, path in packages.items():
        shutil.copytree(path, context / name, ignore=shutil.ignore_patterns("__pycache__"))
        # Images that are shipped in the package have another path.
        if path.name == "sandmeshd":
            shutil.rmtree(context / name / "image_sources", ignore_errors=True)
    installed = distribution("sandmesh")
    (context / "metadata").mkdir()
    for name in METADATA:
        (context / "metadata" / name).write_text(installed.read_text(name) or "")
    return context


DEBIAN = "debian:bookworm-slim"
BASE = "base"
"""The image of the templates."""
BASE_NODE = f"{BASE}{WITH_PROGRAMS}"
"""The same with Node.js and uv."""
MESH = "mesh"
"""The image of the services, which no sandbox is made of."""

ROOTS = {"sandmesh": ("sdk", sandmesh), "sandmeshd": ("services", sandmeshd)}
"""The folder of the repository that each package is in, and the package."""
HOOK = "/usr/share/mmdebstrap/hooks/merged-usr"
BOOTSTRAP = (
    # Without this package and its hook apt takes `usrmerge` and with it the whole of Perl, 50 MB.
    *("--variant=apt", "--include=ca-certificates,usr-is-merged", f"--hook-directory={HOOK}"),
    *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")),
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
)
"""Debian's smallest system with apt, without manuals and translations, like Debian's own slim image."""
NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")
STEP = re.compile(r"#\d+ \[ *(\d+)/(\d+)\] (.*)")
BOOTSTRAP_COMMAND = "sandmesh build base --driver docker --bootstrap-base"
FULL_DISK = "no space left on device"
FULL_FIX = f"{FULL}, and in the directory of temporary files"
CLIENTS = ("docker", "/usr/bin/docker")


@dataclass(frozen=True)
class OwnImage:
    """A user's own image: its full name, its Dockerfile, and the folder that the build reads."""

    name: str
    dockerfile: Path
    context: Path


class ImageBuilder:
    """Builds the images of one release."""

    def __init__(self, settings: DockerSettings) -> None:
        self._settings = settings

    def image_name(self, image: str, platform: str = "") -> str:
        """Return an image's full name; one for a platform has a separate tag."""
        registry = f"{self._settings.registry}/" if self._settings.registry else ""
        return named_for(f"{registry}{self._settings.namespace}/{image}:{self._settings.tag}", platform)

    @cached_property
    def sources(self) -> str:
        """The hash of everything that images are built from."""
        digest = hashlib.sha256()
        for path, name in _sources():
            digest.update(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        return digest.hexdigest()[:20]

    async def build(self, image: str, platform: str = "") -> AsyncGenerator[BuildStep]:
        """Build an image, yielding the progress; cached steps are not repeated.

        Raises:
            RuntimeUnavailable: No client that can build is installed, or the engine does not answer.
            TemplateBuildFailed: It has no Dockerfile, or a step failed; `facts["detail"]` has its last lines.
        """
        known = sorted({path.name for path in images_folder().iterdir() if path.is_dir()} - {PACKAGES})
        if image not in known:
            fix = (
                f"build {self.image_name(image)} yourself, FROM {self.image_name('base')} with its packages in /opt/env"
            )
            message = f"there is no Dockerfile of an image {image!r}, only of {', '.join(known)}: {fix}"
            raise TemplateBuildFailed(message, {"detail": message, "fix": fix})
        if image == BASE_NODE:
            async with aclosing(self.build(BASE, platform)) as steps:
                async for step in steps:
                    yield step
        yield BuildStep(f"building {self.image_name(image, platform)}", 0)
        client = await self._client()
        base = await self._base(client, image, platform)
        with tempfile.TemporaryDirectory(prefix="sandmesh-build-") as folder:
            context = await asyncio.to_thread(fill_context, Path(folder, "context"), image)
            release = {"SOURCES": self.sources, "VERSION": sandmesh.__version__, **base}
            arguments = [
                *self._host(Path(folder)),
                *_arguments(release),
                *self._options(self.image_name(image, platform), platform),
            ]
            dockerfile = f"{images_folder()}/{image}/Dockerfile"
            async with aclosing(self._run([*client, *arguments, "--file", dockerfile, str(context)], image)) as steps:
                async for step in steps:
                    yield step

    async def build_layer(self, layer: UpperLayer) -> AsyncGenerator[BuildStep]:
        """Build the image of a template with its own packages, and the one below it, as `build` does.

        Raises:
            RuntimeUnavailable, TemplateBuildFailed: As `build`.
        """
        name = layer.template.name
        if not is_free(name):
            fix = "give the template another name, in lower-case letters"
            message = f"no image of a template's own can be named {name!r}: {fix}"
            raise TemplateBuildFailed(message, {"detail": message, "fix": fix})
        async with aclosing(self.build(layer.base)) as steps:
            async for step in steps:
                yield step
        yield BuildStep(f"building {self.image_name(name)}", 0)
        client = await self._client()
        with tempfile.TemporaryDirectory(prefix="sandmesh-build-") as folder:
            context = layer.fill_context(Path(folder, "context"), images_folder())
            made = {"BASE": self.image_name(layer.base), "VERSION": sandmesh.__version__, "TEMPLATE": name}
            release = _arguments({**made, "SOURCES": layer.sources(self.sources)})
            arguments = [*self._host(Path(folder)), *release, *self._options(self.image_name(name), "")]
            dockerfile = f"{images_folder()}/{PACKAGES}/Dockerfile"
            async with aclosing(self._run([*client, *arguments, "--file", dockerfile, str(context)], name)) as steps:
                async for step in steps:
                    yield step

    async def _base(self, client: list[str], image: str, platform: str) -> dict[str, str]:
        """Return the build argument of what an image begins with, where that is not as in its Dockerfile.

        The Dockerfile has the digest of an image in a registry; what is on the engine by the name, as `bootstrap` makes
        it, has none.
        """
        if image == BASE_NODE:
            return {"BASE": self.image_name(BASE, platform)}
        debian = named_for(DEBIAN, platform)
        return {"DEBIAN": debian} if await self._exists(client, debian) else {}

    async def build_own(self, image: OwnImage, platform: str = "") -> AsyncGenerator[BuildStep]:
        """Build a user's own image; its build argument `BASE` is the image of this release.

        Raises:
            RuntimeUnavailable, TemplateBuildFailed: As `build`.
        """
        yield BuildStep(f"building {image.name}", 0)
        client = await self._client()
        with tempfile.TemporaryDirectory(prefix="sandmesh-build-") as secrets:
            base = _arguments({"BASE": self.image_name(BASE, platform)})
            arguments = [*self._host(Path(secrets)), *base, *self._options(image.name, platform)]
            paths = ["--file", str(image.dockerfile), str(image.context)]
            async with aclosing(self._run([*client, *arguments, *paths], image.name)) as steps:
                async for step in steps:
                    yield step

    async def bootstrap(self, platform: str = "") -> AsyncGenerator[BuildStep]:
        """Make the Debian base image with mmdebstrap, for use without a registry, unless it exists.

        One for a platform has a separate tag; `build` for that platform starts from it.

        Raises:
            RuntimeUnavailable: mmdebstrap is not installed, this is not root, or the engine does not answer.
            TemplateBuildFailed: It failed.
        """
        client, base = await self._client(), named_for(DEBIAN, platform)
        if await self._exists(client, base):
            return
        if shutil.which("mmdebstrap") is None or os.geteuid() != 0:
            fix = "apt-get install mmdebstrap, and run this as root"
            raise RuntimeUnavailable(f"the base image is made with mmdebstrap as root: {fix}", {"fix": fix})
        with tempfile.TemporaryDirectory(prefix="sandmesh-base-") as folder:
            tar = str(Path(folder, "base.tar"))
            yield BuildStep(f"making {base} with mmdebstrap", -1)
            foreign = [f"--architectures={ARCHITECTURES[platform]}"] if platform else []
            await self._finish(["mmdebstrap", *BOOTSTRAP, *foreign, CODENAME, tar, *_mirror(Path(folder))], base)
            yield BuildStep(f"importing {base}", -1)
            if platform:
                # An engine marks what it imports as built for its own platform.
                image = await asyncio.to_thread(archive_image, Path(tar), base, platform)
                await self._finish([*client, "load", "--quiet", "--input", str(image)], base)
            else:
                await self._finish([*client, "import", tar, base], base)

    async def _exists(self, client: list[str], image: str) -> bool:
        command = [*client, "image", "inspect", "--format", "{{.Id}}", image]
        async with running(command, env=self._environment()) as seen:
            return await seen.succeeded()

    async def _finish(self, arguments: list[str], image: str) -> None:
        async with running(arguments, env=self._environment()) as command:
            if not await command.succeeded():
                raise _failed(command, image)

    async def _run(self, arguments: list[str], image: str) -> AsyncGenerator[BuildStep]:
        async with running(arguments, env={**self._environment(), "DOCKER_BUILDKIT": "1"}) as command:
            async for line in command.lines():
                found = STEP.match(line)
                if found:
                    done, of = int(found[1]), int(found[2])
                    yield BuildStep(f"building {image}: step {done} of {of}", (done - 1) / of)
            if not await command.succeeded():
                raise _failed(command, image)

    def _options(self, tag: str, platform: str) -> list[str]:
        options = ["--progress", "plain", "--network", "host", "--tag", tag]
        return [*options, "--platform", platform] if platform else options

    def _host(self, secrets: Path) -> list[str]:
        files = write_secrets(secrets, self._settings.egress)
        options = [part for name, path in files.items() for part in ("--secret", f"id={name},src={path}")]
        return ["build", *options, *_arguments(proxy_arguments(self._settings.egress))]

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, "DOCKER_HOST": self._settings.url}
        if self._settings.certificates is not None:
            environment |= {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(self._settings.certificates)}
        return environment

    async def _client(self) -> list[str]:
        """Return a client that builds with BuildKit, on an engine that answers; version 23 or later needs a plug-in."""
        for name in CLIENTS:
            path = shutil.which(name)
            if path is not None and await self._builds(path):
                await self._check_engine(path)
                return [path]
        fix = "install Docker's client with its plug-in buildx (https://docs.docker.com/engine/install/)"
        raise RuntimeUnavailable(f"images are built with the docker command, and none here can: {fix}", {"fix": fix})

    async def _check_engine(self, path: str) -> None:
        command = [path, "version", "--format", "{{.Server.Version}}"]
        async with running(command, env=self._environment()) as answer:
            if not await answer.succeeded():
                reason = (answer.detail.strip().splitlines() or ["no output"])[-1]
                fix = how_to_start(self._settings.url)
                raise RuntimeUnavailable(f"no image can be built: {reason} ({fix})", {"fix": fix})

    async def _builds(self, path: str) -> bool:
        async with running([path, "buildx", "version"], env=self._environment()) as plugin:
            if await plugin.succeeded():
                return True
        async with running([path, "--version"], env=self._environment()) as version:
            await version.succeeded()
            found = re.search(r"version (\d+)\.", version.detail)
            return found is not None and int(found[1]) < 23


def own_name(folder: Path) -> str:
    """Return the name of the image that is built from a folder: the folder's own.

    Raises:
        InvalidArgument: There is no Dockerfile, or an image cannot have that name.
    """
    name = folder.resolve().name
    if not (folder / "Dockerfile").is_file():
        raise InvalidArgument(f"there is no Dockerfile in {folder}", {"field": "path"})
    if not is_free(name):
        message = f"no image of your own can be named {name!r}, as the folder is: rename it, in lower-case letters"
        raise InvalidArgument(message, {"field": "path"})
    return name


def is_free(name: str) -> bool:
    """Return whether a user's own image can have a name, which no image of a release has."""
    return NAME.fullmatch(name) is not None and name not in {path.name for path in images_folder().iterdir()}


def _arguments(values: Mapping[str, str]) -> list[str]:
    return [part for name, value in values.items() for part in ("--build-arg", f"{name}={value}")]


def _mirror(folder: Path) -> list[str]:
    """Return the arguments for mmdebstrap's package sources: this machine's own, if they fit."""
    sources = debian_sources(Path("/etc/apt"))
    path = folder / "sources.list"
    path.write_text(sources)
    return [str(path)] if sources else []


def images_folder() -> Path:
    """Return the folder of the Dockerfiles: in the package where it is installed, else beside the sources."""
    package = Path(next(iter(sandmeshd.__path__)))
    installed = package / "image_sources"
    return installed if installed.is_dir() else package.parents[1] / "images"


def _packages() -> dict[str, Path]:
    return {name: Path(next(iter(package.__path__))) for name, (_, package) in ROOTS.items()}


def _sources() -> Iterator[tuple[Path, str]]:
    """Yield the files of a build with their names in its context, which is laid out as the repository is."""
    for path, name in agent_sources.list_sources(_packages()):
        yield path, f"{ROOTS[name.partition('/')[0]][0]}/{name}"
    services = _packages()["sandmeshd"]
    for module in (agent_sources, portable_python, contents, elf):
        program = Path(str(module.__file__))
        yield program, f"services/sandmeshd/{program.relative_to(services)}"
    for path in sorted((_packages()["sandmeshd"] / "templates" / "environments").glob("*.toml")):
        yield path, f"services/sandmeshd/templates/environments/{path.name}"
    for path in sorted(images_folder().rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            yield path, f"images/{path.relative_to(images_folder())}"


def fill_context(context: Path, image: str) -> Path:
    """Copy what the Dockerfile of an image reads into a folder, laid out as the repository is; return the folder."""
    if image == MESH:
        packages = {f"{ROOTS[name][0]}/{name}": path for name, path in _packages().items()}
        return fill_whole(context, {**packages, "images": images_folder()})
    agent_sources.copy_files(_sources(), context)
    return context


def _failed(command: RunningCommand, image: str) -> TemplateBuildFailed:
    lines = [line for line in command.detail.splitlines() if line.strip()] or ["no output"]
    fix = f"look at the last lines; where no registry can be reached for {DEBIAN}: {BOOTSTRAP_COMMAND}"
    if FULL_DISK in command.detail.lower():
        return TemplateBuildFailed(
            f"the image {image} could not be built, since the disk is full: {FULL_FIX}",
            {"detail": "\n".join(lines), "fix": FULL_FIX},
        )
    if is_foreign(command.detail):
        fix = f"let this machine run programs of that platform ({EMULATE}), or build on one that is of it"
    facts = {"detail": "\n".join(lines), "fix": fix}
    return TemplateBuildFailed(f"the image {image} could not be built: {lines[-1][:300]}; {fix}", facts)
