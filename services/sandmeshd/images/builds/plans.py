"""What RUN, COPY and ADD are to do: a step for the runner, and what it depends on."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from sandmesh.errors import InvalidArgument
from sandmeshd.images.builds.context import Context, ContextFiles, spool_texts
from sandmeshd.images.builds.mounts import BuildMount, read_mount
from sandmeshd.images.builds.options import ImageBuildOptions
from sandmeshd.images.builds.state import State
from sandmeshd.images.dockerfile import ParsedInstruction
from sandmeshd.images.image import PulledImage

_PLACE: Final = "/run/agent"
"""Where a step has what its image lacks."""


@dataclass(frozen=True)
class Plan:
    """A step, before what it needs is open."""

    identity: Mapping[str, Any]
    """What its result depends on, beside the image that it changes."""
    copy: Mapping[str, Any] | None = None
    command: Mapping[str, Any] | None = None
    images: tuple[PulledImage, ...] = ()
    caches: tuple[tuple[str, bool], ...] = ()
    """Names of caches, and whether each is for this step only."""
    network: tuple[str, ...] = ()
    input: Path | None = None


class Others(Protocol):
    """What `from` names: other stages, images and directories."""

    async def find(self, one: ParsedInstruction, name: str) -> PulledImage | Context:
        """Return what a name leads to; a stage is built first.

        Raises:
            InvalidArgument: Nothing has that name.
        """
        ...


@dataclass
class _Run:
    """One RUN on its way."""

    one: ParsedInstruction
    state: State
    options: ImageBuildOptions
    others: Others
    mounts: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    images: list[PulledImage] = field(default_factory=list[PulledImage])
    caches: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])
    environment: dict[str, str] = field(default_factory=dict[str, str])
    known: list[Any] = field(default_factory=list[Any])
    """What of the mounts the result depends on."""
    patterns: list[str] = field(default_factory=list[str])
    """What is taken of the build's directory."""

    async def add(self, mount: BuildMount) -> None:
        """Add a mount."""
        match mount.kind:
            case "cache":
                self._add_cache(mount)
            case "secret":
                self._add_secret(mount)
            case "tmpfs":
                self.mounts.append({"kind": "memory", "target": mount.text("target"), "size": mount.size})
            case _:
                await self._add_bind(mount)

    def _add_cache(self, mount: BuildMount) -> None:
        source = f"{_PLACE}/caches/{len(self.caches)}"
        name = mount.text("id", mount.text("target"))
        # What one user's commands leave there, another's must not find.
        own = f"{self.options.owner}\0{name}" if self.options.owner else name
        self.caches.append((own, mount.text("sharing") == "locked"))
        values = {"source": source, "target": mount.text("target"), "writable": True}
        self.mounts.append({"kind": "cache", **values, **mount.owned})

    def _add_secret(self, mount: BuildMount) -> None:
        name = mount.text("id") or posixpath.basename(mount.text("target"))
        secret = self.options.secrets.get(name)
        if secret is None:
            if mount.text("required", "false") in ("true", "1", ""):
                raise mount.one.refuse(f"the secret {name} is not given: --secret id={name},src=FILE")
            return
        if "env" in mount.values:
            self.environment[mount.text("env")] = secret.value
        if "env" not in mount.values or "target" in mount.values:
            target = mount.text("target", f"/run/secrets/{name}")
            self.mounts.append({"kind": "secret", "target": target, "value": secret.value, **mount.owned})

    async def _add_bind(self, mount: BuildMount) -> None:
        source = mount.text("source", "/").lstrip("/")
        found: PulledImage | Context = self.options.context
        if "from" in mount.values:
            found = await self.others.find(mount.one, mount.text("from"))
        if isinstance(found, PulledImage):
            place = f"{_PLACE}/images/{len(self.images)}/{source}".rstrip("/")
            self.images.append(found)
            self.known.append(found.digest)
        elif found is self.options.context:
            place = f"{_PLACE}/files/{len(self.patterns)}"
            self.patterns.append(source or ".")
        else:
            raise mount.one.refuse("a mount of another directory is not supported: COPY from it")
        self.mounts.append({"kind": "bind", "source": place, "target": mount.text("target"), "writable": False})


async def plan_run(
    one: ParsedInstruction, state: State, options: ImageBuildOptions, others: Others, file: Path
) -> Plan:
    """Return what a RUN is to do.

    Raises:
        InvalidArgument: It is not valid, or not supported.
    """
    run, network, texts = _Run(one, state, options, others), options.network, list[str]()
    for flag in one.flags:
        name, _, value = flag.partition("=")
        if name == "--mount":
            texts.append(value)
            await run.add(read_mount(one, state, value))
        elif name == "--network" and value in ("none", "default"):
            network = () if value == "none" else network
        else:
            raise one.refuse(f"{flag} is not supported")
    argv, script = _command(one, state)
    if not argv:
        raise one.refuse("there is no command")
    files = options.context.spool(run.patterns, file) if run.patterns else None
    command = {
        "argv": argv,
        "script": script,
        "environment": state.environment,
        "directory": state.directory,
        "user": state.user,
    }
    identity: dict[str, Any] = {"run": command, "mounts": texts, "network": network, "known": run.known}
    if options.owner:
        # What a command does depends on secrets and on what its network answers: users share no result of one.
        identity["owner"] = options.owner
    return Plan(
        identity={**identity, "files": files.digest if files else ""},
        command={**command, "mounts": run.mounts, "environment": {**state.environment, **run.environment}},
        images=tuple(run.images),
        caches=tuple(run.caches),
        network=network,
        input=files.path if files else None,
    )


def _command(one: ParsedInstruction, state: State) -> tuple[list[str], str]:
    """Return the words of a command, and the script that it is instead, if it is one that names its interpreter."""
    if one.words is not None:
        return list(one.words), ""
    if len(one.heredocs) == 1 and one.text.lstrip("0123456789").startswith("<<") and len(one.text.split()) == 1:
        text = one.heredocs[0].content
        return [*state.shell, text], text if text.startswith("#!") else ""
    ends = "".join(f"\n{each.content}{each.name}" for each in one.heredocs)
    return [*state.shell, f"{one.text}{ends}"], ""


async def plan_copy(
    one: ParsedInstruction, state: State, options: ImageBuildOptions, others: Others, file: Path
) -> Plan:
    """Return what a COPY or ADD is to do.

    Raises:
        InvalidArgument: It is not valid, or not supported, or a file is not there.
    """
    flags = _copy_flags(one, state)
    words = one.words if one.words is not None else tuple(one.text.split())
    if len(words) < 2:
        raise one.refuse("write what is copied, and where to")
    *sources, target = words
    sources = [word if "<<" in word and one.heredocs else state.expand(one, word) for word in sources]
    found: PulledImage | Context = options.context
    if "--from" in flags:
        found = await others.find(one, flags["--from"])
    place = state.place(state.expand(one, target))
    copy: dict[str, Any] = {
        "target": place,
        "owner": flags.get("--chown", ""),
        "mode": _mode(one, flags),
        "archives": one.name == "ADD",
        "keeps_owners": isinstance(found, PulledImage),
    }
    if isinstance(found, PulledImage):
        several = len(sources) > 1 or any(sign in "".join(sources) for sign in "*?[")
        copy |= {"image": 0, "patterns": sources, "several": several}
        return Plan(identity={"copy": copy, "known": found.digest}, copy=copy, images=(found,))
    files = _spool(one, state, sources, (found, file))
    copy |= {"image": None, "patterns": [], "several": files.count > 1}
    return Plan(identity={"copy": copy, "files": files.digest}, copy=copy, input=files.path)


def _copy_flags(one: ParsedInstruction, state: State) -> dict[str, str]:
    flags: dict[str, str] = {}
    for flag in one.flags:
        name, _, value = flag.partition("=")
        if name == "--link" or (name == "--from" and one.name == "COPY") or name in ("--chown", "--chmod"):
            flags[name] = state.expand(one, value)
        else:
            raise one.refuse(f"{flag} is not supported")
    return flags


def _mode(one: ParsedInstruction, flags: Mapping[str, str]) -> int | None:
    text = flags.get("--chmod", "")
    try:
        return int(text, 8) & 0o7777 if text else None
    except ValueError:
        raise one.refuse(f"--chmod={text} is not a number like 755") from None


def _spool(one: ParsedInstruction, state: State, sources: Sequence[str], where: tuple[Context, Path]) -> ContextFiles:
    context, file = where
    if one.heredocs:
        if len(one.heredocs) != len(sources):
            raise one.refuse("here-documents and files cannot be copied by one instruction: write two")
        texts = {each.name: state.expand(one, each.content, quotes=False) if each.expands else each.content
                 for each in one.heredocs}  # fmt: skip
        return spool_texts(texts, file)
    for source in sources:
        if "://" in source or source.startswith("git@"):
            raise one.refuse("nothing is downloaded by ADD: use RUN with curl or git, and --network for the host")
    try:
        return context.spool(sources, file)
    except InvalidArgument as error:
        raise one.refuse(error.message) from None
