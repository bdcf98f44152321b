"""What calls on files take. Paths are relative to the workspace, or absolute below it or a granted directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sandmeshd.agent.files.arguments import Arguments


@dataclass(frozen=True)
class Read(Arguments):
    """Bytes of a regular file from an offset; `version` refuses a file that is not the one of before."""

    tool: ClassVar[str] = "fs.read"
    path: str
    offset: int = 0
    length: int | None = None
    version: str = ""


@dataclass(frozen=True)
class Write(Arguments):
    """The call's input as a file, in its place only when the input ended well."""

    tool: ClassVar[str] = "fs.write"
    path: str
    size: int | None = None
    mode: int | None = None
    make_parents: bool = True
    replace: bool = True


@dataclass(frozen=True)
class Stat(Arguments):
    """What the system knows of a path, of a link's end or with `follow` false of the link."""

    tool: ClassVar[str] = "fs.stat"
    path: str
    follow: bool = True
    attributes: bool = False


@dataclass(frozen=True)
class List(Arguments):
    """The entries below a directory, down to a depth."""

    tool: ClassVar[str] = "fs.list"
    path: str = "."
    depth: int = 1
    attributes: bool = False


@dataclass(frozen=True)
class Remove(Arguments):
    """Takes a file, a link or a directory away; one that is not empty only with `recursive`."""

    tool: ClassVar[str] = "fs.remove"
    path: str
    recursive: bool = False
    missing_ok: bool = False


@dataclass(frozen=True)
class Move(Arguments):
    """Renames; an existing destination only with `replace`."""

    tool: ClassVar[str] = "fs.move"
    source: str
    destination: str
    replace: bool = False


@dataclass(frozen=True)
class Mkdir(Arguments):
    """Makes a directory; with `parents` those above it, and one that exists is fine."""

    tool: ClassVar[str] = "fs.mkdir"
    path: str
    parents: bool = True
    mode: int | None = None


@dataclass(frozen=True)
class Pack(Arguments):
    """A directory and all below it as a tar stream, without what `exclude` matches, the lines of a `.gitignore`.

    With `any_modes` also what its owner may not read as it is.
    """

    tool: ClassVar[str] = "fs.pack"
    path: str = "."
    any_modes: bool = False
    exclude: str = ""


@dataclass(frozen=True)
class Unpack(Arguments):
    """The call's input, a tar stream, as a directory that is there whole or not at all.

    With `any_links` symbolic links are made wherever they lead: what was a workspace's own may be again.
    """

    tool: ClassVar[str] = "fs.unpack"
    path: str = "."
    any_links: bool = False


@dataclass(frozen=True)
class Save(Arguments):
    """The workspace and the home as one tar stream; no process of user code runs until it is whole."""

    tool: ClassVar[str] = "fs.save"
    path: str = "."


@dataclass(frozen=True)
class Restore(Arguments):
    """The call's input, a stream that `fs.save` gave, into the workspace and the home, whole or not at all."""

    tool: ClassVar[str] = "fs.restore"
    path: str = "."


@dataclass(frozen=True)
class Watch(Arguments):
    """Changes of a file or a directory's entries, and with `recursive` of all below it, as they happen."""

    tool: ClassVar[str] = "fs.watch"
    path: str = "."
    recursive: bool = False


@dataclass(frozen=True)
class BeginBranch(Arguments):
    """Holds the workspace's state: what is changed from now on are the branch's changes of the sandbox `base`.

    With `packed` the state is held that the last `fs.pack_changes` packed.
    """

    tool: ClassVar[str] = "fs.begin_branch"
    path: str = "."
    base: str = ""
    packed: bool = False


@dataclass(frozen=True)
class ListChanges(Arguments):
    """The changes of the workspace since `fs.begin_branch`, a line of JSON each; first a line with `base`.

    With `packed` no file is looked at: they are those that the last `fs.pack_changes` packed, if there was one.
    """

    tool: ClassVar[str] = "fs.list_changes"
    path: str = "."
    packed: bool = False


@dataclass(frozen=True)
class PackChanges(Arguments):
    """The changes of the workspace since `fs.begin_branch` as a patch; no process runs until it is whole."""

    tool: ClassVar[str] = "fs.pack_changes"
    path: str = "."


@dataclass(frozen=True)
class ApplyChanges(Arguments):
    """The call's input, a patch, onto the workspace, whole or not at all; nothing runs while it is applied.

    Where something has changed since in the same places, these are returned as `conflicts` and nothing is applied;
    with `force` it is.
    """

    tool: ClassVar[str] = "fs.apply_changes"
    path: str = "."
    force: bool = False


@dataclass(frozen=True)
class HoldState(Arguments):
    """Holds the workspace's files as they are, with what they hold; `note` is any text, which is returned with it."""

    tool: ClassVar[str] = "fs.hold_state"
    path: str = "."
    note: str = ""


@dataclass(frozen=True)
class ListStates(Arguments):
    """The states that are held, the oldest first."""

    tool: ClassVar[str] = "fs.list_states"
    path: str = "."


@dataclass(frozen=True)
class ReturnToState(Arguments):
    """Makes the workspace what it was when a state was held, whole or not at all; nothing runs meanwhile."""

    tool: ClassVar[str] = "fs.return_to_state"
    state_id: str
    path: str = "."


@dataclass(frozen=True)
class DropState(Arguments):
    """Drops a state and frees its space."""

    tool: ClassVar[str] = "fs.drop_state"
    state_id: str
    path: str = "."
