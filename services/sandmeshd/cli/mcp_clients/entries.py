"""The change of one entry in the settings of an MCP client, as text, and the file that gets it."""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from sandmesh.errors import InvalidArgument
from sandmeshd.cli.mcp_clients import json_text
from sandmeshd.cli.mcp_clients.places import McpHost

LARGEST: Final = 16 << 20
"""The most bytes of a settings file."""


def added(client: McpHost, text: str, name: str, entry: dict[str, object]) -> str:
    """Return settings that have an entry by a name; one of sandmesh there is replaced.

    Raises:
        InvalidArgument: The text is not of the client's form, or the entry of that name is of another program.
    """
    before, servers = _servers(client, text)
    if name in servers and not _is_own(servers[name]):
        raise InvalidArgument(f"{name!r} is an entry of another program there: choose another name by --name")
    new = (
        with_table(text, client.key, name, entry)
        if client.toml
        else json_text.with_member(text, (client.key, name), entry)
    )
    return _checked(client, new, {**before, client.key: {**servers, name: entry}})


def removed(client: McpHost, text: str, name: str) -> str:
    """Return settings without the entry of a name; the same text if there is none.

    Raises:
        InvalidArgument: The text is not of the client's form, or the entry is of another program.
    """
    before, servers = _servers(client, text)
    if name not in servers:
        return text
    if not _is_own(servers[name]):
        raise InvalidArgument(f"{name!r} is an entry of another program there: sandmesh's has another name (--name)")
    new = without_table(text, client.key, name) if client.toml else json_text.without_member(text, (client.key, name))
    return _checked(client, new, {**before, client.key: {key: servers[key] for key in servers if key != name}})


def read_settings(path: Path) -> str:
    """Return the text of a settings file; an empty one if there is no file.

    Raises:
        InvalidArgument: It is not a file of at most 16 MiB in UTF-8, or cannot be read.
    """
    try:
        # Opened without waiting: a pipe's reader would wait for its writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _left(path, "it is not a regular file")
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise _left(path, f"it has more than {LARGEST >> 20} MiB")
        return content.decode()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise _left(path, "it is not UTF-8") from None
    except OSError as error:
        raise _left(path, str(error.strerror)) from None


def _left(path: Path, reason: str) -> InvalidArgument:
    return InvalidArgument(f"{path} is left as it is: {reason}", {"file": str(path)})


def write_settings(path: Path, before: str, after: str) -> None:
    """Replace a settings file whole, with its permissions; a new one is only its user's.

    Raises:
        InvalidArgument: It has changed since it was read, or cannot be written.
    """
    # A link stays one, and what it leads to is changed.
    target = path.resolve()
    if read_settings(target) != before:
        raise InvalidArgument(f"{path} has changed meanwhile, and is left as it is: try again", {"file": str(path)})
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        descriptor, made = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(descriptor, mode)
                file.write(after.encode())
            Path(made).replace(target)
        except BaseException:
            Path(made).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be written: {error.strerror}", {"file": str(path)}) from None


def _servers(client: McpHost, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    settings = read(text) if client.toml else json_text.read(text)
    servers: object = settings.get(client.key, {})
    if not isinstance(servers, dict):
        raise InvalidArgument(f"its {client.key} is not an object of servers")
    return settings, cast("dict[str, Any]", servers)


def _is_own(entry: object) -> bool:
    """Return whether an entry runs sandmesh, by itself or by another program such as uvx."""
    if not isinstance(entry, dict):
        return False
    fields = cast("dict[str, object]", entry)
    arguments = fields.get("args")
    words = [fields.get("command"), *(cast("list[object]", arguments) if isinstance(arguments, list) else [])]
    return "sandmesh" in [Path(word).name for word in words if isinstance(word, str)]


def _checked(client: McpHost, text: str, wanted: dict[str, Any]) -> str:
    """Return the text if it says what it should, so that no setting is ever lost by a mistake of this program."""
    found = read(text) if client.toml else json_text.read(text)
    # An object that is empty without the entry may be left out.
    if {**found, client.key: found.get(client.key, {})} != wanted:
        raise InvalidArgument("it is written in a way that sandmesh cannot change safely: change it by hand")
    return text


def read(text: str) -> dict[str, Any]:
    """Return what a file says.

    Raises:
        InvalidArgument: The text is not TOML.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"it is not TOML: {error}") from None


def with_table(text: str, key: str, name: str, entry: Mapping[str, object]) -> str:
    """Return a text that has a table at `key.name`, in the place of one that is there."""
    # A string or a list of strings of JSON is one of TOML, too, but for DEL.
    lines = [f"{field} = {json.dumps(value)}".replace("\x7f", "\\u007f") for field, value in entry.items()]
    written = name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name)
    block = "\n".join([f"[{key}.{written}]", *lines, ""])
    if name in read(text).get(key, {}):
        text = without_table(text, key, name)
    return (text.rstrip("\n") + "\n\n" if text.strip() else "") + block


def without_table(text: str, key: str, name: str) -> str:
    """Return a text without the table at `key.name`.

    Raises:
        InvalidArgument: It is not written as a table on separate lines, or has tables below it.
    """
    before = read(text)
    heading = re.compile(
        rf"^\[{re.escape(key)}\.(?:{re.escape(name)}|{re.escape(json.dumps(name))})\][ \t]*$", re.MULTILINE
    )
    found = heading.search(text)
    if found is None:
        raise InvalidArgument(f"its {key}.{name} is not a table under its own heading: change it by hand")
    following = re.compile(r"^[ \t]*\[", re.MULTILINE).search(text, found.end())
    end = following.start() if following else len(text)
    rest = text[: found.start()].rstrip("\n") + "\n" + ("\n" + text[end:] if following else "")
    rest = rest if rest.strip() else ""
    before[key].pop(name)
    kept = {field: value for field, value in before.items() if field != key or value}
    if {field: value for field, value in read(rest).items() if field != key or value} != kept:
        raise InvalidArgument(f"its {key}.{name} cannot be taken out by itself: change it by hand")
    return rest
