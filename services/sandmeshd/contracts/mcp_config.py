"""The configuration `{"mcpServers": {...}}`, in the form that MCP clients have in common."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from sandmesh._tools.declaration import PLUMBING
from sandmesh.errors import InvalidArgument

START_SECONDS: Final = 120.0
"""How long a server may take to start: the first start of one that uvx or npx fetches takes a while."""
MAX_SERVERS: Final = 64
_SERVICES: Final = frozenset({"fs", "ports"})
"""What comes before the dot in names of a sandbox's own services, which are found before a server's tools."""
_SHARED: Final = frozenset({"git"})
"""Groups of a sandbox's own that an MCP server may share: the published server of that name has other tools."""
_CLASH: Final = "this sandbox has a group of tools of that name: choose another name for the server"
_NAME: Final = re.compile(r"[^.\x00-\x1f\x7f]{1,64}")
_TYPES: Final = {
    "stdio": "stdio",
    "sse": "sse",
    **dict.fromkeys(("http", "streamable-http", "streamable_http", "streamableHttp"), "http"),
}
_PROGRAM: Final = ("command", "args", "env", "cwd", "type", "startup_timeout")
_REMOTE: Final = ("url", "headers", "type", "startup_timeout")


@dataclass(frozen=True)
class ServerConfig:
    """One server: a program, or a URL."""

    name: str
    transport: str
    """stdio, http or sse."""
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    startup_timeout: float = START_SECONDS
    problem: str = ""
    """Why it cannot be started in this sandbox, empty if it can."""


def read_config(config: Mapping[str, Any], groups: Iterable[str] = ()) -> list[ServerConfig]:
    """Read a whole configuration for a sandbox that has these groups of tools.

    A server whose name is one of theirs has a `problem`; the others can be started.

    Raises:
        InvalidArgument: Something does not fit; the message names the server and what is wrong.
    """
    servers: object = config.get("mcpServers")
    if not isinstance(servers, dict) or len(config) != 1:
        found = ", ".join(map(repr, config)) or "nothing"
        raise InvalidArgument(f'a config of MCP servers is only {{"mcpServers": {{name: ...}}}}; it has {found}')
    named = cast("dict[str, object]", servers)
    if not 0 < len(named) <= MAX_SERVERS:
        raise InvalidArgument(f"mcpServers has 1 to {MAX_SERVERS} servers, not {len(named)}")
    configs = [_read(name, entry) for name, entry in named.items()]
    own = ({*groups} - _SHARED) | PLUMBING | _SERVICES
    return [replace(config, problem=_CLASH) if config.name in own else config for config in configs]


def read_template_config(config: bytes, groups: Iterable[str] = ()) -> list[ServerConfig]:
    """Read the configuration that a template has; empty is none."""
    return read_config(json.loads(config), groups) if config else []


def check_template_config(config: bytes, groups: Iterable[str]) -> None:
    """Check the configuration of a template whose sandboxes have these groups of tools.

    Raises:
        InvalidArgument: It is invalid, or a server cannot be started in them.
    """
    for one in read_template_config(config, groups):
        if one.problem:
            raise _refuse(one.name, one.problem)


def _read(name: str, entry: object) -> ServerConfig:
    if not _NAME.fullmatch(name) or not name.strip():
        raise _refuse(name, "a server's name has 1 to 64 characters, none of them a dot")
    if not isinstance(entry, dict):
        raise _refuse(name, f'it is {{"command": ...}} or {{"url": ...}}, not {entry!r}')
    fields = cast("dict[str, Any]", entry)
    if ("command" in fields) == ("url" in fields):
        raise _refuse(name, "it has either a command or a url")
    known = _PROGRAM if "command" in fields else _REMOTE
    unknown = [key for key in fields if key not in known]
    if unknown:
        raise _refuse(name, f"{', '.join(unknown)} is not a setting; there are {', '.join(known)}")
    seconds = fields.get("startup_timeout", START_SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 3600:
        raise _refuse(name, f"startup_timeout is a number of seconds, at most 3600, not {seconds!r}")
    return _program(name, fields, seconds) if "command" in fields else _remote(name, fields, seconds)


def _program(name: str, entry: Mapping[str, Any], seconds: float) -> ServerConfig:
    if entry.get("type", "stdio") != "stdio":
        raise _refuse(name, f'with a command its type is "stdio", not {entry["type"]!r}')
    command, args, cwd = entry["command"], entry.get("args", []), entry.get("cwd", "")
    if not isinstance(command, str) or not command.strip():
        raise _refuse(name, f"its command is the name of a program, not {command!r}")
    if not isinstance(args, list) or not all(isinstance(argument, str) for argument in cast("list[object]", args)):
        raise _refuse(name, f"its args are a list of texts, not {args!r}")
    if not isinstance(cwd, str):
        raise _refuse(name, f"its cwd is a path, not {cwd!r}")
    words = (command, *cast("list[str]", args))
    env = _texts(name, "env", entry.get("env", {}))
    if any("\0" in text for text in (*words, cwd, *env, *env.values())) or any("=" in key or not key for key in env):
        raise _refuse(name, "its texts have no zero bytes, and the names of its env no '='")
    return ServerConfig(name, "stdio", words, env, cwd, startup_timeout=seconds)


def _remote(name: str, entry: Mapping[str, Any], seconds: float) -> ServerConfig:
    transport = _TYPES.get(entry.get("type", "http"), "stdio")
    if transport == "stdio":
        raise _refuse(name, f'with a url its type is "http" (streamable HTTP) or "sse", not {entry["type"]!r}')
    url = entry["url"]
    if not isinstance(url, str) or not re.fullmatch(r"https?://[!-~]+", url):
        raise _refuse(name, f"its url starts with http:// or https://, not {url!r}")
    headers = _texts(name, "headers", entry.get("headers", {}))
    if any(not re.fullmatch(r"[!-9;-~]+", key) or not re.fullmatch(r"[\t -~]*", text) for key, text in headers.items()):
        raise _refuse(name, "its headers are printable ASCII")
    return ServerConfig(name, transport, url=url, headers=headers, startup_timeout=seconds)


def _texts(name: str, what: str, entry: object) -> dict[str, str]:
    texts = cast("dict[str, object]", entry) if isinstance(entry, dict) else None
    if texts is None or not all(isinstance(text, str) for text in texts.values()):
        raise _refuse(name, f"its {what} is an object of texts")
    return cast("dict[str, str]", texts)


def _refuse(name: str, problem: str) -> InvalidArgument:
    return InvalidArgument(f"MCP server {name!r}: {problem}", {"server": name})
