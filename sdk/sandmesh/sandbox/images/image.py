"""Images as programs describe them: `Image.from_registry("python:3.12-slim").pip_install("numpy")`."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from sandmesh.errors import InvalidArgument
from sandmesh.sandbox.images.context import ContextSource
from sandmesh.shared.files.dockerignore import DockerIgnore, read_ignore

if TYPE_CHECKING:
    from sandmesh.inputs import NetworkInput
    from sandmesh.sandbox.images.builds import BuiltImage

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILES: Final = ".sandmesh-files"
"""The directory of what is added, among the files of a build."""
_PLAIN_NAME: Final = re.compile(r"""[^*?\[\]\\'"$\0]+""")
"""Names that COPY takes as they are."""
_PLAIN_COMMAND: Final = re.compile(r"(?!--|\[|#)[^\n\r\\]+")


class ImageBuildArguments(TypedDict, total=False):
    """Keyword-only arguments of builds."""

    base_url: str | None
    """The mesh; None: the one at SANDMESH_ADDRESS, else this user's local one, else this program's private one."""

    bearer_token: str | None
    """A token of that mesh; None: SANDMESH_TOKEN."""

    ca_cert: str | Path | None
    """As for sandboxes."""

    timeout: float
    """Seconds that the build may take, 3600 by default."""

    progress: Callable[[str], None] | None
    """Receives lines for people: each step, and what its command writes. None: steps are logged (`sandmesh`, INFO)."""

    arguments: Mapping[str, str] | None
    """Values of ARG, by name."""

    target: str
    """The stage of a Dockerfile that is the image; by default the last."""

    no_cache: bool
    """Whether every step is carried out again."""

    pull: bool
    """Whether newer bases are looked for in their registries."""


@dataclass(frozen=True)
class RegistryLogin:
    """A user's credentials for the registry of a base."""

    registry: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class Image:
    """An image that a mesh builds, without an engine: methods return another image, which has one more instruction.

        image = Image.from_registry("debian:12").apt_install("git").run("git clone ...").workdir("/repository")
        with BaseSandbox(image=image) as box: ...

    The first sandbox of an image builds it; steps are cached by what they do, and shared with `sandmesh build`.
    """

    instructions: tuple[str, ...]
    """Of its Dockerfile."""
    sources: tuple[ContextSource, ...] = ()
    """The files that it copies."""
    network: NetworkInput | None = None
    """What its commands may reach; None: the package indexes."""
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """What commands with `RUN --mount=type=secret` see, by id; it is in no layer."""
    logins: tuple[RegistryLogin, ...] = ()
    """For registries of bases; without one, the mesh's own credentials are used."""

    @staticmethod
    def from_registry(
        name: str,
        *,
        network: NetworkInput | None = None,
        secrets: Mapping[str, str] | None = None,
        login: RegistryLogin | None = None,
    ) -> Image:
        """Begin with an image of any name that sandboxes may have, like "python:3.12-slim".

        `network` is what commands may reach: "none", "public", "packages" (the default), or hosts.

        Raises:
            InvalidArgument: The name is empty or has blanks.
        """
        if not name or len(name.split()) != 1 or not name.isprintable():
            raise InvalidArgument(f"{name!r} is not the name of an image, like python:3.12-slim", {"field": "name"})
        logins = () if login is None else (login,)
        return Image((f"FROM {name}",), network=network, secrets=dict(secrets or {}), logins=logins)

    @staticmethod
    def from_dockerfile(
        file: str | Path,
        directory: str | Path | None = None,
        *,
        network: NetworkInput | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> Image:
        """Begin with a Dockerfile; it copies from `directory`, by default the one that it is in.

        Raises:
            InvalidArgument: It cannot be read.
        """
        path = Path(file)
        folder = path.parent if directory is None else Path(directory)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{path} cannot be read: {error}", {"field": "file"}) from None
        if not folder.is_dir():
            raise InvalidArgument(f"{folder} is not a directory", {"field": "directory"})
        source = ContextSource(folder.absolute(), "", read_ignore(folder, path))
        return Image((text.rstrip("\n"),), (source,), network, dict(secrets or {}))

    def apt_install(self, *packages: str) -> Image:
        """Install Debian or Ubuntu packages, as root."""
        words = shlex.join(_words("packages", packages))
        install = f"apt-get install -y --no-install-recommends {words}"
        command = f"apt-get update && {install} && rm -rf /var/lib/apt/lists/*"
        return self._add(f"RUN DEBIAN_FRONTEND=noninteractive; export DEBIAN_FRONTEND; {command}")

    def pip_install(self, *packages: str, options: str = "") -> Image:
        """Install Python packages with the image's own pip, as ("numpy==2.1.0"); `options` are pip's."""
        words = shlex.join(_words("packages", packages))
        return self.run(f"python3 -m pip install --no-cache-dir {options + ' ' if options else ''}{words}")

    def run(self, *commands: str) -> Image:
        """Run commands of a shell, each a step, with the network of the image."""
        return self._add(*(_run(command) for command in _words("commands", commands)))

    def env(self, variables: Mapping[str, str] | None = None, **more: str) -> Image:
        """Set environment variables, of the steps that follow and of sandboxes."""
        return self._add(*(_env(name, value) for name, value in {**(variables or {}), **more}.items()))

    def workdir(self, path: str) -> Image:
        """Set the directory of the steps that follow and of sandboxes; it is made if it is missing."""
        return self._add(f"WORKDIR {_quoted('path', path)}")

    def user(self, name: str) -> Image:
        """Set the user of the steps that follow and of sandboxes."""
        return self._add(f"USER {_quoted('name', name)}")

    def add_dir(self, local: str | Path, remote: str, *, ignore: Iterable[str] = (), owner: str = "") -> Image:
        """Copy what is in a directory of this machine into one of the image.

        Its `.dockerignore` and the patterns of `ignore`, of the same form, leave files out. `owner` is a user of the
        image, or a number.

        Raises:
            InvalidArgument: It is not a directory.
        """
        folder = Path(local)
        if not folder.is_dir():
            raise InvalidArgument(f"{folder} is not a directory", {"field": "local"})
        patterns = list(ignore)
        chosen = DockerIgnore("\n".join(patterns)) if patterns else read_ignore(folder, None)
        return self._copy(folder, remote.rstrip("/") + "/" if remote else remote, chosen, owner)

    def add_file(self, local: str | Path, remote: str, *, owner: str = "") -> Image:
        """Copy a file of this machine into the image; a `remote` that ends with a slash is a directory.

        Raises:
            InvalidArgument: It is not a file.
        """
        return self._copy(_file(local), remote, DockerIgnore(), owner)

    def with_file(self, local: str | Path) -> tuple[Image, str]:
        """Add a local file to the files of the build, and return its name there, for mounts and COPY.

        Raises:
            InvalidArgument: It is not a file.
        """
        place = f"{_FILES}/{len(self.sources)}/file"
        return replace(self, sources=(*self.sources, ContextSource(_file(local).absolute(), place))), place

    def instruction(self, *lines: str) -> Image:
        """Add instructions as a Dockerfile has them, like "LABEL made=here"; further stages are possible, too."""
        return self._add(*_words("lines", lines))

    @property
    def dockerfile(self) -> str:
        """The Dockerfile that is built; what is added is in a separate directory there."""
        return "\n".join(self.instructions) + "\n"

    async def build_async(self, tag: str = "", **options: Unpack[ImageBuildArguments]) -> BuiltImage:
        """Build it in a mesh: see `build`."""
        from sandmesh.sandbox.images.builds import build_image  # noqa: PLC0415 - it imports gRPC, which describing does not need

        return await build_image(self, tag, options)

    def build(self, tag: str = "", **options: Unpack[ImageBuildArguments]) -> BuiltImage:
        """Build it in a mesh; return its name there, which `BaseSandbox(image=...)` and others take.

        With `tag` it gets that name for all of the mesh, as "mine:1", which takes an administrator; without, one that
        is made of what is built. The options are those of `ImageBuildArguments`.

        Raises:
            InvalidArgument: An instruction is not valid, or not supported; the message has its line.
            TemplateBuildFailed: A command failed; the message has the step, `facts["detail"]` the end of its output.
            PermissionDenied: A policy of the mesh forbids it.
            CapabilityMissing: The mesh has no sandboxes with images.
            TooLarge: Its files are larger than the mesh takes.
        """
        from sandmesh._client.sync import run  # noqa: PLC0415 - as above

        return run("build_async", self.build_async(tag, **options))

    def _copy(self, path: Path, remote: str, ignore: DockerIgnore, owner: str) -> Image:
        if not remote or "\0" in remote:
            raise InvalidArgument(f"remote is {remote!r}: it is a path in the image", {"field": "remote"})
        real = path.absolute()
        name = real.name if _PLAIN_NAME.fullmatch(real.name) else "added"
        if remote.endswith("/") and path.is_file():
            remote += real.name
        place = f"{_FILES}/{len(self.sources)}/{name}"
        flag = f"--chown={_words('owner', (owner,))[0]} " if owner else ""
        line = f"COPY {flag}{json.dumps([place, _escaped(remote)], ensure_ascii=False)}"
        return replace(self._add(line), sources=(*self.sources, ContextSource(real, place, ignore)))

    def _add(self, *lines: str) -> Image:
        return replace(self, instructions=(*self.instructions, *lines))


def _file(local: str | Path) -> Path:
    path = Path(local)
    if not path.is_file():
        raise InvalidArgument(f"{path} is not a file", {"field": "local"})
    return path


def _words(what: str, words: tuple[str, ...]) -> tuple[str, ...]:
    if not words or not all(isinstance(word, str) and word.strip() for word in words):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers need not be typed
        raise InvalidArgument(f"{what} are texts that are not empty, at least one: {words!r}", {"field": what})
    return words


def _run(command: str) -> str:
    """Return RUN in one line where it fits, else as a here-document: both are the same step."""
    text = command.strip()
    if _PLAIN_COMMAND.fullmatch(text) and "<<" not in text:
        return f"RUN {text}"
    end = "END"
    while end in text:
        end += "_"
    return f"RUN <<'{end}'\n{text}\n{end}"


def _env(name: str, value: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise InvalidArgument(f"{name!r} is not the name of a variable", {"field": "variables"})
    return f"ENV {name}={_quoted(name, str(value))}"


def _quoted(what: str, text: str) -> str:
    if not text or not text.isprintable():
        raise InvalidArgument(f"{what} is {text!r}: it has text of one line", {"field": what})
    return '"' + re.sub(r'(["\\$])', r"\\\1", text) + '"'


def _escaped(path: str) -> str:
    return re.sub(r'(["\'\\$])', r"\\\1", path)
