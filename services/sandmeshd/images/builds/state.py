"""What a stage has set so far: the image's configuration, arguments and the shell."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sandmesh.errors import InvalidArgument
from sandmeshd.images.dockerfile import ParsedInstruction, expand, raw_words
from sandmeshd.images.dockerfile.words import WordError

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHELL: Final = ("/bin/sh", "-c")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PORT: Final = re.compile(r"\d{1,5}(-\d{1,5})?(/(tcp|udp|sctp))?")


@dataclass
class State:
    """A stage on its way."""

    config: dict[str, Any]
    """As registries have it."""
    arguments: dict[str, str] = field(default_factory=dict[str, str])
    """Of the stage, by ARG."""
    overrides: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the caller sets: `--build-arg`."""
    globals: Mapping[str, str] = field(default_factory=dict[str, str])
    """ARG before the first FROM, and what is known of the platform."""
    used: set[str] = field(default_factory=set[str])
    """Which of those that are given an ARG has named."""
    directories: list[str] = field(default_factory=list[str])
    """What WORKDIR named, which the next step makes."""

    @property
    def process(self) -> dict[str, Any]:
        """The part of the configuration that says how programs are started."""
        found: dict[str, Any] = self.config.setdefault("config", None) or {}
        self.config["config"] = found
        return found

    @property
    def env(self) -> dict[str, str]:
        """ENV, by name."""
        entries: list[str] = self.process.get("Env") or []
        pairs = (entry.partition("=") for entry in entries)
        return {name: value for name, _, value in pairs}

    @property
    def variables(self) -> dict[str, str]:
        """What instructions may name: ENV hides ARG."""
        return {**self.arguments, **self.env}

    @property
    def environment(self) -> dict[str, str]:
        """The variables of commands."""
        return {"PATH": PATH, **self.variables}

    @property
    def directory(self) -> str:
        """WORKDIR."""
        return self.process.get("WorkingDir") or "/"

    @property
    def user(self) -> str:
        """USER."""
        return self.process.get("User") or ""

    @property
    def shell(self) -> list[str]:
        """SHELL."""
        return list(self.process.get("Shell") or _SHELL)

    def expand(self, one: ParsedInstruction, word: str, *, quotes: bool = True) -> str:
        """Return a word of an instruction with its variables in place.

        Raises:
            InvalidArgument: It is not valid.
        """
        try:
            return expand(word, self.variables, one.escape, quotes=quotes)
        except WordError as error:
            raise one.refuse(str(error)) from None

    def place(self, path: str) -> str:
        """Return a path below WORKDIR as an absolute one; a slash at its end stays."""
        whole = posixpath.normpath(posixpath.join(self.directory, path))
        whole = "/" + whole.lstrip("/")
        return f"{whole.rstrip('/')}/" if path.endswith(("/", "/.")) or path == "." else whole

    def apply(self, one: ParsedInstruction) -> bool:
        """Carry out an instruction that changes no file; return whether it is one.

        Raises:
            InvalidArgument: It is not valid.
        """
        handler = _HANDLERS.get(one.name)
        if handler is None:
            return False
        if one.flags:
            raise one.refuse(f"{one.flags[0]} is not supported")
        if not one.text:
            raise one.refuse("something is missing behind it")
        handler(self, one)
        return True


def _set_env(state: State, one: ParsedInstruction) -> None:
    known = state.env
    # All of an instruction's words see the variables before it.
    known |= dict(_pairs(state, one))
    state.process["Env"] = [f"{name}={value}" for name, value in known.items()]


def _set_labels(state: State, one: ParsedInstruction) -> None:
    state.process["Labels"] = {**(state.process.get("Labels") or {}), **dict(_pairs(state, one))}


def _pairs(state: State, one: ParsedInstruction) -> Iterator[tuple[str, str]]:
    words = raw_words(one.text, one.escape)
    if "=" not in words[0]:
        name, *rest = one.text.split(maxsplit=1)
        if not rest:
            raise one.refuse(f"write {one.name} NAME=VALUE")
        yield name, state.expand(one, rest[0])
        return
    for word in words:
        name, equals, value = word.partition("=")
        name = state.expand(one, name)
        if not equals or not name:
            raise one.refuse(f"{word!r} is not NAME=VALUE")
        yield name, state.expand(one, value)


def _set_argument(state: State, one: ParsedInstruction) -> None:
    for word in raw_words(one.text, one.escape):
        name, equals, value = word.partition("=")
        if not _NAME.fullmatch(name):
            raise one.refuse(f"{name!r} is not a name")
        state.used.add(name)
        if name in state.overrides:
            state.arguments[name] = state.overrides[name]
        elif equals:
            state.arguments[name] = state.expand(one, value)
        elif name in state.globals:
            state.arguments[name] = state.globals[name]


def _set_user(state: State, one: ParsedInstruction) -> None:
    state.process["User"] = state.expand(one, one.text)


def _set_directory(state: State, one: ParsedInstruction) -> None:
    place = state.place(state.expand(one, one.text)).rstrip("/") or "/"
    state.process["WorkingDir"] = place
    if place != "/":
        state.directories.append(place)


def _set_shell(state: State, one: ParsedInstruction) -> None:
    if not one.words:
        raise one.refuse('write SHELL ["program", "argument"]')
    state.process["Shell"] = list(one.words)


def _command(state: State, one: ParsedInstruction) -> list[str]:
    return list(one.words) if one.words is not None else [*state.shell, one.text]


def _set_command(state: State, one: ParsedInstruction) -> None:
    state.process["Cmd"] = _command(state, one)


def _set_entrypoint(state: State, one: ParsedInstruction) -> None:
    state.process["Entrypoint"] = _command(state, one)
    # As in Docker: what a base's entrypoint got is not for another.
    state.process.pop("Cmd", None)


def _set_ports(state: State, one: ParsedInstruction) -> None:
    ports = dict(state.process.get("ExposedPorts") or {})
    for word in raw_words(one.text, one.escape):
        port = state.expand(one, word)
        if not _PORT.fullmatch(port):
            raise one.refuse(f"{port!r} is not a port")
        ports[port if "/" in port else f"{port}/tcp"] = {}
    state.process["ExposedPorts"] = ports


def _set_signal(state: State, one: ParsedInstruction) -> None:
    state.process["StopSignal"] = state.expand(one, one.text)


def _set_maintainer(state: State, one: ParsedInstruction) -> None:
    state.config["author"] = one.text


def _set_volumes(state: State, one: ParsedInstruction) -> None:
    words = one.words or [state.expand(one, word) for word in raw_words(one.text, one.escape)]
    state.process["Volumes"] = {**(state.process.get("Volumes") or {}), **{word: {} for word in words}}


_HANDLERS: Final[Mapping[str, Callable[[State, ParsedInstruction], None]]] = {
    "ARG": _set_argument,
    "CMD": _set_command,
    "ENTRYPOINT": _set_entrypoint,
    "ENV": _set_env,
    "EXPOSE": _set_ports,
    "LABEL": _set_labels,
    "MAINTAINER": _set_maintainer,
    "SHELL": _set_shell,
    "STOPSIGNAL": _set_signal,
    "USER": _set_user,
    "VOLUME": _set_volumes,
    "WORKDIR": _set_directory,
}


def check_known(one: ParsedInstruction) -> InvalidArgument:
    """Return the error of an instruction that is not carried out."""
    why = {
        "ONBUILD": "triggers are not supported: write their instructions in the Dockerfile that uses the image",
        "HEALTHCHECK": "nothing here would run it: remove it",
    }.get(one.name, "there is no such instruction")
    return one.refuse(why)
